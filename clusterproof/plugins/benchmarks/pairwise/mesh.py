"""Findings of the RDMA mesh: which device, node, rail, switch or path carries nothing. Pure functions.

A device is named only if two partners that reach others do not reach it. A failure common to many devices of one rail
is attributed to the rail or a switch; one between two sides that each work internally, to the path between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clusterproof.plugins.benchmarks.pairwise import nodes_by_place
from clusterproof.plugins.benchmarks.pairwise.cuts import RailCut, cuts
from clusterproof.plugins.benchmarks.pairwise.paths import (
    RAILS,
    RailFinding,
    between,
    failed_meetings,
    missing_devices,
)
from clusterproof.plugins.benchmarks.pairwise.rails import Rail, numbered, rails_of, why
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind, MeshOfNode, describe_rails
from clusterproof.plugins.evidence.pairs import Measurement

MIN_PARTNERS = 2  # that reach others, before a device that does not reach them is at fault
MIN_NODES = 3  # on a rail before the rail itself can be at fault
MIN_OF_A_SWITCH = 3  # devices of one rail, or nodes, for a switch to be at fault


@dataclass(frozen=True, slots=True)
class MeshLimits:
    """Shares of the pairs and devices of a faulty rail that may still work."""

    rail_share: float
    switch_share: float

    @classmethod
    def of(cls, **shares: float) -> MeshLimits:
        """Parse a journal's. Raises ValueError, TypeError."""
        wrong = next((share for share in shares.values() if not 0 <= share <= 1), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r:.40} is not a share from 0 to 1")
        return cls(**shares)


@dataclass(frozen=True)
class Mesh:
    """The findings of all exchanges of a run. `partners` are, by node, those that any exchange was made with."""

    rails: tuple[Rail, ...]
    findings: tuple[MeshFinding, ...]
    partners: Mapping[str, frozenset[str]]

    def node_finding(self, node: str) -> MeshOfNode:
        """The finding on a node."""
        named = tuple(finding for finding in self.findings if node in finding.nodes)
        return MeshOfNode(len(self.partners.get(node, ())), named)


@dataclass(frozen=True)
class SeenRail:
    """A rail that works for some nodes, with its cuts, and the silent nodes that the failure of a place explains."""

    rail: Rail
    of_places: Mapping[str, frozenset[str]]
    cuts: tuple[RailCut, ...]
    has_places: bool

    @cached_property
    def beyond(self) -> frozenset[str]:
        """Silent nodes that may only be on a different side from most of their partners."""
        silent = self.rail.silent.difference(*self.of_places.values())
        return frozenset(node for node in silent for cut in self.cuts if cut.may_have(self.rail.good_partners(node)))

    @cached_property
    def excused(self) -> frozenset[str]:
        """Silent nodes that a shared component explains."""
        return self.beyond.union(*self.of_places.values())


def mesh_of(measurements: Sequence[Measurement], places: Mapping[str, str], limits: MeshLimits) -> Mesh:
    """Analyse these exchanges."""
    measurements = numbered(measurements)
    rails = rails_of(measurements)
    findings = (*_analysed(rails, places, limits), *missing_devices(measurements), *failed_meetings(measurements))
    tried = [(node, partners) for rail in rails for node, partners in rail.tried.items()]
    partners: dict[str, frozenset[str]] = {}
    for node, others in tried:
        partners[node] = partners.get(node, frozenset()) | others
    return Mesh(tuple(rails), findings, partners)


def _analysed(rails: Sequence[Rail], places: Mapping[str, str], limits: MeshLimits) -> Iterator[MeshFinding]:
    """Starts with what is common to most: a node is not blamed for what that explains."""
    nodes = sorted({node for rail in rails for node in rail.tried})
    dead = [rail for rail in rails if len(rail.tried) >= MIN_NODES and _share(rail) <= limits.rail_share]
    live = [rail for rail in rails if rail not in dead]
    if dead and not live:
        yield _all(dead, nodes)
        return
    seen = [SeenRail(rail, _of_places(rail, places), tuple(cuts(rail, places)), bool(places)) for rail in live]
    silent_nodes = _silent_nodes(seen)
    yield from _dead_rails(dead, live)
    if 2 * len(silent_nodes) > len(nodes) >= MIN_NODES:
        yield _most(live, sorted(silent_nodes))
    elif _is_shared(silent_nodes, nodes, bool(places), limits):
        yield _nodes_together(live, sorted(silent_nodes))
    else:
        yield from (_node(node, live) for node in sorted(silent_nodes))
    yield from _folded(finding for reading in seen for finding in _on_rail(reading, silent_nodes, limits))


def _is_shared(silent: Collection[str], tried: Collection[str], has_places: bool, limits: MeshLimits) -> bool:
    """Whether so many of those tried reach nobody that a shared component is the likelier cause."""
    return len(silent) >= max(MIN_OF_A_SWITCH, limits.switch_share * len(tried) if has_places else 0.0)


def _share(rail: Rail) -> float:
    return rail.arrived / len(rail.links)


def _all(rails: Sequence[Rail], nodes: Sequence[str]) -> MeshFinding:
    """A finding that nothing, or hardly anything, works."""
    made, arrived = sum(len(rail.links) for rail in rails), sum(rail.arrived for rail in rails)
    message = f"{arrived} of {made} exchanges between RDMA devices of {fold(nodes)} brought anything back"
    reason = why(link for rail in rails for link in rail.failed.values())
    return MeshFinding(MeshKind.ALL, tuple(nodes), f"{message}: {reason}", tuple(rail.number for rail in rails))


def _most(rails: Sequence[Rail], nodes: Sequence[str]) -> MeshFinding:
    """A finding that most nodes reach nobody: a shared component is the likelier cause."""
    message = f"no RDMA device of {fold(nodes)}, most of the nodes, reaches any other"
    reason = why(link for rail in rails for link in rail.failed_of(nodes))
    return MeshFinding(MeshKind.ALL, tuple(nodes), f"{message}: {reason}", tuple(rail.number for rail in rails))


def _nodes_together(rails: Sequence[Rail], nodes: Sequence[str]) -> MeshFinding:
    """A finding that several nodes reach nobody while others do: they may share a switch or fabric."""
    numbers = tuple(rail.number for rail in rails if rail.silent & set(nodes))
    devices = f"the RDMA devices of {fold(nodes)} on {describe_rails(numbers)}"
    message = f"none of {devices} reaches anybody, those of other nodes do"
    reason = why(link for rail in rails for link in rail.failed_of(nodes))
    return MeshFinding(MeshKind.SWITCH, tuple(nodes), f"{message}: {reason}", numbers)


def _dead_rails(dead: Sequence[Rail], live: Sequence[Rail]) -> Iterator[MeshFinding]:
    made, arrived = sum(len(rail.links) for rail in live), sum(rail.arrived for rail in live)
    for rail in dead:
        of_all = f"{rail.arrived} of {number_of(len(rail.links), 'pair')} of nodes reach each other"
        message = f"rail {rail.number}: {of_all}, {arrived} of {made} on the others: {why(rail.failed.values())}"
        yield MeshFinding(MeshKind.RAIL, tuple(sorted(rail.tried)), message, (rail.number,))


def _of_places(rail: Rail, places: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The silent nodes of each place where most devices on this rail are silent."""
    silent, tried = nodes_by_place(rail.silent, places), nodes_by_place(rail.tried, places)
    return {
        place: frozenset(nodes)
        for place, nodes in silent.items()
        if place and len(nodes) > 1 and 2 * len(nodes) > len(tried[place])
    }


def _silent_nodes(seen: Sequence[SeenRail]) -> frozenset[str]:
    """Nodes with several devices none of which reaches anybody, unless a shared component explains it."""
    tried: dict[str, list[SeenRail]] = defaultdict(list)
    for reading in seen:
        for node in reading.rail.tried:
            tried[node].append(reading)
    return frozenset(
        node
        for node, rails in tried.items()
        if len(rails) > 1
        and all(node in reading.rail.silent for reading in rails)
        and not all(node in reading.excused for reading in rails)
    )


def _node(node: str, rails: Sequence[Rail]) -> MeshFinding:
    """A finding on a node none of whose devices reaches anybody."""
    own = [rail for rail in rails if node in rail.tried]
    partners = frozenset().union(*(rail.tried[node] for rail in own))
    good = frozenset().union(*(rail.good_partners(node) for rail in own))
    reason = why(link for rail in own for link in rail.failed_of([node]))
    numbers = tuple(rail.number for rail in own)
    message = f"none of its RDMA devices on {describe_rails(numbers)} reaches any of {fold(partners)}"
    if len(good) < MIN_PARTNERS:
        return MeshFinding(MeshKind.OPEN, (node,), f"{message}; {_undecided(good)}: {reason}", numbers)
    return MeshFinding(MeshKind.NODE, (node,), f"{message}, {len(good)} of which reach others: {reason}", numbers)


def _undecided(good: frozenset[str]) -> str:
    if not good:
        return "of those that do not reach each other it cannot be told which is at fault"
    return f"whether it or {fold(good)} is at fault cannot be told, as no other partner reaches anybody"


def _on_rail(seen: SeenRail, silent_nodes: frozenset[str], limits: MeshLimits) -> Iterator[RailFinding]:
    """What is found on one rail that works for others: switches, devices, sides and paths."""
    rail = seen.rail
    for place, nodes in seen.of_places.items():
        if nodes - silent_nodes:
            yield _switch(rail, nodes - silent_nodes, f" ({place})")
    for node in sorted(seen.beyond - silent_nodes):
        message = f"its device on {RAILS} reaches none of {fold(rail.tried[node])}, with too few of each side of a cut"
        yield RailFinding(MeshKind.OPEN, (node,), message, rail.number, why(rail.failed_of([node])))
    left = rail.silent - silent_nodes - seen.excused
    if _is_shared(left, rail.tried, seen.has_places, limits):
        yield _switch(rail, left, "")
    else:
        for node in sorted(left):
            yield _device(rail, node)
    yield from between(rail, seen.cuts)
    for pair, link in rail.links.items():
        if link.has_arrived and link.has_failed:
            message = (
                f"{pair.a} and {pair.b} failed to reach each other once on {RAILS}, and did when it was tried again"
            )
            yield RailFinding(MeshKind.ONCE, pair.nodes, message, rail.number, why([link]))


def _switch(rail: Rail, nodes: Iterable[str], where: str) -> RailFinding:
    known = tuple(sorted(nodes))
    message = f"{RAILS}: the devices of {fold(known)}{where} reach nobody, those of other nodes do"
    return RailFinding(MeshKind.SWITCH, known, message, rail.number, why(rail.failed_of(known)))


def _device(rail: Rail, node: str) -> RailFinding:
    """A device that reaches nobody, where most others of the rail do."""
    good, reason = rail.good_partners(node), why(rail.failed_of([node]))
    partners = fold(rail.tried[node])
    if len(good) < MIN_PARTNERS:
        message = f"its device on {RAILS} reaches none of {partners}; {_undecided(good)}"
        return RailFinding(MeshKind.OPEN, (node,), message, rail.number, reason)
    message = (
        f"{rail.device(node)} (rail {rail.number}) reaches none of {partners}, {len(good)} of which reach others on it"
    )
    return RailFinding(MeshKind.DEVICE, (node,), message, rail.number, reason)


def _folded(findings: Iterable[RailFinding]) -> Iterator[MeshFinding]:
    """The same findings on several rails, as one finding."""
    by_message: dict[tuple[MeshKind, tuple[str, ...], str], list[RailFinding]] = defaultdict(list)
    for finding in findings:
        by_message[finding.kind, finding.nodes, finding.message].append(finding)
    for (kind, nodes, message), same in by_message.items():
        numbers = tuple(finding.rail for finding in same)
        links = tuple(dict.fromkeys(link for finding in same for link in finding.links))
        yield MeshFinding(
            kind, nodes, f"{message.replace(RAILS, describe_rails(numbers))}: {same[0].why}", numbers, links
        )
