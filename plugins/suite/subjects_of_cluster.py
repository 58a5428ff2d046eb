"""What a check of the cluster is called for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clusterproof.plugins.core.result import OF_A_MEMBER
from clusterproof.plugins.evidence.fsx.file_systems import file_systems

# Once for the cluster, or for each thing that the cluster has; or for one node of it, as its control plane has that.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[Any], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": file_systems,
    OF_A_MEMBER: lambda owner: (owner.member,),
}
