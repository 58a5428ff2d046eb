"""How far back `clusterproof history` and the page of a run look: what stood before is known, and the limit is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.document.trend import trend_section
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.command import history
from clusterproof.reports.history.past import read_past
from clusterproof.reports.history.store import write_run
from tests.reports.reported import run_of

PASS, FAIL = Verdict.PASS, Verdict.FAIL


def written(folder: Path, *runs: dict[str, Verdict]) -> Path:
    """A history of runs, each with the verdicts of these checks on one node."""
    file = folder / "history.sqlite"
    for verdicts in runs:
        found = [Result(check, "gpu001", verdict) for check, verdict in verdicts.items()]
        write_run(file, PastRun("small", 1_772_000_000.0, 1_772_000_060.0), found)
    return file


def test_the_page_says_that_it_looks_at_the_last_runs_only(tmp_path: Path) -> None:
    file = written(tmp_path, {"gpu.no_xid": PASS}, {"gpu.no_xid": FAIL}, {"gpu.no_xid": FAIL})
    _, page = history([f"--history={file}", "--runs=2"])
    assert "small: 2 runs, the last of 3, since " in page
    assert "last green run before it: none in 2 runs; --runs N looks further back" in page


@pytest.mark.parametrize(
    ("now", "change"),
    [(FAIL, "nothing has changed; 1 finding still there"), (PASS, "1 finding gone from gpu001")],
)
@pytest.mark.parametrize("runs", [1, 2, 50])
def test_what_the_runs_looked_at_did_not_check_is_as_it_stood_before_them(
    tmp_path: Path, now: Verdict, change: str, runs: int
) -> None:
    others = {"host.word": PASS}
    file = written(tmp_path, {"gpu.gpu_gemm": FAIL}, others, others, {"gpu.gpu_gemm": now})
    _, page = history([f"--history={file}", f"--runs={runs}"])
    assert change in page
    assert "not looked at" not in page


def test_a_finding_that_stood_before_the_runs_of_a_page_is_not_new_there(tmp_path: Path) -> None:
    others = {"host.word": PASS}
    file = written(tmp_path, {"gpu.gpu_gemm": FAIL}, others, {"gpu.gpu_gemm": FAIL})
    section = trend_section(run_of([Result("gpu.gpu_gemm", "gpu001", FAIL)], past=read_past(file, "small", 2)))
    assert section
    assert '<td class="state">for 2 runs</td>' in section.html
