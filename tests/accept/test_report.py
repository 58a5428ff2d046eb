"""The report: each node and line of it, the page without a script, and the version without names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.accept.command import exit_code
from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.redaction import redacted
from clusterproof.plugins.accept.report import Report, report, text
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.simulated import CHECK, NAMES, STAGES, Nodes, acceptance, cluster_of

BOUGHT = f'{STAGES}[bought]\nnodes = 9\ntype = "p5.48xlarge"\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Eight nodes: one slow, one wrongly configured, one not proven, one with a hostile serial, four accepted."""
    nodes = Nodes(
        speed=lambda node, _run: 0.9 if node == "n3" else 1.0,
        verdicts={("inventory", "n5"): Verdict.FAIL, ("exact", "n6"): Verdict.INCOMPLETE},
        serials={"n3": "<script>x</script>"},
    )
    made = acceptance(tmp_path_factory.mktemp("accepted"), nodes, BOUGHT)
    made.go_on((), lambda _words: None)
    return report(made.state, made.ended, made.named, "")


def test_what_was_bought_stands_beside_what_is_there(data: Report) -> None:
    lines = {row["what"]: (row["bought"], row["there"], row["is_met"], row["not_on"]) for row in data["bought"]}
    assert lines["nodes"] == ("9", "8 named, 8 answered", False, "")
    assert lines["nodes that are fit"] == ("9", "5 accepted", False, "n[3,5-6]")
    assert lines["type"] == ("p5.48xlarge", "8 × p5.48xlarge", True, "")


def test_a_screen_says_who_is_not_accepted_and_why(data: Report) -> None:
    screen = text(data)
    assert screen.splitlines()[0] == (
        "ssh:n[1-8]: not accepted: 5 accepted, 1 rejected, 1 to be fixed, 1 open, "
        "2 lines of what was bought not met, 4 stages left out"
    )
    assert "left out    Pairs of nodes: the plan leaves it out" in screen
    assert "rejected    n3 (<script>x</script>): gpu.gpu_gemm: GPU compute speed" in screen
    assert "to be fixed n5 (S-n5): host.memlock: something; expected nothing (runs/0001-inventory)" in screen
    assert "open        n6 (S-n6): gpu.gpu_exact: incomplete: something; expected nothing" in screen


def test_every_run_has_its_command_and_the_digest_of_its_evidence(data: Report) -> None:
    assert all(
        len(row["evidence"]) == 64 and row["command"][:3] == ["clusterproof", "check", "ssh:n[1-8]"]
        for row in data["runs"]
    )
    assert [row["runs"] for row in data["stages"]][:2] == [1, 3]


def test_what_is_not_proven_is_said(data: Report) -> None:
    assert "Pairs of nodes: the plan leaves it out" in data["not_covered"]
    assert "file system: measured on no node" in data["not_covered"]
    assert any("HPL" in line for line in data["not_covered"])


def test_the_page_has_no_script_and_no_address(data: Report) -> None:
    html = page(data)
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "&lt;script&gt;x&lt;/script&gt;" in html
    assert '<p class="verdict fail"><strong>not accepted</strong>' in html
    assert '<svg class="strip"' in html


def bound_of(folder: Path, again: tuple[str, ...], names: tuple[str, ...] = NAMES) -> bool:
    """Whether an accepted cluster's page bounds how often such nodes fail, after six node hours."""
    made = acceptance(folder, Nodes(), STAGES, cluster_of(names))
    made.go_on(again, lambda _words: None)
    of = report(made.state, made.ended, made.named, "")
    assert of["outcome"] == "accepted"
    stages = [{**stage, "node_hours": 2.0} for stage in of["stages"]]
    return "No accepted node failed: of nodes like these at most" in page({**of, "stages": stages})


@pytest.mark.long
def test_how_seldom_such_nodes_fail_is_said_of_all_that_were_bought_and_of_no_selection(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
        assert bound_of(folder, ())
    assert not bound_of(folders[0], ("n3",)), "it was repaired, and may have failed before"
    assert not bound_of(folders[1], (), NAMES[:-1]), "one left"


def test_redacted_nothing_names_a_node_or_a_serial(data: Report) -> None:
    hidden = json.dumps(redacted(data, cluster_of()))
    assert [word for word in ("S-n", "n[1-8]", '"n3"', "<script>") if word in hidden] == []
    assert '"node-3"' in hidden
    assert "Acceptance of X" in page(redacted(data, cluster_of()))


FAILED, OPEN, CONCERN = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN
OF_THE_WHOLE: tuple[
    tuple[dict[str, Verdict], str, int, str], ...
] = (  # result of a pair or the cluster, what was bought, exit code, beginning of the first line
    ({}, "nodes = 8\n", 0, "accepted: 8 accepted, 4 stages left out"),
    ({"n1~n2": FAILED}, "", 1, "not accepted: 6 accepted, 2 open, 1 failed check of pairs or the cluster"),
    ({"c": FAILED}, "", 1, "not accepted: 8 accepted, 1 failed check of pairs or the cluster"),
    ({"c": OPEN}, "", 10, "undecided: 8 accepted, 1 incomplete check of pairs or the cluster"),
    ({"n1~n2": OPEN}, "", 10, "undecided: 6 accepted, 2 open, 1 incomplete check of pairs or the cluster"),
    ({"c": CONCERN}, "", 0, "accepted: 8 accepted, 1 concern"),
    ({}, "nodes = 9\n", 1, "not accepted: 8 accepted, 2 lines of what was bought not met"),
    ({}, 'type = "p5en.48xlarge"\n', 1, "not accepted: 8 accepted, 1 line of what was bought not met"),
    ({}, 'type = "ml.p5.48xlarge"\n', 0, "accepted: 8 accepted"),
    ({}, "expect = { gpus = 8 }\n", 10, "undecided: 8 accepted"),  # nothing counted them
)


@pytest.mark.parametrize(("others", "bought", "code", "first"), OF_THE_WHOLE)
def test_whatever_fails_or_is_missing_keeps_the_cluster_from_being_accepted(
    others: dict[str, Verdict], bought: str, code: int, first: str, tmp_path: Path
) -> None:
    made = acceptance(tmp_path, Nodes(others=others), f"{STAGES}[bought]\n{bought}")
    made.go_on((), lambda _words: None)
    summary = report(made.state, made.ended, made.named, "")
    assert text(summary).startswith(f"ssh:n[1-8]: {first}")
    assert exit_code(summary) == code
    summary["stages"][0]["node_hours"] = 9.0
    assert ('<p class="verdict pass">' in page(summary)) is (code == 0)
    assert ("of nodes like these at most" in page(summary)) is (code == 0)
    assert text(summary).count("something; expected nothing") == sum(1 + ("~" in name) * 2 for name in others)


OF_TYPES: tuple[tuple[dict[str, str], tuple[str, ...], bool | None, int, str], ...] = (
    # firmware's types, silent nodes, whether the type is as bought, exit code, node where it is not
    (dict.fromkeys(NAMES, "p5.48xlarge"), (), True, 0, ""),
    (dict.fromkeys(NAMES, "p5.48xlarge"), ("n3",), None, 10, "n3"),
    (dict.fromkeys(NAMES[:7], "p5.48xlarge"), (), None, 10, "n8"),  # one does not report its type
    ({**dict.fromkeys(NAMES, "p5.48xlarge"), "n4": "p4d.24xlarge"}, ("n3",), False, 1, "n[3-4]"),
)


@pytest.mark.parametrize(("firmware", "silent", "is_met", "code", "not_on"), OF_TYPES)
def test_a_node_that_did_not_answer_is_of_no_other_type_than_was_bought(
    firmware: dict[str, str], silent: tuple[str, ...], is_met: bool | None, code: int, not_on: str, tmp_path: Path
) -> None:
    nodes = Nodes(firmware=firmware, silent={"inventory": silent})
    text_of_plan = 'stages = ["inventory"]\n[bought]\nnodes = 8\ntype = "p5.48xlarge"\n'
    made = acceptance(tmp_path, nodes, text_of_plan, cluster_of(is_typed=False))
    made.go_on((), lambda _words: None)
    summary = report(made.state, made.ended, made.named, "")
    lines = {row["what"]: row for row in summary["bought"]}
    answered = 8 - len(silent)
    assert (lines["nodes"]["there"], lines["nodes"]["is_met"]) == (
        f"8 named, {answered} answered",
        None if silent else True,
    )
    assert (lines["type"]["is_met"], lines["type"]["not_on"], exit_code(summary)) == (is_met, not_on, code)


def test_a_node_that_answered_once_is_what_it_was_where_it_does_not_answer_later(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(silent={"exact": ("n3",)}))
    made.go_on((), lambda _words: None)
    summary = report(made.state, made.ended, made.named, "")
    assert text(summary).splitlines()[1:3] == [
        "  nodes that are fit: bought 8, found 7 accepted (not n3)",
        "open        n3 (S-n3): gpu.gpu_exact: incomplete: something; expected nothing (and 1 more)",
    ]


@pytest.mark.parametrize(
    ("bought", "check", "verdict", "is_met"),
    [
        ("trays = 18", "gpu.rack_trays", CONCERN, False),  # there are fewer
        ("trays = 18", "gpu.rack_trays", OPEN, None),
        ("trays = 18", "gpu.rack_trays", Verdict.PASS, True),
        ("efa = 30", "network.efa_count", CONCERN, True),  # as many as bought, and fewer than the type can have
        ("efa = 32", "network.efa_count", FAILED, False),
    ],
)
def test_fewer_than_were_bought_is_not_what_was_bought(
    bought: str, check: str, verdict: Verdict, is_met: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECK, "inventory", check)
    nodes = Nodes(verdicts={("inventory", node): verdict for node in NAMES})
    made = acceptance(tmp_path, nodes, f'stages = ["inventory"]\n[bought.expect]\n{bought}\n')
    made.go_on((), lambda _words: None)
    lines = report(made.state, made.ended, made.named, "")["bought"]
    assert lines[-1]["what"] == f"{bought.partition(' ')[0]} of each node"
    assert lines[-1]["is_met"] is is_met


def test_a_plan_that_measures_no_node_alone_declares_no_errors(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(), 'stages = ["inventory"]\n')
    made.go_on((), lambda _words: None)
    html = page(report(made.state, made.ended, made.named, ""))
    assert "no errors are declared" in html
    assert "Declared:" not in html


@pytest.mark.parametrize(
    ("floor", "seen"),
    [
        (720, "what is usual of its 8 nodes is 2.8% slower than the floor of the plan; expected less than 1.0%"),
        (690, ""),
    ],
)
def test_what_is_usual_is_what_was_measured_also_below_a_floor(floor: int, seen: str, tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(), f'stages = ["inventory", "speed"]\n[floors]\ngpu_gemm = {floor}\n')
    made.go_on((), lambda _words: None)
    summary = report(made.state, made.ended, made.named, "")
    assert (summary["populations"][0]["usual"], summary["populations"][0]["floor"]) == (700.0, float(floor))
    assert f"usual 700 TFLOP/s, due {floor};" in page(summary)
    assert [seen in other["message"] for other in summary["of_others"]] == ([True] if seen else [])


@pytest.mark.parametrize("floors", ["", "[floors]\ngpu_gemm = 600\n"])
def test_nodes_far_faster_than_most_show_that_most_may_be_slow(floors: str, tmp_path: Path) -> None:
    made = acceptance(
        tmp_path,
        Nodes(speed=lambda node, _run: 0.8 if node < "n6" else 1.0),
        f'stages = ["inventory", "speed"]\n{floors}',
    )
    made.go_on((), lambda _words: None)
    other = report(made.state, made.ended, made.named, "")["of_others"][0]
    assert (other["of"], other["verdict"]) == ("all nodes", "concern")
    assert (
        "n[6-8] are 25.0% faster than is usual of its 8 nodes, so most may be slow; expected less than 5.0%"
        in other["message"]
    )


def test_the_page_says_each_declared_share_in_full(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(), f"{STAGES}[errors]\nslower = 0.025\ngood_rejected = 0.00002\n")
    made.go_on((), lambda _words: None)
    html = page(report(made.state, made.ended, made.named, ""))
    assert "Declared: at most 0.002% of good nodes are rejected." in html
    assert "2.5% slower than its population or more, in all runs or in 80% of them" in html


def test_concerns_of_accepted_nodes_are_on_the_screen(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(verdicts={("inventory", "n5"): Verdict.CONCERN}))
    made.go_on((), lambda _words: None)
    screen = text(report(made.state, made.ended, made.named, ""))
    assert "accepted: 8 accepted, 1 concern" in screen
    assert "concern     n5: host.memlock: something; expected nothing" in screen


@pytest.mark.long
def test_what_failed_of_the_cluster_stands_until_it_is_well_on_all_its_nodes(tmp_path: Path) -> None:
    nodes = Nodes(others={"c": FAILED, "n1~n2": FAILED})
    codes = []
    for again in ((), ("n1",), ("n1",)):
        made = acceptance(tmp_path, nodes)
        made.go_on(again, lambda _words: None)
        summary = report(made.state, made.ended, made.named, "")
        codes.append((exit_code(summary), sorted(row["of"] for row in summary["of_others"])))
        nodes.others = {"c": FAILED if not again else Verdict.PASS, "n1~n2": Verdict.PASS}
    assert codes == [(1, ["c", "n1~n2"]), (1, ["c"]), (0, [])]


def test_redacted_nothing_that_a_node_says_is_left_and_what_accept_says_is(tmp_path: Path) -> None:
    secrets = ("alice", "n[1-3]", "/home/alice", "SN-77", "10.1.2.3", "/fsx/secret", "acme")
    nodes = Nodes(
        speed=lambda node, _run: 0.9 if node == "n3" else 1.0,
        verdicts={("inventory", "n5"): FAILED, ("exact", "n6"): OPEN, ("inventory", "n7"): CONCERN},
        others={"c": FAILED, "n1~n2": OPEN},
        message="alice of acme runs /home/alice/x on n[1-3], n4 (SN-77, 10.1.2.3); expected nobody",
    )
    options = '[options]\nfs-bandwidth = "/fsx/secret"\n'
    made = acceptance(tmp_path, nodes, f"{STAGES}{options}")
    made.go_on((), lambda _words: None)
    summary = report(made.state, made.ended, made.named, f"24 hours are spent; pairs of n[1-8] in {tmp_path}")
    known = json.dumps(summary)
    assert [word for word in secrets if word not in known] == []
    hidden = redacted(summary, cluster_of())
    for output in (json.dumps(hidden), page(hidden), text(hidden)):
        assert [word for word in (*secrets, "n[1-8]", "S-n", str(tmp_path)) if word in output] == []
    by_node = {row["node"]: row["reasons"] for row in hidden["nodes"]}
    assert "10.0% slower than is usual or due" in by_node["node-3"][0]
    assert by_node["node-5"] == ["host.memlock: what it says is left out (runs/0001-inventory)"]
    assert hidden["runs"][1]["command"][3:] == ["--nodes=node-[1-4,6-8]", "-m", "perf", "-k", "exact or dcgm"]
