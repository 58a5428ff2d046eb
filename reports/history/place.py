"""Where a run's history is."""

from __future__ import annotations

from pathlib import Path

from clusterproof.reports.history.model import FILE
from clusterproof.reports.runs import RUNS, safe_name


def default_path(cluster: str, runs: Path = Path(RUNS)) -> Path:
    """Where a cluster's history stands beside its reports."""
    return runs / safe_name(cluster) / FILE
