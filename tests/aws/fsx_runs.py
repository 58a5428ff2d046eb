"""Runs of the FSx checks over a cluster in moto."""

from __future__ import annotations

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.aws.clusters import NAME
from tests.builders.runs import ROOT, Runs

CHECKS = str(ROOT / "checks" / "storage" / "test_fsx.py")
THROUGHPUT, UTILIZATION, CAPACITY = "storage.fsx_throughput", "storage.fsx_utilization", "storage.fsx_capacity"
ALL = (THROUGHPUT, UTILIZATION, CAPACITY)
FULL = 240e6 * 60  # bytes per minute at the small Lustre file system's full baseline
PASSED = dict.fromkeys(ALL, Verdict.PASS)


def ran(runs: Runs, *arguments: str) -> dict[str, Result]:
    """The results of the FSx checks over the cluster, by check."""
    runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS, *arguments)
    return {result.check: result for result in runs.results}


def verdicts(results: dict[str, Result]) -> dict[str, Verdict]:
    return {check: result.verdict for check, result in results.items()}


def only(check: str, verdict: Verdict) -> dict[str, Verdict]:
    """Expected results in which all checks but one pass."""
    return PASSED | {check: verdict}
