"""The checked nodes, each with its state in Kubernetes and its own evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode
from clusterproof.plugins.evidence.node import Node


@record
class MemberNode:
    """A checked node; `others` are the other nodes of its group, from Kubernetes."""

    node: Node
    known: KubernetesNode | None
    others: tuple[KubernetesNode, ...]

    @property
    def label(self) -> str:
        """Its name in the inventory."""
        return self.node.name

    @property
    def listed(self) -> KubernetesNode:
        """The node as Kubernetes lists it. Raises Incomplete."""
        if self.known is None:
            raise Incomplete("Kubernetes lists no such node any more", cause="Kubernetes lists no such node")
        return self.known


def member_nodes(known: Iterable[KubernetesNode], nodes: Mapping[str, Node]) -> tuple[MemberNode, ...]:
    """Each node of a cluster, with what Kubernetes reports about it."""
    known = tuple(known)
    by_name = {listed.name: listed for listed in known}
    by_instance = {listed.instance: listed for listed in known if listed.instance}
    listed_of = {name: by_name.get(name) or by_instance.get(_instance(node)) for name, node in nodes.items()}
    groups: dict[str, list[KubernetesNode]] = {}
    for name, listed in listed_of.items():
        if listed:
            groups.setdefault(nodes[name].target.group, []).append(listed)
    return tuple(
        MemberNode(
            node,
            listed_of[name],
            tuple(other for other in groups.get(node.target.group, ()) if other is not listed_of[name]),
        )
        for name, node in nodes.items()
    )


def _instance(node: Node) -> str:
    """The EC2 instance id of a HyperPod node, from its address, as other inventories list it by host name; or empty."""
    address = node.target.address
    return f"i-{address.rpartition('i-')[2]}" if "i-" in address else ""
