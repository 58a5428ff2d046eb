"""The nodes that are validated, each as Kubernetes has it and as it tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode
from clusterproof.plugins.evidence.kubernetes.facts_pods import KubernetesPod, ResourceSlice

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.cluster import ClusterFacts
    from clusterproof.plugins.evidence.node import Node


@record
class MemberNode:
    """A node that is validated; `others` are those of its group, as Kubernetes has them."""

    node: Node
    known: KubernetesNode | None
    others: tuple[KubernetesNode, ...]

    @property
    def label(self) -> str:
        """Its name in the inventory."""
        return self.node.name

    @property
    def told(self) -> KubernetesNode:
        """What Kubernetes has of it. Raises Incomplete."""
        if self.known is None:
            raise Incomplete("Kubernetes lists no such node any more", cause="Kubernetes lists no such node")
        return self.known


@record
class NodeOfCluster:
    """A node, and the cluster whose control plane tells of it."""

    node: Node
    cluster: ClusterFacts

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.node.name

    @property
    def type_name(self) -> str:
        """Its instance type, else empty."""
        return self.node.type_name

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of its GPUs."""
        return self.node.gpu_uuids

    @property
    def member(self) -> MemberNode:
        """What both know of it. Raises Incomplete, NotApplicable."""
        return self.cluster.kubernetes_members[self.node.name]


def member_nodes(cluster: ClusterFacts) -> tuple[MemberNode, ...]:
    """Each node of the cluster. Raises Incomplete, and NotApplicable where it is no cluster of Kubernetes'."""
    by_name = {one.name: one for one in cluster.kubernetes_nodes}
    by_instance = {one.instance: one for one in cluster.kubernetes_nodes if one.instance}
    found = {name: by_name.get(name) or by_instance.get(_instance(node)) for name, node in cluster.nodes.items()}
    groups: dict[str, list[KubernetesNode]] = {}
    for name, one in found.items():
        if one:
            groups.setdefault(cluster.nodes[name].target.group, []).append(one)
    return tuple(
        MemberNode(node, found[name], tuple(one for one in groups.get(node.target.group, ()) if one is not found[name]))
        for name, node in cluster.nodes.items()
    )


def _instance(node: Node) -> str:
    """EC2's id of a node that HyperPod's other inventories call by its host; empty where its address tells none."""
    address = node.target.address
    return f"i-{address.rpartition('i-')[2]}" if "i-" in address else ""


def pods_on(cluster: ClusterFacts, node: KubernetesNode) -> list[KubernetesPod]:
    """The pods of a node. Raises Incomplete."""
    return cluster.pods_by_node.get(node.name, [])


def slices_of(cluster: ClusterFacts, node: KubernetesNode, word: str) -> list[ResourceSlice]:
    """What drivers of DRA with a word in their name offer on a node, as of their last generation. Raises Incomplete."""
    found = [one for one in cluster.kubernetes_slices if one.node == node.name and word in one.driver]
    newest: dict[str, int] = {}
    for one in found:
        newest[one.pool] = max(one.generation, newest.get(one.pool, 0))
    return [one for one in found if one.generation == newest[one.pool]]
