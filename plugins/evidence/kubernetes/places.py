"""Where nodes are placed, by their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from clusterproof.plugins.core.verdict import NotApplicable
from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.cluster import ClusterFacts

T = TypeVar("T")


def zones(cluster: ClusterFacts) -> dict[str, str | None]:
    """The availability zone of each node. Raises Incomplete, and NotApplicable where no label shows any."""
    found = {name: node.zone or None for name, node in _listed(cluster).items()}
    return _some(found, "no node has a label of its zone")


def network_layers(cluster: ClusterFacts) -> dict[str, tuple[str, ...]]:
    """The network nodes above each node, the topmost first. Raises Incomplete, and NotApplicable where none has any."""
    found = {name: node.layers for name, node in _listed(cluster).items() if node.layers}
    return _some(found, "no node has labels of the network above it")


def ultraservers(cluster: ClusterFacts) -> dict[str, str | None]:
    """The domain of NVLink of each node that is in one. Raises Incomplete, and NotApplicable where none is."""
    found = {name: node.ultraserver or None for name, node in _listed(cluster).items()}
    return _some(found, "no node has a label of an UltraServer")


def _listed(cluster: ClusterFacts) -> dict[str, KubernetesNode]:
    return {name: member.known for name, member in cluster.kubernetes_members.items() if member.known}


def _some(found: dict[str, T], otherwise: str) -> dict[str, T]:
    if not any(found.values()):
        raise NotApplicable(otherwise)
    return found
