"""What Kubernetes reports about a node's pods, devices and location."""

from __future__ import annotations

from typing import TypeVar

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import NotApplicable
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.field import Field, Reported, integer, optional
from clusterproof.plugins.evidence.kubernetes.facts import PODS, KubernetesNode
from clusterproof.plugins.evidence.kubernetes.facts_pods import KubernetesPod, ResourceSlice
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode
from clusterproof.plugins.evidence.node import Node

T = TypeVar("T")


@record
class NodeOfCluster:
    """A node together with its cluster."""

    node: Node
    cluster: ClusterFacts

    @property
    def name(self) -> str:
        """The node's name in the inventory."""
        return self.node.name

    @property
    def type_name(self) -> str:
        """The instance type, or empty."""
        return self.node.type_name

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of its GPUs."""
        return self.node.gpu_uuids

    @property
    def member(self) -> MemberNode:
        """The inventory's and Kubernetes's description of the node together. Raises Incomplete, NotApplicable."""
        return self.cluster.kubernetes_members[self.node.name]


def pods_on(cluster: ClusterFacts, node: KubernetesNode) -> list[KubernetesPod]:
    """The pods on a node. Raises Incomplete."""
    return cluster.pods_by_node.get(node.name, [])


@record
class _WaitingPods(Reported):
    """Pods that wait for accelerators."""

    left_out = Field(optional(integer), "waiting_left_out")  # that were not read; None in older recordings


_waiting_pods = collected_as(PODS, _WaitingPods)


def waiting_pods_left_out(cluster: ClusterFacts) -> int:
    """How many more pods wait for accelerators than were read. Raises Incomplete."""
    return _waiting_pods.of(cluster).left_out or 0


def slices_of(cluster: ClusterFacts, node: KubernetesNode, word: str) -> list[ResourceSlice]:
    """The latest resource slices of a node from DRA drivers whose name contains a word. Raises Incomplete."""
    offered = [offer for offer in cluster.kubernetes_slices if offer.node == node.name and word in offer.driver]
    newest: dict[str, int] = {}
    for offer in offered:
        newest[offer.pool] = max(offer.generation, newest.get(offer.pool, 0))
    return [offer for offer in offered if offer.generation == newest[offer.pool]]


def zones(cluster: ClusterFacts) -> dict[str, str | None]:
    """The availability zone of each node. Raises Incomplete, and NotApplicable if no label shows one."""
    zone_of = {name: node.zone or None for name, node in _listed(cluster).items()}
    return _some(zone_of, "no node has a label of its zone")


def network_layers(cluster: ClusterFacts) -> dict[str, tuple[str, ...]]:
    """The network nodes above each node, the topmost first. Raises Incomplete, and NotApplicable if no node has any."""
    layers = {name: node.layers for name, node in _listed(cluster).items() if node.layers}
    return _some(layers, "no node has labels of the network above it")


def ultraservers(cluster: ClusterFacts) -> dict[str, str | None]:
    """The NVLink domain of each node that is in one. Raises Incomplete, and NotApplicable if no node is."""
    domains = {name: node.ultraserver or None for name, node in _listed(cluster).items()}
    return _some(domains, "no node has a label of an UltraServer")


def _listed(cluster: ClusterFacts) -> dict[str, KubernetesNode]:
    return {name: member.known for name, member in cluster.kubernetes_members.items() if member.known}


def _some(labelled: dict[str, T], otherwise: str) -> dict[str, T]:
    if not any(labelled.values()):
        raise NotApplicable(otherwise)
    return labelled
