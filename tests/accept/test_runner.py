"""An acceptance from stage to stage: which nodes it removes and readmits, and what an interruption costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.accept import RESULTS, NodeRun, runner
from clusterproof.plugins.accept.journal import FILE, JournalError
from clusterproof.plugins.accept.runner import COMPLETE_EXITS, EXIT, OUTPUT, last_line, launched
from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import Gpu, NodeIdentity
from tests.accept.simulated import NAMES, STAGES, Nodes, acceptance, cluster_of


def outcomes_of(folder: Path, nodes: Nodes, again: tuple[str, ...] = (), text: str = STAGES) -> dict[str, NodeOutcome]:
    """The final verdict on each node."""
    made = acceptance(folder, nodes, text)
    assert made.go_on(again, lambda _words: None) == ""
    return {outcome.node: outcome for outcome in of_nodes(made.state)}


def test_healthy_nodes_are_accepted_after_as_many_runs_as_the_errors_ask_for(tmp_path: Path) -> None:
    nodes = Nodes()
    assert {outcome.said for outcome in outcomes_of(tmp_path, nodes).values()} == {NodeVerdict.ACCEPTED}
    assert [stage for stage, _ in nodes.runs] == ["inventory", *["exact"] * 3, *["speed"] * 3]


def test_a_node_that_is_always_slow_is_rejected_with_its_evidence(tmp_path: Path) -> None:
    outcomes = outcomes_of(tmp_path, Nodes(speed=lambda node, _run: 0.9 if node == "n3" else 1.0))
    assert {node for node, outcome in outcomes.items() if outcome.said is NodeVerdict.REJECTED} == {"n3"}
    assert outcomes["n3"].reasons[0].startswith("gpu.gpu_gemm: GPU compute speed: GPU 0, bfloat16 products")
    assert "10.0% slower" in outcomes["n3"].reasons[0]
    assert "runs/" in outcomes["n3"].reasons[0]


@pytest.mark.long
def test_a_node_that_is_slow_once_is_measured_until_it_is_decided(tmp_path: Path) -> None:
    nodes = Nodes(speed=lambda node, run: 0.8 if (node, run) == ("n3", 2) else 1.0)
    assert outcomes_of(tmp_path, nodes)["n3"].said is NodeVerdict.ACCEPTED
    assert nodes.measured["n3"] > 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "verdict", "due", "loaded"),
    [
        ("inventory", Verdict.FAIL, NodeVerdict.TO_FIX, False),
        ("exact", Verdict.FAIL, NodeVerdict.REJECTED, False),
        ("inventory", Verdict.INCOMPLETE, NodeVerdict.OPEN, True),
        ("exact", Verdict.INCOMPLETE, NodeVerdict.OPEN, True),
        ("exact", Verdict.NOT_APPLICABLE, NodeVerdict.OPEN, True),
        ("inventory", Verdict.CONCERN, NodeVerdict.ACCEPTED, True),
    ],
)
def test_what_fails_gets_no_more_load_and_what_is_not_proven_is_not_accepted(
    stage: str, verdict: Verdict, due: NodeVerdict, loaded: bool, tmp_path: Path
) -> None:
    nodes = Nodes(verdicts={(stage, "n5"): verdict})
    assert outcomes_of(tmp_path, nodes)["n5"].said is due
    assert any(name == "speed" and "n5" in of for name, of in nodes.runs) is loaded


@pytest.mark.long
@pytest.mark.parametrize("after", range(7))
def test_an_interruption_at_any_run_repeats_nothing_that_ended_and_counts_nothing_that_did_not(
    after: int, tmp_path: Path
) -> None:
    nodes = Nodes(stop_after=after)
    with pytest.raises(KeyboardInterrupt):
        outcomes_of(tmp_path, nodes)
    nodes.stop_after = 10**6
    assert {outcome.said for outcome in outcomes_of(tmp_path, nodes).values()} == {NodeVerdict.ACCEPTED}
    assert [stage for stage, _ in nodes.runs] == ["inventory", *["exact"] * 3, *["speed"] * 3]
    assert nodes.measured == dict.fromkeys(NAMES, 3)


@pytest.mark.long
def test_a_run_that_python_itself_ends_has_no_code_of_a_run_that_came_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(["--version"], tmp_path) == 0
    (tmp_path / EXIT).unlink()
    monkeypatch.setattr(runner, "CHILD", "raise ImportError('no such module')")
    assert launched(["--version"], tmp_path) not in COMPLETE_EXITS
    assert last_line(tmp_path / OUTPUT) == "ImportError: no such module"


@pytest.mark.long
def test_a_run_that_ended_while_nobody_looked_counts(tmp_path: Path) -> None:
    nodes = Nodes()
    outcomes_of(tmp_path, nodes)
    journal = tmp_path / "into" / FILE
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while writing the last line
    outcomes_of(tmp_path, nodes)
    assert len(nodes.runs) == 7
    again = [json.loads(line) for line in journal.read_text().splitlines()]
    took = {"seconds": again[-1].get("seconds")}  # from another clock, as nobody saw its end
    assert again == [*map(json.loads, lines[:-1]), json.loads(lines[-1]) | took]


@pytest.mark.long
def test_no_more_nodes_are_loaded_at_once_than_allowed(tmp_path: Path) -> None:
    nodes = Nodes()
    outcomes = outcomes_of(tmp_path, nodes, text=f"{STAGES}[limits]\nnodes_at_once = 3\n")
    assert {outcome.said for outcome in outcomes.values()} == {NodeVerdict.ACCEPTED}
    assert [len(of) for stage, of in nodes.runs if stage == "exact"] == [3, 3, 2] * 3
    assert max(len(of) for stage, of in nodes.runs if stage == "speed") == 3


@pytest.mark.long
def test_a_replaced_node_is_let_in_and_goes_through_all_stages(tmp_path: Path) -> None:
    nodes = Nodes(verdicts={("exact", "n5"): Verdict.FAIL})
    assert outcomes_of(tmp_path, nodes)["n5"].said is NodeVerdict.REJECTED
    nodes.verdicts, nodes.serials["n5"] = {}, "another"
    runs = len(nodes.runs)
    outcomes = outcomes_of(tmp_path, nodes, again=("n5",))
    assert {outcome.said for outcome in outcomes.values()} == {NodeVerdict.ACCEPTED}
    assert [(stage, of) for stage, of in nodes.runs[runs:] if stage != "speed"] == [
        ("inventory", NAMES),
        *[("exact", ("n5",))] * 3,
    ]
    assert all("n5" in of and len(of) > 1 for stage, of in nodes.runs[runs:] if stage == "speed"), "others beside it"


@pytest.mark.long
def test_other_hardware_under_a_name_begins_anew(tmp_path: Path) -> None:
    nodes = Nodes(stop_after=4)
    with pytest.raises(KeyboardInterrupt):
        outcomes_of(tmp_path, nodes)
    nodes.stop_after, nodes.serials["n5"] = 10**6, "another"
    assert outcomes_of(tmp_path, nodes)["n5"].said is NodeVerdict.ACCEPTED
    assert nodes.runs.count(("inventory", NAMES)) == 2
    assert [of for stage, of in nodes.runs if stage == "exact"] == [*[NAMES] * 3, *[("n5",)] * 3]


@pytest.mark.long
def test_a_node_that_says_another_serial_in_each_run_is_open_and_keeps_nothing_going(tmp_path: Path) -> None:
    nodes = Nodes()

    class Changing(dict[str, str]):
        def get(self, node: str, default: str = "") -> str:  # type: ignore[override]
            return f"S-{len(nodes.runs)}" if node == "n5" else default

    nodes.serials = Changing()
    outcomes = outcomes_of(tmp_path, nodes)
    assert outcomes["n5"].said is NodeVerdict.OPEN
    assert "it is another machine, or has other GPUs, in each run" in outcomes["n5"].reasons[0]
    assert {outcome.said for node, outcome in outcomes.items() if node != "n5"} == {NodeVerdict.ACCEPTED}
    assert nodes.measured.get("n5", 0) == 0
    runs = len(nodes.runs)
    nodes.serials = {}
    assert {outcome.said for outcome in outcomes_of(tmp_path, nodes, again=("n5",)).values()} == {NodeVerdict.ACCEPTED}
    assert [of for stage, of in nodes.runs[runs:] if stage != "speed"] == [NAMES, *[("n5",)] * 3]


GPUS = {node: [f"GPU-{node}-{at}" for at in range(4)] for node in NAMES}


@pytest.mark.long
@pytest.mark.parametrize(("share", "due"), [(1.0, NodeVerdict.ACCEPTED), (0.8, NodeVerdict.REJECTED)])
def test_a_gpu_that_was_replaced_is_measured_anew_and_what_is_not_of_it_stands(
    share: float, due: NodeVerdict, tmp_path: Path
) -> None:
    nodes = Nodes(gpus={node: list(own) for node, own in GPUS.items()}, others={"n4~n5": Verdict.FAIL})
    nodes.gpu_speed = lambda _node, uuid: share if uuid == "GPU-new" else 1.0
    assert outcomes_of(tmp_path, nodes)["n5"].said is NodeVerdict.OPEN, "its pair with n4 failed"
    nodes.others.clear()
    runs = len(nodes.runs)
    assert outcomes_of(tmp_path, nodes, again=("n4",))["n5"].said is NodeVerdict.ACCEPTED
    nodes.gpus["n5"][2] = "GPU-new"
    assert outcomes_of(tmp_path, nodes, again=("n3",))["n5"].said is due
    after = nodes.runs[runs:]
    assert after.count(("inventory", NAMES)) == 2
    assert [stage for stage, of in after if stage == "exact" and "n5" in of] == ["exact"] * 3


@pytest.mark.parametrize(
    ("uuids", "replaced"),
    [
        (["a", "b", "c"], set()),
        (["a", "new", "c"], {"1"}),
        (["b", "c"], set()),  # one fell off, and the driver renumbers the others
        (["b", "c", "new"], {"2"}),
        (["c", "b", "a"], set()),
    ],
)
def test_a_gpu_is_replaced_where_one_is_there_that_was_not(uuids: list[str], replaced: set[str]) -> None:
    def seen(uuids: list[str]) -> NodeRun:
        return NodeRun(NodeIdentity("", "", tuple(Gpu(at, uuid) for at, uuid in enumerate(uuids))), "p5")

    assert seen(uuids).gpus_replaced(seen(["a", "b", "c"])) == replaced


def test_a_node_whose_gpus_are_others_in_each_run_is_open_and_keeps_nothing_going(tmp_path: Path) -> None:
    nodes = Nodes()

    class Changing(dict[str, list[str]]):
        def __contains__(self, node: object) -> bool:
            return True

        def __getitem__(self, node: str) -> list[str]:
            return [*GPUS[node][:3], f"GPU-{len(nodes.runs)}" if node == "n5" else GPUS[node][3]]

        def get(self, node: str, _default: object = None) -> list[str]:
            return self[node]

    nodes.gpus = Changing()
    outcomes = outcomes_of(tmp_path, nodes)
    assert outcomes["n5"].said is NodeVerdict.OPEN
    assert {outcome.said for node, outcome in outcomes.items() if node != "n5"} == {NodeVerdict.ACCEPTED}


def test_runs_that_say_less_of_the_hardware_change_neither_kind_nor_machine() -> None:
    gpus = (Gpu(0, "GPU-1", "S1"),)
    whole, part = NodeRun(NodeIdentity("", "", gpus), "p5, H100"), NodeRun(NodeIdentity("i-1", "S"), "p5")
    assert not part.is_other_than(whole)
    assert NodeRun(NodeIdentity("i-2", "S"), "p5").is_other_than(part)
    assert NodeRun(NodeIdentity("", "", (Gpu(0, "GPU-2"),)), "p5").is_other_than(whole)


def test_the_time_is_a_limit(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(), f"{STAGES}[limits]\nhours = 0.05\n")
    assert "0.05 hours are spent; every node alone: exact" in made.go_on((), lambda _words: None)
    assert {outcome.said for outcome in of_nodes(made.state)} == {NodeVerdict.OPEN}


@pytest.mark.long
def test_too_few_nodes_prove_nothing_without_a_floor(tmp_path: Path) -> None:
    def of_two(text: str) -> set[NodeVerdict]:
        folder = tmp_path / str(len(text))
        folder.mkdir()
        made = acceptance(folder, Nodes(), text, cluster_of(NAMES[:2]))
        made.go_on((), lambda _words: None)
        return {outcome.said for outcome in of_nodes(made.state)}

    assert of_two(STAGES) == {NodeVerdict.OPEN}
    assert of_two(f"{STAGES}[floors]\ngpu_gemm = 690\n") == {NodeVerdict.ACCEPTED}
    assert of_two(f"{STAGES}[floors]\ngpu_gemm = 800.0\n") == {NodeVerdict.REJECTED}


def test_evidence_that_was_altered_is_refused(tmp_path: Path) -> None:
    outcomes_of(tmp_path, Nodes())
    results = tmp_path / "into/runs/0002-exact" / RESULTS
    results.write_text(results.read_text().replace("pass", "fail"))
    with pytest.raises(JournalError, match=r"results.jsonl is not what it was when its run ended"):
        outcomes_of(tmp_path, Nodes())


def test_another_plan_is_another_acceptance(tmp_path: Path) -> None:
    outcomes_of(tmp_path, Nodes())
    with pytest.raises(JournalError, match="or another --into"):
        outcomes_of(tmp_path, Nodes(), text=f"{STAGES}[errors]\nslower = 0.1\n")


def test_a_run_that_breaks_ends_the_acceptance_with_its_words(tmp_path: Path) -> None:
    def broken(_words: object, folder: Path, _lock: int) -> int:
        (folder / "output.txt").write_text("clusterproof: no such cluster\n")
        (folder / EXIT).write_text("4\n")
        return 4

    made = acceptance(tmp_path, Nodes())
    made.launch = broken
    with pytest.raises(JournalError, match=r"did not end \(exit code 4\): clusterproof: no such cluster"):
        made.go_on((), lambda _words: None)
    assert json.loads((tmp_path / "into" / FILE).read_text())["schema"] == "clusterproof acceptance 1"
