"""One output in a capture hides nothing that Slurm lists in another, and applies to no other node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.captures import NoCaptureError, several
from clusterproof.plugins.captures.collection import read_layout
from clusterproof.plugins.captures.outputs import of_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.slurm import parse_sinfo as sinfo
from clusterproof.plugins.evidence.slurm.facts import SlurmNodes
from tests.captures.captured import ILL, output_of, written, xids
from tests.captures.slurm_lists import (
    IN_SLURM,
    REASONS,
    RECORDS,
    SINFO,
    WITHOUT_PROMPT,
    messages_about,
    not_a_row,
    results,
    verdicts_of,
)

PASS, FAIL, INCOMPLETE = Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE
OF_JOBS = "NODELIST STATE\ngpu006 RUNNING\n"
BETWEEN = "NODELIST REASON STATE\ngpu003 bad GPU down\n"
REFUSED = {
    OF_JOBS: "sinfo: sinfo's table has the state RUNNING, which is no state of a node",
    BETWEEN: "sinfo: sinfo's table has REASON between other columns: print it as the last",
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("prompt", ["", "\n", '$ squeue -o "%N %T"\n', "$ sinfo -T\n"])
@pytest.mark.parametrize(
    ("listed", "out"), [(SINFO, ["gpu002", "gpu004", "gpu009"]), (WITHOUT_PROMPT, ["gpu002", "gpu004", "gpu009"]),
                        (RECORDS, ["gpu002", "gpu004"])],
)  # fmt: skip
def test_a_table_that_is_refused_hides_no_other(
    listed: str, out: list[str], prompt: str, refused: str, tmp_path: Path
) -> None:
    for text in (listed + prompt + refused, (prompt + refused).lstrip() + listed):
        verdicts = verdicts_of(IN_SLURM, text, tmp_path)
        assert [name for name, verdict in verdicts.items() if verdict is FAIL] == out
        assert messages_about(tmp_path / "x.txt") == [f"capture: x.txt: {REFUSED[refused]}"]


@pytest.mark.parametrize("refused", REFUSED)
def test_nor_in_a_nodes_own_file(refused: str, tmp_path: Path) -> None:
    path = written(tmp_path, **{"gpu002.txt": f"{ILL}$ sinfo\n{WITHOUT_PROMPT}{refused}"}) / "gpu002.txt"
    assert verdicts_of(IN_SLURM, path.read_text(), tmp_path, "gpu002.txt") == {"gpu002": FAIL}
    assert xids(path) == {"gpu002": FAIL}
    *_, message = messages_about(path)
    assert message == f"capture: gpu002.txt: {REFUSED[refused]}"


ODD = "gpu[004,006 down*"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("NODELIST STATE\ngpu001 idle\ngpu[002-004] frobbed\n", "gpu[002-004] frobbed"),
        (f"NODELIST STATE\ngpu001 idle\n{ODD}\n", ODD),
        (f"NODELIST STATE\ngpu001 idle\n{ODD}\n\n$ dmesg\n{ILL}", ODD),
        (f"$ dmesg\n{ILL}$ sinfo\nNODELIST STATE\ngpu001 idle\n{ODD}\n", ODD),
        ("NODELIST STATE\ngpu001 idle\n\ngpu002 drained\n", "gpu002 drained"),
        (f"{REASONS}\nbad GPU  root  2024-01-26T15:12:23 gpu003\n", "bad GPU  root  2024-01-26T15:12:23 gpu003"),
    ],
)
def test_a_row_that_is_not_understood_is_named_in_any_file(text: str, row: str, tmp_path: Path) -> None:
    path = written(tmp_path, **{"x.txt": text}) / "x.txt"
    assert messages_about(path) == [f"capture: x.txt: {not_a_row(row)}"]


LIST_OF_ONE = "$ sinfo -R\nREASON USER TIMESTAMP NODELIST\nbad GPU root 2026-01-25T15:12:23 gpu001\n"
RECORD = "$ scontrol show node gpu001\nNodeName=gpu001 CPUTot=8\n   State=DOWN\n   Partitions=gpu\n"


@pytest.mark.parametrize("listed", [LIST_OF_ONE, RECORD, "$ sinfo\nNODELIST STATE\ngpu001 down\ngpu004 frobbed\n"])
def test_a_node_has_no_state_of_another(listed: str, tmp_path: Path) -> None:
    assert verdicts_of(IN_SLURM, listed + f"$ dmesg\n{ILL}", tmp_path, "gpu004.txt") == {"gpu004": INCOMPLETE}
    assert verdicts_of(IN_SLURM, listed, tmp_path, "gpu004.txt") == {"gpu001": FAIL}
    for name in ("gpu004", "gpu005"):
        (tmp_path / "nodes" / name).mkdir(parents=True)
        (tmp_path / "nodes" / name / "slurm.txt").write_text(listed)
    verdicts = {name: result.verdict for name, result in results(IN_SLURM, tmp_path / "nodes").items()}
    assert verdicts == {"gpu004": INCOMPLETE, "gpu005": INCOMPLETE}


def test_the_only_record_beside_other_outputs_is_of_a_file_that_names_no_node(tmp_path: Path) -> None:
    assert verdicts_of(IN_SLURM, RECORD + f"$ dmesg\n{ILL}", tmp_path) == {"x": FAIL}


def test_nodes_out_of_use_are_named_where_the_list_stands_beside_another_output(tmp_path: Path) -> None:
    path = written(tmp_path, **{"x.txt": f"$ date\nSun Nov 29 07:36:36 UTC 2026\n{SINFO}"}) / "x.txt"
    (result,) = results(IN_SLURM, path).values()
    assert result.message.startswith("Slurm lists 5 nodes (out of use: gpu[002,004,009]), and x is not among them")


MANY = "".join(f"$ sinfo\nNODELIST STATE REASON\ng[1-40] down {number}\n" for number in range(3))
LONG = "$ sinfo -N\nNODELIST STATE\n" + "".join(f"g{number} idle\n" for number in range(51))


@pytest.mark.parametrize(("listed", "most"), [(MANY, "has more than 100 records"), (LONG, "lists more than 50 nodes")])
def test_too_many_nodes_hide_nothing_beside_them(
    listed: str, most: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(several, "MAX_PARTS", 100)
    monkeypatch.setattr(several, "MAX_NODES", 50)
    path = written(tmp_path, **{"gpu0004.txt": f"{listed}$ dmesg\n{ILL}"}) / "gpu0004.txt"
    assert xids(path) == {"gpu0004": FAIL}
    path.write_text(listed)
    with pytest.raises(NoCaptureError, match=f"a file {most}"):
        read_layout(path)


@pytest.mark.parametrize(("state", "expanded", "why"), [
    ("idle", ["g[1-99999]"], "sinfo's rows name nodes 250,000 times and more"),
    ("frob", [], "sinfo's table has the state FROB, which is no state of a node"),
])  # fmt: skip
def test_rows_are_expanded_once_and_counted_and_those_of_unknown_states_not_at_all(
    state: str, expanded: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def expand(text: str) -> tuple[str, ...]:
        texts.append(text)
        return ("g",) * 100_000

    monkeypatch.setattr(sinfo, "expand", expand)
    table = sinfo.table_in("NODELIST STATE\n" + f"g[1-99999] {state}\n" * 20)
    assert texts == expanded
    assert table.refused.startswith(why)


def test_the_last_lists_of_a_loop_are_read_and_the_others_named() -> None:
    text = "".join(f"$ date\n$ sinfo\nNODELIST STATE REASON\ng[1-3] drain {number}\n" for number in range(5))
    forms = [replace(form, most=8) for form in slurm.FORMS]
    parts, problems = of_text(f"{text}$ sinfo\nNODELIST STATE\ng1 idle\n", forms)
    assert problems == ["sinfo: 6 outputs, of which the last 3 were read"]
    assert SlurmNodes(slurm.latest((part.rank, part.value) for part in parts)).named("g1").state == "IDLE"
    assert of_text(text, slurm.FORMS)[1] == []


@pytest.mark.parametrize("drained", [3, 99])
def test_each_of_very_many_short_lists_is_read(drained: int, tmp_path: Path) -> None:
    text = "".join(
        f"$ sinfo\nNODELIST STATE\ng{number} {'drng' if number == drained else 'idle'}\n" for number in range(100)
    )
    path = written(tmp_path, **{f"g{drained}/x.txt": text})
    assert messages_about(path) == []
    assert results(IN_SLURM, path)[f"g{drained}"].verdict is FAIL


@pytest.mark.parametrize(("first", "second"), [("idle", "down*"), ("down*", "idle")])
@pytest.mark.parametrize("other", ["", "gpu002 mix\n"])
def test_the_later_of_two_lists_counts(first: str, second: str, other: str, tmp_path: Path) -> None:
    text = "".join(f"$ sinfo\nNODELIST STATE\ngpu001 {state}\n{other}" for state in (first, second, first, second))
    assert (verdicts_of(IN_SLURM, text, tmp_path)["gpu001"] is FAIL) == (second == "down*")
    beside = verdicts_of(IN_SLURM, f"{text}$ dmesg\n{ILL}", tmp_path, "gpu001.txt")
    assert (beside["gpu001"] is FAIL) == (second == "down*")


def test_a_list_of_reasons_adds_the_reason_to_the_state(tmp_path: Path) -> None:
    for text in (SINFO + LIST_OF_ONE.replace("gpu001", "gpu002"), LIST_OF_ONE.replace("gpu001", "gpu002") + SINFO):
        node = SlurmNodes(output_of(text)["slurm_node"]).named("gpu002")
        assert (node.state, node.why) == ("DRNG", " (bad GPU, by root at 2026-01-25T15:12:23)")
