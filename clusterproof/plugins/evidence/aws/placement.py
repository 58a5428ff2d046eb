"""The locations of a job's nodes: availability zones, network layers, UltraServers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node

Places = Mapping[str, str | None]  # of nodes, by name
MAX_PLACES = 6  # in words; the HTML report has all
_CHIPS = re.compile(r".{1,60}x(\d{1,4})")  # of an UltraServer, in its type: ml.u-p6e-gb200x72


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Nodes that a job may use together: those with accelerators in one instance group."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of a job group over places; the most crowded place first."""

    group: str
    places: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]  # nodes whose place is unknown

    @property
    def description(self) -> str:
        """`workers: 2 nodes in us-west-2a (gpu[1-2]), 1 in us-west-2b (gpu3)`."""
        at_places = [f"{len(nodes)} in {place} ({fold(nodes)})" for place, nodes in self.places.items()]
        more = [f"{len(at_places) - MAX_PLACES} more places"] if len(at_places) > MAX_PLACES else []
        lost = [f"of {len(self.unknown)} nobody knows"] if self.unknown else []
        return f"{self.group or 'the nodes'}: {', '.join([*at_places[:MAX_PLACES], *more, *lost])}"


def known_places(read: Callable[[ClusterFacts], Places], cluster: ClusterFacts) -> Places:
    """The locations that one source reports; empty if it cannot be read."""
    try:
        return read(cluster)
    except (Incomplete, NotApplicable):
        return {}


def job_groups(cluster: ClusterFacts) -> tuple[JobGroup, ...]:
    """The groups of the cluster's nodes with accelerators. Raises NotApplicable if none has any, Incomplete."""
    cluster.require_instances()
    nodes: dict[str, list[str]] = {}
    for member in cluster.members:
        if cluster.catalog.accelerators(member.ec2_type) != 0:
            nodes.setdefault(member.group, []).append(member.name)
    unread = [member.name for member in cluster.members if not member.ec2_type] if cluster.instances else []
    if unread and not nodes:  # each node says itself of which type it is
        raise Incomplete(f"{fold(unread)} did not say of which instance type it is", cause="no instance type reported")
    if not nodes:
        raise NotApplicable("no node of it has accelerators")
    return tuple(JobGroup(group, tuple(names)) for group, names in sorted(nodes.items()))


def spreads(groups: Iterable[JobGroup], place_of: Mapping[str, str | None]) -> list[Spread]:
    """The distribution of each group over the places of its nodes."""
    return [_spread(group, place_of) for group in groups]


def _spread(group: JobGroup, place_of: Mapping[str, str | None]) -> Spread:
    places: dict[str, list[str]] = {}
    for node in group.nodes:
        places.setdefault(place_of.get(node) or "", []).append(node)
    unknown = places.pop("", [])
    ordered = sorted(places.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return Spread(group.name, {place: tuple(nodes) for place, nodes in ordered}, tuple(unknown))


def require_all_known(groups: Iterable[Spread], what: str) -> None:
    """Raise Incomplete if the place of a node is unknown."""
    lost = [node for spread in groups for node in spread.unknown]
    if lost:
        raise Incomplete(f"AWS reports no {what} for {fold(lost)}", cause=f"no {what} reported")


def zones(cluster: ClusterFacts) -> dict[str, str | None]:
    """The availability zone of each node; None if unknown. Raises Incomplete."""
    if cluster.instances:
        return dict(cluster.instances.zones)  # known to instances themselves, without permission to query AWS
    nodes = cluster.node_zones if cluster.is_hyperpod else cluster.ec2_instances
    return {node.hostname: node.zone for node in nodes}


def network_layers(cluster: ClusterFacts) -> dict[str, tuple[str, ...]]:
    """The network nodes above each node, the topmost first; without nodes that have none reported.

    Raises Incomplete, and NotApplicable if none are reported for any node.
    """
    if not cluster.is_hyperpod:
        layers = {instance.hostname: instance.layers for instance in cluster.instance_topologies if instance.layers}
        if not layers:
            raise NotApplicable("EC2 reports no network layers for these instance types")
        return layers
    return _layers_on_nodes(cluster)


def _layers_on_nodes(cluster: ClusterFacts) -> dict[str, tuple[str, ...]]:
    layers: dict[str, tuple[str, ...]] = {}
    reasons: list[Incomplete | NotApplicable] = []
    for group in job_groups(cluster):
        for name in group.nodes:
            try:
                layers[name] = layers_on(cluster.nodes[name])
            except (Incomplete, NotApplicable) as why:
                reasons.append(why)
    if not layers and reasons:
        raise next((why for why in reasons if isinstance(why, Incomplete)), reasons[0])
    return layers


def layers_on(node: Node) -> tuple[str, ...]:
    """The network nodes above a HyperPod node, according to itself. Raises Incomplete, NotApplicable."""
    return node.resource_config.layers


def lowest_layers(layers: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The network node that each node is attached to: the one in the highest-numbered layer."""
    return {node: above[-1] if above else None for node, above in layers.items()}


def ultraservers(cluster: ClusterFacts) -> dict[str, str | None]:
    """The UltraServer of each node in one. Raises Incomplete, and NotApplicable if there are none."""
    if cluster.is_hyperpod:
        ultraserver_of = {node.hostname: node.ultraserver for node in cluster.hyperpod_nodes if node.hostname}
    else:
        ultraserver_of = {instance.hostname: instance.capacity_block for instance in cluster.instance_topologies}
    if not any(ultraserver_of.values()):
        raise NotApplicable("no node of it is part of an UltraServer")
    return dict(ultraserver_of)


def fewest_ultraservers(cluster: ClusterFacts, group: JobGroup, most_in_one: int) -> int:
    """How few UltraServers can hold a group, if one of them has so many of its nodes; 1 if their size is unknown."""
    nodes = len(group.nodes)
    return -(-nodes // (_reported_size(cluster, group) or _size_by_type(cluster, group, most_in_one) or nodes))


def _reported_size(cluster: ClusterFacts, group: JobGroup) -> int | None:
    """The number of nodes in a group's UltraServer, None if its type does not show it."""
    if not cluster.is_hyperpod:
        return None
    kinds = {node.hostname: (node.ultraserver_kind, node.ec2_type) for node in cluster.hyperpod_nodes}
    used = {kinds[node] for node in group.nodes if node in kinds and kinds[node][0]}
    sizes = {_instances_of(kind, cluster.catalog.accelerators(ec2_type)) for kind, ec2_type in used}
    return sizes.pop() if len(sizes) == 1 else None


def _size_by_type(cluster: ClusterFacts, group: JobGroup, least: int) -> int | None:
    """The smallest UltraServer that the instance types of a group are offered in, of at least so many nodes."""
    rows = [cluster.catalog.instance_type(member.ec2_type) for member in cluster.members if member.group == group.name]
    return min((size for row in rows if row for size in row.trays or () if size >= least), default=None)


def _instances_of(kind: str, own: int | None) -> int | None:
    chips = _CHIPS.fullmatch(kind)
    return int(chips[1]) // own or None if chips and own else None
