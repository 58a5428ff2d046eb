"""What a check of the cluster is called for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fsx.file_systems import file_systems

# Once for the cluster, where that is one of AWS's, or for each thing that the cluster has.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[ClusterFacts], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": file_systems,
}
