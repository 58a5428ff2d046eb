"""A finding that lasts may be about other devices than before, which no change of the verdict shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FILE
from clusterproof.reports.history.changes import between, marked, since_last
from clusterproof.reports.history.past import read_before
from clusterproof.reports.history.words import folded, page
from tests.reports.history.kept import CONCERN, ECC, FAIL, INCOMPLETE, PASS, add, past, result


@pytest.mark.parametrize(
    ("earlier", "now", "kind"),
    [
        ([(FAIL, 3)], (FAIL, 5), "new"),
        ([(FAIL, 3)], (FAIL, 3), "still"),
        ([(FAIL, 3), (INCOMPLETE, 3)], (FAIL, 3), "still"),
        ([(FAIL, 3), (INCOMPLETE, 5)], (FAIL, 5), "new"),
        ([(FAIL, 3), (FAIL, 5)], (FAIL, 3), "new"),
        ([(FAIL, 3), (PASS, 0)], (FAIL, 3), "new"),
        ([(FAIL, 3)], (INCOMPLETE, 5), "still"),
        ([(CONCERN, 3)], (CONCERN, 5), "new"),
    ],
)
def test_a_finding_of_another_device_is_new(
    tmp_path: Path, earlier: list[tuple[Verdict, int]], now: tuple[Verdict, int], kind: str
) -> None:
    for verdict, gpu in earlier:
        add(tmp_path / FILE, result("gpu001", verdict, gpus=[gpu]))
    _, before = read_before(tmp_path / FILE, "small")
    verdict, gpu = now
    seen = marked(result("gpu001", verdict, gpus=[gpu]), before)
    assert seen.since_last == kind
    assert [change.node for change in getattr(since_last([seen], before), kind)] == ["gpu001"]
    last = add(tmp_path / FILE, result("gpu001", verdict, gpus=[gpu]))
    assert [change.node for change in getattr(between(past(tmp_path / FILE), last.number - 1, last.number), kind)] == [
        "gpu001"
    ]


def test_the_devices_that_a_finding_has_moved_to_are_named(tmp_path: Path) -> None:
    add(tmp_path / FILE, result("gpu001", FAIL, gpus=[3]))
    last = add(tmp_path / FILE, result("gpu001", FAIL, gpus=[3, 5]))
    changes = between(past(tmp_path / FILE), last.number - 1, last.number)
    assert list(folded("new", changes.new)) == [f"  new   gpu001: fail: {ECC}, now of GPU 5"]
    row = next(line for line in page(past(tmp_path / FILE)) if line.split()[:2] == ["new", "fail"])
    assert "  fail of other devices  " in row
