"""Runs of the checks of the cluster itself over a cluster in moto."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.runs import ROOT, Runs

CHECKS = str(ROOT / "checks" / "control_plane")
FOUND = (Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE)


def verdicts(runs: Runs) -> dict[str, Verdict]:
    """The verdict of each check of the cluster."""
    return {result.check: result.verdict for result in runs.results}


def found(runs: Runs) -> dict[str, Verdict]:
    """Those that are neither a pass nor not applicable, by the name without its subsystem."""
    return {name.partition(".")[2]: verdict for name, verdict in verdicts(runs).items() if verdict in FOUND}


def messages(runs: Runs) -> str:
    return "\n".join(result.message for result in runs.results)
