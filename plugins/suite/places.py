"""Where the nodes of a run stand."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import is_of_aws
from clusterproof.plugins.suite.state import CLUSTER, cluster_of
from clusterproof.reports.topology import Topology, topology


def topology_of(config: pytest.Config) -> Topology | None:
    """What a run knows of it, None where its cluster is none of AWS's."""
    return topology(cluster_of(config)) if is_of_aws(config.stash[CLUSTER]) else None
