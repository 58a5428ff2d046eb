"""What a run found beside what it could not read: the history keeps both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Finding, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history.changes import between, headline, marked, since_last
from clusterproof.reports.history.past import read_before
from tests.reports.history.kept import CONCERN, ECC, FAIL, INCOMPLETE, PASS, add, past, result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


HALF_READ = replace(
    with_findings(result("gpu001", PASS), grouped([Finding(INCOMPLETE, "GPU 3 is lost"), Finding(CONCERN, "warm")])),
    title="ECC",
)


def test_a_failure_stands_where_a_run_measured_only_some_of_the_devices_and_has_a_concern(file: Path) -> None:
    add(file, result("gpu001", FAIL))
    add(file, HALF_READ)
    assert read_before(file, "small")[1] == {(ECC, "gpu001"): FAIL}


@pytest.mark.parametrize("first", [PASS, INCOMPLETE])
def test_a_concern_beside_a_gap_is_new_on_the_terminal_and_in_the_history(first: Verdict, file: Path) -> None:
    add(file, result("gpu001", first))
    now = marked(HALF_READ, read_before(file, "small")[1])
    add(file, HALF_READ)
    for changes in (since_last([now], {(ECC, "gpu001"): first}), between(past(file), 1, 2)):
        assert headline(changes) == "1 finding new on gpu001"
        assert [change.now for change in changes.new] == [CONCERN]
