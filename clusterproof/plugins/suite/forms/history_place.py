"""Which file a run keeps its history in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.reports.history.place import default_path
from clusterproof.reports.runs import RUNS

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options

OF_ANOTHER_TIME = ("replay", "capture", "run")  # connections whose evidence says nothing new of the cluster


def history_of(option: Options, cluster: Cluster, where: Path) -> Path | None:
    """The file that `--history` names, else the one beside the cluster's runs; None where the run keeps none.

    Raises pytest.UsageError where a comparison was asked for, and there is none to compare with.
    """
    if option.history:
        return Path(option.history)
    why_not = _why_not(option, cluster)
    if why_not and option.since_last:
        raise pytest.UsageError(f"--since-last needs --history=FILE: {why_not}")
    return None if why_not else default_path(cluster.name, where / RUNS)


def _why_not(option: Options, cluster: Cluster) -> str:
    if option.no_report:
        return "with --no-report nothing is kept beside the reports"
    if option.report:
        return "with --report this run is not kept beside others"
    if option.redact:
        return "redacted names differ from run to run, and are kept in none"
    if cluster.connection in OF_ANOTHER_TIME:
        return f"what a {cluster.connection} holds is of another time, and is kept in none unless that is asked for"
    return ""
