"""An acceptance's journal and folder: entries that others may have forged, and what a full disk leaves."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.accept import RECORDING, journal, runner
from clusterproof.plugins.accept.command import accept
from clusterproof.plugins.accept.journal import FILE, EndedRun, JournalError, JournalWriter, RepairedNodes
from clusterproof.plugins.core.record import names_of
from tests.accept.simulated import STAGES, Nodes, acceptance

RUN = EndedRun("speed", 0, ("n1",), ("clusterproof", "check"), 0, 5.0, 9.0, 4.0, "runs/0001-speed", "0" * 64)


def written(folder: Path, *lines: str) -> None:
    """A journal with these lines after its first."""
    JournalWriter(folder, "c", "plan").close()
    with (folder / FILE).open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def test_what_was_kept_is_read_as_it_was(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "c", "plan")
    writer.append(RUN)
    writer.append(RepairedNodes(("n1",), 10.0))
    writer.close()
    assert journal.read(tmp_path, "c", "plan") == [RUN, RepairedNodes(("n1",), 10.0)]


def of_run(**changes: object) -> str:
    """A run's line, with some fields changed."""
    values = {name: getattr(RUN, name) for name in names_of(EndedRun)}
    return json.dumps(values | changes)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "[" * 100_000,
        '{"again": "n1", "at": 1.0}',
        '{"again": ["n1"], "at": "now"}',
        of_run(nodes=[["n1"]]),
        of_run(nodes="n1"),
        of_run(began="now"),
        of_run(began=float("nan")),
        of_run(seconds=-1e9),
        of_run(ended=10**400),
        of_run(number=True),
        of_run(folder="../elsewhere"),
        of_run(folder="/etc"),
        of_run(evidence="none"),
        of_run(more=1),
    ],
    ids=range(15),
)
def test_a_line_of_another_form_is_refused_in_one_line(line: str, tmp_path: Path) -> None:
    written(tmp_path, line)
    with pytest.raises(JournalError, match=r"cannot be read .*expected a journal of clusterproof accept") as refused:
        journal.read(tmp_path, "c", "plan")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "into"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(JournalError, match="may be written by others"):
        acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)
    assert not (folder / FILE).exists()


EDITS: dict[str, Callable[[list[str]], list[str]]] = {
    "a run twice": lambda lines: [*lines, lines[-1]],
    "a run twice, in the middle": lambda lines: [*lines[:4], lines[3], *lines[4:]],
    "a run less": lambda lines: [*lines[:3], *lines[4:]],
    "two runs in another order": lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
}


@pytest.mark.long
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_journal_without_each_run_once_in_their_order_is_refused_and_loses_no_evidence(
    edit: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)
    kept = tmp_path / "into" / FILE
    kept.write_text("".join(edit(kept.read_text().splitlines(keepends=True))))
    nodes = Nodes()
    with pytest.raises(JournalError, match=r"was due; expected every run once, in their order$"):
        acceptance(tmp_path, nodes).go_on((), lambda _words: None)
    assert not nodes.runs


def test_evidence_that_was_added_afterwards_is_refused(tmp_path: Path) -> None:
    acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)
    added = tmp_path / "into/runs/0001-inventory" / RECORDING / "nodes/n9.json"
    added.write_text("{}")
    with pytest.raises(JournalError, match=r"n9.json is not what it was when its run ended"):
        acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)


def test_a_link_in_the_place_of_evidence_is_refused(tmp_path: Path) -> None:
    acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)
    results = tmp_path / "into/runs/0002-exact/results.jsonl"
    results.rename(tmp_path / "results.jsonl")
    results.symlink_to(tmp_path / "results.jsonl")
    with pytest.raises(JournalError, match=r"results.jsonl is not what it was"):
        acceptance(tmp_path, Nodes()).go_on((), lambda _words: None)


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(tmp_path, "c", "plan")
    writer.append(RUN)

    class Full:
        """A file on a disk with ten free bytes."""

        def __init__(self) -> None:
            self.left = 10

        def write(self, data: bytes) -> int:
            if not self.left:
                raise OSError(28, "No space left on device")
            self.left = 0
            return os.write(own.fileno(), bytes(data)[:10])

        def __getattr__(self, name: str) -> object:
            return getattr(own, name)

    own = writer._file
    monkeypatch.setattr(writer, "_file", Full())
    with pytest.raises(OSError, match="No space left"):
        writer.append(RUN)
    monkeypatch.undo()
    writer.append(RepairedNodes(("n1",), 10.0))
    writer.close()
    assert journal.read(tmp_path, "c", "plan") == [RUN, RepairedNodes(("n1",), 10.0)]


def test_a_full_disk_is_said_of_the_folder_that_is_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.chdir(tmp_path)
    assert accept(["ssh:n[1-2]"]) == (4, "clusterproof accept: acceptance: No space left on device\n")


def typed(folder: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, str]:
    """`clusterproof accept` of simulated nodes as typed by a user."""
    monkeypatch.setattr(runner, "launched", nodes.launch)
    (folder / "plan.toml").write_text(STAGES)
    arguments = ("ssh:n[1-8]", "--plan", str(folder / "plan.toml"), "--into", str(folder / "into"), *more)
    return accept(arguments)


@pytest.mark.long
def test_who_waits_for_another_acceptance_and_is_interrupted_writes_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(tmp_path, Nodes(), monkeypatch)
    page = (tmp_path / "into/acceptance.html").read_text()

    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupted)
    assert typed(tmp_path, Nodes(), monkeypatch)[0] == 2
    assert (tmp_path / "into/acceptance.html").read_text() == page


@pytest.mark.parametrize(
    ("again", "due"), [((), "the same command again"), (("--again", "n5"), "it again without --again")]
)
def test_who_is_interrupted_is_told_how_to_go_on(
    again: tuple[str, ...], due: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = typed(tmp_path, Nodes(stop_after=0), monkeypatch, *again)
    assert (code, output) == (2, f"clusterproof accept: it was interrupted; run {due} to resume\n")


@pytest.mark.long
def test_a_report_never_says_accepted_where_a_later_run_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed(tmp_path, Nodes(), monkeypatch)[0] == 0

    class Broken(Nodes):
        """Runs that end with an error."""

        def launch(self, _words: object, folder: Path, _lock: int) -> int:
            (folder / "exit").write_text("4\n")
            return 4

    code, output = typed(tmp_path, Broken(), monkeypatch, "--again", "n5")
    assert (code, output.count("\n")) == (4, 1)
    report = json.loads((tmp_path / "into/acceptance.json").read_text())
    assert (report["outcome"], report["summary"]) == ("undecided", {"accepted": 7, "open": 1})
    assert "did not end (exit code 4)" in report["stopped"]


def test_a_report_never_says_accepted_where_a_later_run_could_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(tmp_path, Nodes(), monkeypatch)[0] == 0

    def full(_folder: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "sealed", full)
    expected = f"{tmp_path / 'into'}: No space left on device"
    assert typed(tmp_path, Nodes(), monkeypatch, "--again", "n5") == (4, f"clusterproof accept: {expected}\n")
    report = json.loads((tmp_path / "into/acceptance.json").read_text())
    assert (report["outcome"], report["stopped"]) == ("undecided", expected)


def test_a_folder_that_cannot_be_read_keeps_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(tmp_path, Nodes(), monkeypatch)
    (tmp_path / "into" / FILE).write_text("{}\n")
    assert typed(tmp_path, Nodes(), monkeypatch)[0] == 4
    assert json.loads((tmp_path / "into/acceptance.json").read_text())["outcome"] == "accepted"
