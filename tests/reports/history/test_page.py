"""How far back `clusterproof history` looks, it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import write_run


def test_the_page_says_that_it_looks_at_the_last_runs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.sqlite"
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.FAIL):
        write_run(file, PastRun("small", 1_772_000_000.0, 1_772_000_060.0), [Result("gpu.no_xid", "gpu001", verdict)])
    command = ["history", f"--history={file}"]
    assert main([*command, "--runs=2"]) == 0
    page = capsys.readouterr().out
    assert "small: 2 runs, the last of 3, since " in page
    assert "last green run before it: none in 2 runs; --runs N looks further back" in page
    assert main([*command, "--runs=1"]) == 0
    assert "Found by this run; --runs 2 compares it with the one before" in capsys.readouterr().out
