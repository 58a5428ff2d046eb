"""A run's measurements, from its options and evidence: nodes under load, and between nodes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from clusterproof.plugins.benchmarks.load.asking import load, rounds
from clusterproof.plugins.benchmarks.load.options import SECONDS, LoadOptions
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.redaction import without_names
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.options.argv import command_of
from clusterproof.plugins.suite.perf.load_options import load_options
from clusterproof.plugins.suite.perf.pairs_measure import MeasuringSetup, measure, replayed
from clusterproof.plugins.suite.perf.pairs_options import pair_options
from clusterproof.plugins.suite.state import CLUSTER, CONTROL_PLANE, EVIDENCE, catalog_of, policy_of
from clusterproof.plugins.suite.terminal import progress
from clusterproof.plugins.transport import Connection, Limits, Unusable
from clusterproof.plugins.transport.gather import replay
from clusterproof.reports.run_folder import folder_of_its_own

if TYPE_CHECKING:
    from clusterproof.plugins.redaction.redact import Redaction


def load_nodes(
    config: pytest.Config,
    cluster: Cluster,
    connection: Connection,
    limits: Limits,
    collectors: frozenset[str],
    answered: Mapping[str, NodeEvidence],
    keep: Callable[[NodeEvidence], None],
) -> None:
    """Put load on the nodes that answered, and pass what each then reports to `keep`."""
    options = load_options(config.option)
    reached = sum(not evidence.unreached for evidence in answered.values())
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reached:
        reporter.write_line(f"cluster: {announcement(collectors, options, reached)}")
    with progress(config, cluster, "loading the nodes") as shown:

        def note(evidence: NodeEvidence) -> None:
            keep(evidence)
            shown(evidence)

        load(cluster, connection, collectors, options, limits, answered, note)


def announcement(collectors: frozenset[str], options: LoadOptions, nodes: int) -> str:
    """What will be done, and the maximum duration: `loading 8 nodes (dcgm_diag, gpu_gemm), at most 18 min`."""
    whole_s = sum(options.whole_s(part) for part, _ in rounds(collectors, range(nodes), options.fs_at_once))
    names = ", ".join(collector for collector in SECONDS if collector in collectors)
    return f"loading {number_of(nodes, 'node')} ({names}), at most {whole_s / 60:.0f} min"


class WithFolder(Protocol):
    """Something that stores a run's reports."""

    def made_folder(self) -> Path:
        """Create the folder of this run's reports if needed. Raises OSError."""


def measured(
    config: pytest.Config,
    cluster: Cluster,
    connection: Connection,
    limits: Limits,
    redaction: Redaction | None,
) -> PairwiseRun:
    """Measure, and store it in the recording, or with the run's reports. Raises pytest.UsageError."""
    options = pair_options(config.option)
    shown = config.stash[CLUSTER]
    try:
        folder = _folder(config, shown.name)
    except OSError as problem:
        why = f"{problem.filename or 'runs'}: {problem.strerror or problem}"
        return PairwiseRun(why_not=f"no place for the measurements: {why}; expected one, as --record DIR")
    real = {target.name: real.name for target, real in zip(shown.targets, cluster.targets, strict=True)}
    text = redaction.text if redaction else str
    connection = connection.under_load()
    try:
        unavailable = connection.unavailable(cluster.targets, limits.settings)
    except Unusable as problem:
        return PairwiseRun(why_not=text(f"nothing could be measured between nodes: {problem}"))
    setup = MeasuringSetup(
        cluster,
        connection,
        limits,
        folder,
        real=real,
        unavailable={name: text(unavailable[node]) for name, node in real.items() if node in unavailable},
        text=text,
        say=_say(config),
        again=_again(config, folder),
    )
    return measure(options, _facts(config, shown), setup)


def read_again(config: pytest.Config, cluster: Cluster, redaction: Redaction | None, folder: Path) -> PairwiseRun:
    """The pair measurements of a recording, under displayed names. Raises pytest.UsageError."""
    run = replayed(folder, catalog_of(config), config.option.baseline)
    if redaction is None:
        return run
    for evidence in replay(folder, cluster).values():
        redaction.learn(evidence)
    targets = zip(cluster.targets, redaction.cluster.targets, strict=True)
    return without_names(run, {real.name: shown.name for real, shown in targets}, redaction.text)


def _facts(config: pytest.Config, shown: Cluster) -> ClusterFacts:
    """What is known about the cluster before anything is measured between its nodes."""
    evidence = config.stash[EVIDENCE]
    evidence_by_node = {target.name: evidence.get(target.name) or NodeEvidence(target.name) for target in shown.targets}
    policy = policy_of(config)
    control_plane = config.stash.get(CONTROL_PLANE, None) or NodeEvidence(shown.name)
    return ClusterFacts(shown, control_plane, nodes(shown, evidence_by_node, "perf", policy), policy)


def _folder(config: pytest.Config, cluster: str) -> Path:
    """The recording; the continued run's folder; else the folder of this run's reports. Raises OSError."""
    if config.option.record:
        return Path(config.option.record)
    if config.option.resume:
        resumed = Path(config.option.resume)
        return resumed if resumed.is_dir() else resumed.parent
    reporting: WithFolder | None = config.pluginmanager.get_plugin("clusterproof-reporting")
    if reporting:
        return reporting.made_folder()
    return folder_of_its_own(config.invocation_params.dir, cluster, datetime.now(timezone.utc))


def _again(config: pytest.Config, folder: Path) -> str:
    """The command that continues the measurements in that folder."""
    chosen = ["-k", config.option.keyword] if config.option.keyword else []
    return shlex.join([*command_of(config), *chosen, f"--resume={folder}"])


def _say(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")

    def say(message: str) -> None:
        if reporter and config.option.verbose >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"cluster: {message}")

    return say
