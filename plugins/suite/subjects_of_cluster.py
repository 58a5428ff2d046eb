"""What a check of the cluster is called for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fsx.file_systems import file_systems
from clusterproof.plugins.evidence.kubernetes.nodes import member_nodes

# Once for the cluster, or for each thing that the cluster has.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[ClusterFacts], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": file_systems,
    "k8s_node": member_nodes,
}
