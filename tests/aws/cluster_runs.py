"""Runs of the cluster's own checks over a cluster in moto."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.runs import ROOT, Runs

CHECKS = str(ROOT / "checks" / "control_plane")
NOT_WELL = (Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE)


def verdicts(runs: Runs) -> dict[str, Verdict]:
    """The verdict of each cluster check."""
    return {result.check: result.verdict for result in runs.results}


def findings_of(runs: Runs) -> dict[str, Verdict]:
    """Verdicts other than pass and not applicable, by name without the subsystem."""
    return {name.partition(".")[2]: verdict for name, verdict in verdicts(runs).items() if verdict in NOT_WELL}


def messages(runs: Runs) -> str:
    return "\n".join(result.message for result in runs.results)
