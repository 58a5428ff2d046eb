"""The racks of a run: which nodes are trays of one rack, whatever their groups, and whose IMEX list differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import NotApplicable, Recording
from clusterproof.plugins.evidence.field import reading_of
from clusterproof.plugins.evidence.gpu.facts_rack import CLUSTER, addresses, cluster_of, host_name_of, is_address
from clusterproof.plugins.evidence.group import Group

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


@record
class Racks:
    """The NVLink domains that nodes of a run are in."""

    by_tray: Mapping[str, Group[Node]]
    every: tuple[Group[Node], ...]
    unread: Counter[tuple[str, str]]  # the number of nodes of each group and type in unknown racks

    def unread_like(self, node: Node) -> int:
        """How many such nodes may be in this rack: those of its type, and of its groups those of unknown type."""
        groups = {tray.target.group for tray in self.by_tray.get(node.name, Group([node])).nodes}
        return sum(
            count
            for (group, kind), count in self.unread.items()
            if (kind == node.type_name if kind else group in groups)
        )


def racks_of(run: Group[Node]) -> Racks:
    """Those of a run."""
    return run.once("racks", _racks)


def rack_of(node: Node) -> Group[Node]:
    """The nodes in its fabric cluster; only itself if that is unknown."""
    return racks_of(node.run).by_tray.get(node.name) or Group([node], node.group.catalog)


def _racks(run: Group[Node]) -> Racks:
    trays: dict[str, list[Node]] = defaultdict(list)
    unread: Counter[tuple[str, str]] = Counter()
    for node in run.nodes:
        try:
            with Recording():
                cluster = cluster_of(node)[CLUSTER]
        except NotApplicable:
            continue
        except Exception:  # reported by its own checks
            unread[node.target.group, node.type_name] += 1
            continue
        if cluster:
            trays[cluster].append(node)
    racks = [Group(nodes, run.catalog, is_part=run.is_part) for nodes in trays.values()]
    return Racks({node.name: rack for rack in racks for node in rack.nodes}, tuple(racks), unread)


def called(node: Node, host: str) -> Node | None:
    """The node with this address or host name, preferably in its own rack; None if ambiguous."""
    short = host if is_address(host) else host.partition(".")[0]
    for group in (rack_of(node), node.run):
        by_host = group.once("nodes by address and name", _by_host)
        for name in (host, short):
            if name in by_host:
                return by_host[name]
    return None


def _by_host(group: Group[Node]) -> dict[str, Node | None]:
    """The nodes by their addresses and host names, the inventory's too; None where several have one."""
    by_host: dict[str, Node | None] = {}
    for node in group.nodes:
        with suppress(Exception), Recording():
            name = node.name if is_address(node.name) else node.name.partition(".")[0]
            for host in addresses(node) | {node.name, name, host_name_of(node)}:
                by_host[host] = None if host in by_host else node
    for node in group.nodes:
        with suppress(Exception), Recording():  # others than of IPv4 are only known by its IMEX
            by_host.setdefault(node.imex_self.host, node)
    return by_host


def imex_list(node: Node) -> tuple[str, ...]:
    """The trays in one's nodes_config.cfg, by node name, else as listed.

    Empty if unknown, which its own check reports.
    """
    lists = node.run.once("IMEX lists", lambda run: {tray.name: _list_of(tray) for tray in run.nodes})
    return lists[node.name] if node.name in lists else _list_of(node)


def _list_of(node: Node) -> tuple[str, ...]:
    return tuple(tray.name if (tray := called(node, host)) else host for host in _hosts_of(node))


def _hosts_of(node: Node) -> tuple[str, ...]:
    hosts: tuple[str, ...] = reading_of(node, "imex.nodes", ())
    return hosts


def listed_with(node: Node) -> Mapping[str, Node]:
    """The other trays that its nodes_config.cfg names, by their names."""
    trays = (called(node, host) for host in dict.fromkeys(_hosts_of(node)))
    return {tray.name: tray for tray in trays if tray and tray.name != node.name}


def listing(node: Node) -> Mapping[str, Node]:
    """The other trays whose nodes_config.cfg names it, by their names."""
    return dict(node.run.once("who lists a tray", _listing).get(node.name, ()))


def _listing(run: Group[Node]) -> dict[str, list[tuple[str, Node]]]:
    by_listed: dict[str, list[tuple[str, Node]]] = defaultdict(list)
    for tray in run.nodes:
        with suppress(Exception), Recording():
            for listed in listed_with(tray):
                by_listed[listed].append((tray.name, tray))
    return by_listed


def is_most(node: Node, unlike: int, compared: int) -> bool:
    """Whether those that differ from a tray are more than half of all, including it."""
    return unlike > (compared + 1) * node.threshold("group.majority")


def compared_lists(node: Node) -> dict[str, tuple[str, ...]]:
    """The lists that a tray's is compared with: those of trays in it, and those that contain this tray."""
    trays = {**listed_with(node), **listing(node)}
    return {name: nodes for name, tray in trays.items() if (nodes := imex_list(tray))}


def has_another_list(node: Node) -> bool:
    """Whether most trays in a tray's list, or with it in theirs, share a different list that contains this tray.

    If all trays of its list have the same list, they are a job's. Raises Incomplete.
    """
    own, lists = imex_list(node), compared_lists(node)
    with_it = [lists[name] for name in listed_with(node) if name in lists]
    if with_it and all(nodes == own for nodes in with_it):
        return False
    against = Counter(nodes for nodes in lists.values() if nodes != own)
    return any(is_most(node, count, len(lists)) and names(node, nodes) for nodes, count in against.items())


def at_fault_of(run: Group[Node]) -> frozenset[str]:
    """The trays whose own check reports that their list is wrong."""
    at_fault = set()
    for node in run.nodes:
        with suppress(Exception), Recording():
            at_fault |= {node.name} if imex_list(node) and has_another_list(node) else set()
    return frozenset(at_fault)


def names(node: Node, nodes: tuple[str, ...]) -> bool:
    """Whether a list contains this tray. Raises Incomplete if its addresses are unknown, and IMEX names none."""
    return node.name in nodes or (not addresses(node) and node.imex_self.host in nodes)
