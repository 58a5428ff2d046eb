"""The nodes that are validated, each as Kubernetes has it and as it tells of itself."""

from __future__ import annotations

from collections.abc import Iterable
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


def member_nodes(cluster: ClusterFacts) -> tuple[MemberNode, ...]:
    """Each node of the cluster. Raises Incomplete, and NotApplicable where it is no cluster of Kubernetes'."""
    told = cluster.kubernetes_nodes
    found = {name: _of(told, name, node.target.address) for name, node in cluster.nodes.items()}
    groups: dict[str, list[KubernetesNode]] = {}
    for name, one in found.items():
        if one:
            groups.setdefault(cluster.nodes[name].target.group, []).append(one)
    return tuple(
        MemberNode(node, found[name], tuple(one for one in groups.get(node.target.group, ()) if one is not found[name]))
        for name, node in cluster.nodes.items()
    )


def _of(told: Iterable[KubernetesNode], name: str, address: str) -> KubernetesNode | None:
    """A node by its name, else by the instance that it is: HyperPod's other inventories name its host."""
    wanted = f"i-{address.rpartition('i-')[2]}" if "i-" in address else ""
    by_name = next((one for one in told if one.name == name), None)
    return by_name or next((one for one in told if wanted and one.instance == wanted), None)


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
