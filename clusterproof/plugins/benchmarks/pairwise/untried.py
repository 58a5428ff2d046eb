"""Devices that exchanged nothing: with no device at the other end, or whose programs did not meet. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind, in_words
from clusterproof.plugins.evidence.pairs import Measurement

MAX_SAID = 2  # devices of a node, one by one


def missing_devices(measurements: Sequence[Measurement]) -> Iterator[MeshFinding]:
    """Of each node the rails on which it lacks a device that its partners have, or has one that nobody else has."""
    for node, rails in _without_partner(measurements).items():
        numbers = tuple(sorted(rails))
        said = "; ".join(f"rail {number}: {rails[number]}" for number in numbers[:MAX_SAID])
        more = f"; and so on {in_words(numbers[MAX_SAID:])}" if len(numbers) > MAX_SAID else ""
        yield MeshFinding(MeshKind.GAP, (node,), f"{said}{more}", numbers)


def _without_partner(measurements: Sequence[Measurement]) -> Mapping[str, Mapping[int, str]]:
    """What was seen on rails on which a node has exchanged nothing for want of a device at either end."""
    seen: dict[str, dict[int, str]] = {}
    met: set[tuple[str, int]] = set()
    for measurement in measurements:
        a, b = measurement.pair
        for exchange in measurement.reading.exchanges:
            if exchange.has_devices:
                met |= {(a, exchange.rail), (b, exchange.rail)}
                continue
            for node, own, other, partner in ((a, exchange.a, exchange.b, b), (b, exchange.b, exchange.a, a)):
                words = (
                    f"{own} was tried with nobody: no partner has" if own else f"no device where {partner} has {other}"
                )
                seen.setdefault(node, {}).setdefault(exchange.rail, words)
    return {
        node: left
        for node, rails in seen.items()
        if (left := {rail: words for rail, words in rails.items() if (node, rail) not in met})
    }


def failed_meetings(measurements: Sequence[Measurement]) -> Iterator[MeshFinding]:
    """Of each node the partners with whose programs its own did not meet, where they did not another time."""
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
    for node, said in rails.items():
        numbers = tuple(sorted(said))
        words = f"the programs of {node} and {fold(partners[node])} did not meet on {in_words(numbers)}, twice"
        yield MeshFinding(MeshKind.APART, (node,), f"{words}: {said[numbers[0]]}", numbers)
