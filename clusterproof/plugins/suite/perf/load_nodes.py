"""A run's second pass over its nodes, as a person sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from clusterproof.plugins.benchmarks.load.asking import load, rounds
from clusterproof.plugins.benchmarks.load.options import SECONDS, LoadOptions
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.suite.perf.load_options import load_options
from clusterproof.plugins.suite.terminal import progress
from clusterproof.plugins.transport import Connection, Limits


def load_nodes(
    config: pytest.Config,
    cluster: Cluster,
    connection: Connection,
    limits: Limits,
    collectors: frozenset[str],
    answered: Mapping[str, NodeEvidence],
    keep: Callable[[NodeEvidence], None],
) -> None:
    """Load the nodes that answered, and hand all that each then reports to `keep`."""
    options = load_options(config.option)
    reached = sum(not evidence.unreached for evidence in answered.values())
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reached:
        reporter.write_line(f"cluster: {in_words(collectors, options, reached)}")
    with progress(config, cluster, "loading the nodes") as shown:

        def note(evidence: NodeEvidence) -> None:
            keep(evidence)
            shown(evidence)

        load(cluster, connection, collectors, options, limits, answered, note)


def in_words(collectors: frozenset[str], options: LoadOptions, nodes: int) -> str:
    """What will be done, and how long it takes at most: `loading 8 nodes (dcgm_diag, gpu_gemm), at most 18 min`."""
    whole_s = sum(options.whole_s(part) for part, _ in rounds(collectors, range(nodes), options.fs_at_once))
    names = ", ".join(collector for collector in SECONDS if collector in collectors)
    return f"loading {number_of(nodes, 'node')} ({names}), at most {whole_s / 60:.0f} min"
