"""Where the nodes of a run stand."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import is_of_aws, is_of_kubernetes
from clusterproof.plugins.suite.state import CLUSTER, cluster_of
from clusterproof.reports.topology import Topology, topology


def topology_of(config: pytest.Config) -> Topology | None:
    """What a run knows of it, None where its cluster is neither AWS's nor Kubernetes'."""
    cluster = config.stash[CLUSTER]
    return topology(cluster_of(config)) if is_of_aws(cluster) or is_of_kubernetes(cluster) else None
