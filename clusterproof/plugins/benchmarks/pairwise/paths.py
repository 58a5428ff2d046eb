"""Links of a rail that carry nothing although both devices reach others; and devices without a partner. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterproof.plugins.benchmarks.pairwise.cuts import RailCut
from clusterproof.plugins.benchmarks.pairwise.rails import Link, Rail, why
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind, describe_rails
from clusterproof.plugins.evidence.pairs import Measurement, Pair

MIN_IN_COMMON = 2  # failing paths with one device in common
MAX_LISTED = 2  # devices of a node that are listed
RAILS = "{rails}"  # placeholder in texts for one or several rails


@dataclass(frozen=True, slots=True)
class RailFinding:
    """A finding on one rail; alike ones on several rails are joined."""

    kind: MeshKind
    nodes: tuple[str, ...]
    message: str
    rail: int
    why: str
    links: tuple[tuple[str, str], ...] = ()


def between(rail: Rail, cuts_of_rail: Sequence[RailCut]) -> Iterator[RailFinding]:
    """What these cuts account for, and what is left."""
    for cut in cuts_of_rail:
        yield _cut(rail, cut)
    across = {pair for cut in cuts_of_rail for pair in cut.across}
    yield from _paths(
        rail, {pair: link for pair, link in rail.failed.items() if pair not in across and not rail.silent & set(pair)}
    )


def _paths(rail: Rail, failed: Mapping[Pair, Link]) -> Iterator[RailFinding]:
    """What is left: a device that several of these have in common, else the path between two."""
    left = dict(failed)
    while left:
        node, count = Counter(node for pair in sorted(left) for node in pair).most_common(1)[0]
        if count < MIN_IN_COMMON:
            break
        own = {pair: left.pop(pair) for pair in list(left) if node in pair}
        partners, reached = fold(pair.other(node) for pair in own), fold(rail.reached[node])
        message = (
            f"{rail.device(node)} (rail {rail.number}) reaches {reached}, and not {partners}, which reach others on it"
        )
        yield RailFinding(MeshKind.PARTLY, (node,), message, rail.number, why(own.values()))
    for pair, link in left.items():
        message = f"{pair.a} and {pair.b} do not reach each other on {RAILS}, though both reach others there"
        again = ((pair.a, pair.b),) if len(link.problems) == 1 else ()
        devices = " to ".join(link.devices[node] for node in pair)
        yield RailFinding(MeshKind.PATH, pair.nodes, message, rail.number, f"{devices}: {why([link])}", links=again)


def _cut(rail: Rail, cut: RailCut) -> RailFinding:
    failed = [rail.links[pair] for pair in cut.across]
    nodes = tuple(sorted(frozenset().union(*cut.sides)))
    sides = " and ".join(sorted(map(fold, cut.sides)))
    message = f"cut on {RAILS}: {sides} do not reach each other, though each reaches others"
    return RailFinding(
        MeshKind.CUT, nodes, message, rail.number, f"none of {number_of(len(failed), 'pair')} across, {why(failed)}"
    )


def missing_devices(measurements: Sequence[Measurement]) -> Iterator[MeshFinding]:
    """For each node, rails without a device where its partners have one, or with one that nobody else has."""
    for node, rails in _without_partner(measurements).items():
        numbers = tuple(sorted(rails))
        message = "; ".join(f"rail {number}: {rails[number]}" for number in numbers[:MAX_LISTED])
        more = f"; and so on {describe_rails(numbers[MAX_LISTED:])}" if len(numbers) > MAX_LISTED else ""
        yield MeshFinding(MeshKind.GAP, (node,), f"{message}{more}", numbers)


def _without_partner(measurements: Sequence[Measurement]) -> Mapping[str, Mapping[int, str]]:
    """What was seen on rails on which a node exchanged nothing because a device is missing at either end."""
    seen: dict[str, dict[int, str]] = {}
    exchanged: set[tuple[str, int]] = set()
    for measurement in measurements:
        a, b = measurement.pair
        for exchange in measurement.reading.exchanges:
            if exchange.has_devices:
                exchanged |= {(a, exchange.rail), (b, exchange.rail)}
                continue
            for node, own, other, partner in ((a, exchange.a, exchange.b, b), (b, exchange.b, exchange.a, a)):
                reason = (
                    f"{own} was tried with nobody: no partner has" if own else f"no device where {partner} has {other}"
                )
                seen.setdefault(node, {}).setdefault(exchange.rail, reason)
    return {
        node: left
        for node, rails in seen.items()
        if (left := {rail: reason for rail, reason in rails.items() if (node, rail) not in exchanged})
    }


def failed_meetings(measurements: Sequence[Measurement]) -> Iterator[MeshFinding]:
    """For each node, the partners that its program never managed to connect to."""
    made = {
        (measurement.pair, exchange.rail)
        for measurement in measurements
        for exchange in measurement.reading.exchanges
        if exchange.is_made
    }
    rails: dict[str, dict[int, str]] = defaultdict(dict)
    partners: dict[str, set[str]] = defaultdict(set)
    for measurement in measurements:
        for exchange in measurement.reading.exchanges:
            if exchange.apart and (measurement.pair, exchange.rail) not in made:
                for node in measurement.pair:
                    rails[node].setdefault(exchange.rail, exchange.apart)
                    partners[node].add(measurement.pair.other(node))
    for node, reasons in rails.items():
        numbers = tuple(sorted(reasons))
        message = f"the programs of {node} and {fold(partners[node])} did not meet on {describe_rails(numbers)}, twice"
        yield MeshFinding(MeshKind.APART, (node,), f"{message}: {reasons[numbers[0]]}", numbers)
