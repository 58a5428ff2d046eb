"""A finding that lasts may be about other devices than before, which no change of the verdict shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FILE, HistoryError, Standing
from clusterproof.reports.history.changes import between, marked, since_last
from clusterproof.reports.history.past import read_before, standing
from clusterproof.reports.history.words import folded, page
from tests.reports.history.kept import CONCERN, ECC, FAIL, INCOMPLETE, PASS, add, past, result

Parts = tuple[tuple[Verdict, int], ...]  # of one result: a verdict, and the GPU that it is about
STEPS = 50  # of SQLite's virtual machine for each verdict in the file, at most


def of_gpus(*parts: tuple[Verdict, int]) -> Result:
    """A result with these verdicts on GPUs; of a pass none is named."""
    if parts[0][0] is PASS:
        return result("gpu001", PASS)
    findings = [Finding(verdict, f"{verdict.value} it", devices=(f"GPU {gpu}",)) for verdict, gpu in parts]
    return with_findings(result("gpu001", parts[0][0]), grouped(findings))


@pytest.mark.parametrize(
    ("earlier", "now", "kind"),
    [
        ([((FAIL, 3),)], ((FAIL, 5),), "new"),
        ([((FAIL, 3),)], ((FAIL, 3),), "still"),
        ([((FAIL, 3),)], ((FAIL, 3), (FAIL, 5)), "new"),
        ([((FAIL, 3), (FAIL, 5))], ((FAIL, 3),), "still"),
        ([((FAIL, 3),), ((INCOMPLETE, 3),)], ((FAIL, 3),), "still"),
        ([((FAIL, 3),), ((INCOMPLETE, 5),)], ((FAIL, 5),), "new"),
        ([((FAIL, 3),), ((FAIL, 5),)], ((FAIL, 3),), "new"),
        ([((FAIL, 3),), ((FAIL, 5), (INCOMPLETE, 3))], ((FAIL, 3), (FAIL, 5)), "still"),
        ([((FAIL, 3),), ((PASS, 0),)], ((FAIL, 3),), "new"),
        ([((FAIL, 3),)], ((INCOMPLETE, 5),), "still"),
        ([((CONCERN, 3),)], ((CONCERN, 5),), "new"),
        ([((CONCERN, 3),)], ((CONCERN, 5), (INCOMPLETE, 7)), "new"),
        ([((FAIL, 3),)], ((CONCERN, 5), (INCOMPLETE, 3)), "new"),
        ([((FAIL, 3), (CONCERN, 5))], ((CONCERN, 5),), "still"),
        ([((FAIL, 3), (CONCERN, 5))], ((FAIL, 3), (CONCERN, 7)), "new"),
        ([((FAIL, 3),), ((CONCERN, 5), (INCOMPLETE, 3))], ((FAIL, 5),), "new"),
    ],
)
def test_a_finding_of_a_further_device_is_new_in_the_run_and_in_the_history(
    tmp_path: Path, earlier: list[Parts], now: Parts, kind: str
) -> None:
    for parts in earlier:
        add(tmp_path / FILE, of_gpus(*parts))
    _, before = read_before(tmp_path / FILE, "small")
    seen = marked(of_gpus(*now), before)
    assert seen.since_last == kind
    assert [change.node for change in getattr(since_last([seen], before), kind)] == ["gpu001"]
    last = add(tmp_path / FILE, of_gpus(*now))
    changes = between(past(tmp_path / FILE), last.number - 1, last.number)
    assert [change.node for change in getattr(changes, kind)] == ["gpu001"]


def test_the_devices_that_a_finding_has_moved_to_are_named(tmp_path: Path) -> None:
    add(tmp_path / FILE, result("gpu001", FAIL, gpus=[3]))
    last = add(tmp_path / FILE, result("gpu001", FAIL, gpus=[3, 5]))
    changes = between(past(tmp_path / FILE), last.number - 1, last.number)
    assert list(folded("new", changes.new)) == [f"  new   gpu001: fail: {ECC}, now of GPU 5"]
    row = next(line for line in page(past(tmp_path / FILE)) if line.split()[:2] == ["new", "fail"])
    assert "  fail of fewer or other devices  " in row


def test_of_what_got_worse_all_devices_are_meant(tmp_path: Path) -> None:
    add(tmp_path / FILE, result("gpu001", CONCERN, gpus=[3]))
    last = add(tmp_path / FILE, result("gpu001", FAIL, gpus=[3, 5]))
    changes = between(past(tmp_path / FILE), last.number - 1, last.number)
    assert list(folded("new", changes.new)) == [f"  new   gpu001: fail: {ECC}"]


def test_a_file_of_schema_3_names_the_devices_of_what_was_found_and_none_of_what_was_unread(tmp_path: Path) -> None:
    path = tmp_path / FILE
    add(path, result("gpu001", FAIL, gpus=[3]), result("gpu002", INCOMPLETE, gpus=[5]))
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE verdicts DROP COLUMN standing_devices")
        database.execute("PRAGMA user_version = 3")
        database.commit()
    add(path, result("gpu003", PASS))
    assert read_before(path, "small")[1] == {
        (ECC, "gpu001"): Standing(FAIL, {FAIL: ("GPU 3",)}),
        (ECC, "gpu002"): Standing(INCOMPLETE),
    }


@pytest.mark.parametrize("devices", ['["GPU 1"]', '{"pass": ["GPU 1"]}', '{"fail": "GPU 1"}', '{"fail": [1]}', "{"])
def test_devices_that_clusterproof_did_not_write_are_refused_in_one_line(tmp_path: Path, devices: str) -> None:
    path = tmp_path / FILE
    for _ in range(2):
        add(path, result("gpu001", FAIL, gpus=[3]))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE verdicts SET standing_devices = ?", (devices,))
        database.commit()
    with pytest.raises(HistoryError, match="has a row that clusterproof did not write: "):
        read_before(path, "small")
    with pytest.raises(HistoryError, match="has a row that clusterproof did not write: "):
        past(path)


def test_what_is_never_read_costs_no_more_than_what_is(tmp_path: Path) -> None:
    path, runs = tmp_path / FILE, 200
    for _ in range(runs):
        add(path, result("gpu001", INCOMPLETE))
    with closing(sqlite3.connect(path)) as database:
        steps: list[int] = []
        database.set_progress_handler(lambda: steps.append(1), 1)
        assert standing(database, "small")
    assert len(steps) < STEPS * runs


def test_a_result_that_says_what_it_is_is_found_by_it() -> None:
    marks = {"gpu001": "new", "gpu002": "gone", "gpu003": "", "gpu004": "still"}
    changes = since_last(replace(result(node, FAIL), since_last=kind) for node, kind in marks.items())
    assert [[entry.node for entry in of_kind] for _, of_kind in changes.kinds] == [["gpu001"], ["gpu004"], ["gpu002"]]
    assert not since_last([result("gpu001", FAIL)])
