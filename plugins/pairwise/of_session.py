"""A run of pytest's own measurements between nodes: from its options and its evidence to what was measured."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.connection import Connection, Limits
from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.facts.cluster import ClusterFacts
from clusterproof.plugins.facts.pairwise import PairwiseRun
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.pairwise.command_line import pair_options
from clusterproof.plugins.pairwise.measure import FILES, Ways, measure
from clusterproof.plugins.policy.model import NO_POLICY
from clusterproof.plugins.state import CLUSTER, CONTROL_PLANE, EVIDENCE, POLICY, nodes

if TYPE_CHECKING:
    from clusterproof.plugins.redact import Redaction

RUNS = Path("runs")


def measured(
    config: pytest.Config,
    cluster: Cluster,
    connection: Connection,
    limits: Limits,
    redaction: Redaction | None,
    shared: Path | None,
) -> PairwiseRun:
    """Measure, and keep it in the recording or in `runs/`, besides where workers look. Raises pytest.UsageError."""
    options = pair_options(config.option)
    shown = config.stash[CLUSTER]
    folder = _folder(config, shown.name)
    ways = Ways(
        cluster,
        connection,
        limits,
        folder,
        real={one.name: real.name for one, real in zip(shown.targets, cluster.targets, strict=True)},
        text=redaction.text if redaction else str,
        say=_say(config),
    )
    run = measure(options, _facts(config, shown), ways)
    for path in folder.glob(FILES) if shared else ():
        shutil.copy(path, shared / path.name)  # type: ignore[operator]
    return run


def _facts(config: pytest.Config, shown: Cluster) -> ClusterFacts:
    """What is known of the cluster before anything is measured between its nodes."""
    evidence = config.stash[EVIDENCE]
    told = {one.name: evidence.get(one.name) or NodeEvidence(one.name) for one in shown.targets}
    policy = config.stash.get(POLICY, NO_POLICY)
    control_plane = config.stash.get(CONTROL_PLANE, None) or NodeEvidence(shown.name)
    return ClusterFacts(shown, control_plane, nodes(shown, told, "perf", policy), policy)


def _folder(config: pytest.Config, cluster: str) -> Path:
    """The recording; that of the run which is gone on with; else one of this run's own."""
    if config.option.record:
        return Path(config.option.record)
    if config.option.resume:
        resumed = Path(config.option.resume)
        return resumed if resumed.is_dir() else resumed.parent
    name = re.sub(r"[^\w.-]+", "_", cluster) or "cluster"
    return config.invocation_params.dir / RUNS / name / time.strftime("%Y-%m-%dT%H-%M-%S")


def _say(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")

    def say(words: str) -> None:
        if reporter and config.option.verbose >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"cluster: {words}")

    return say
