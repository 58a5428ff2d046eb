"""Where a run's history is."""

from __future__ import annotations

import os
from pathlib import Path

from clusterproof.reports.history.model import FILE, HistoryError
from clusterproof.reports.runs import RUNS, require_own, safe_name


def default_path(cluster: str, runs: Path = Path(RUNS)) -> Path:
    """Where a cluster's history stands beside its reports."""
    return runs / safe_name(cluster) / FILE


def require_own_history(path: Path) -> None:
    """Write it only beside the reports, in folders of one's own. Raises HistoryError."""
    try:
        for folder in (path.parent.parent, path.parent):
            if os.path.lexists(folder):
                require_own(folder)
    except OSError as problem:
        raise HistoryError(f"{problem.filename}: {problem.strerror}") from None
