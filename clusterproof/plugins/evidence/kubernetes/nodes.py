"""The checked nodes, each with its state in Kubernetes and its own evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode
from clusterproof.plugins.evidence.node import Node


@record
class MemberNode:
    """A checked node; `others` are the other nodes of its group, from Kubernetes, and `alike` those of its type.

    In a group of several instance types, only some have EFA, or a known place in the network.
    """

    node: Node
    known: KubernetesNode | None
    others: tuple[KubernetesNode, ...]
    alike: tuple[KubernetesNode, ...]

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

    @property
    def others_in_words(self) -> str:
        """`3 others of its group`: how many are alike."""
        alike = len(self.alike)
        return f"{alike} others of its {'group' if alike == len(self.others) else 'instance type in its group'}"


def member_nodes(known: Iterable[KubernetesNode], nodes: Mapping[str, Node]) -> tuple[MemberNode, ...]:
    """Each node of a cluster, with what Kubernetes reports about it."""
    known = tuple(known)
    by_name = {listed.name: listed for listed in known}
    by_instance = {listed.instance: listed for listed in known if listed.instance}
    listed_of = {name: by_name.get(name) or by_instance.get(_instance(node)) for name, node in nodes.items()}
    groups: dict[str, list[KubernetesNode]] = {}
    types: dict[tuple[str, str], list[KubernetesNode]] = {}
    for name, listed in listed_of.items():
        if listed:
            group = nodes[name].target.group
            groups.setdefault(group, []).append(listed)
            types.setdefault((group, listed.instance_type), []).append(listed)

    def member(name: str, node: Node) -> MemberNode:
        own, group = listed_of[name], node.target.group
        others = tuple(other for other in groups.get(group, ()) if other is not own)
        same_type = types.get((group, own.instance_type), ()) if own else ()
        return MemberNode(node, own, others, tuple(other for other in same_type if other is not own))

    return tuple(member(name, node) for name, node in nodes.items())


def _instance(node: Node) -> str:
    """The EC2 instance id of a HyperPod node, from its address, as other inventories list it by host name; or empty."""
    address = node.target.address
    return f"i-{address.rpartition('i-')[2]}" if "i-" in address else ""
