"""A run's exchanges by rail: which devices were tried with which others, and which of them they reached. Pure.

A rail has the same number on all nodes, whereas a pair only counts the devices that its two nodes have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from clusterproof.plugins.evidence.exchanges import Exchange
from clusterproof.plugins.evidence.pairs import Measurement, Pair

SILENCE = "nothing says why"


@dataclass
class Link:
    """Two devices of one rail, and each attempt: empty if bytes came back, else why not."""

    devices: Mapping[str, str]  # by node
    problems: list[str] = field(default_factory=list)

    @property
    def has_arrived(self) -> bool:
        """Whether bytes came back at least once."""
        return "" in self.problems

    @property
    def has_failed(self) -> bool:
        """Whether no bytes came back at least once."""
        return any(self.problems)


@dataclass(frozen=True)
class Rail:
    """One rail and the links that were tried on it."""

    number: int
    links: Mapping[Pair, Link]

    @cached_property
    def tried(self) -> Mapping[str, frozenset[str]]:
        """The partners with which each node's device was tried."""
        return _partners(self.links)

    @cached_property
    def reached(self) -> Mapping[str, frozenset[str]]:
        """Those that it reached, for devices that reached any."""
        return _partners(pair for pair, link in self.links.items() if link.has_arrived)

    @cached_property
    def silent(self) -> frozenset[str]:
        """The nodes whose device reached nobody."""
        return frozenset(self.tried.keys() - self.reached.keys())

    @property
    def arrived(self) -> int:
        """The number of working links."""
        return sum(link.has_arrived for link in self.links.values())

    def good_partners(self, node: str) -> frozenset[str]:
        """The partners of a node's device that are known to work, because they reach others."""
        return frozenset(self.tried.get(node, frozenset()) - self.silent)

    @cached_property
    def failed(self) -> Mapping[Pair, Link]:
        """The links that never worked."""
        return {pair: link for pair, link in self.links.items() if not link.has_arrived}

    def failed_of(self, nodes: Collection[str]) -> list[Link]:
        """The links that never worked and involve these nodes."""
        return [link for pair, link in self.failed.items() if pair.a in nodes or pair.b in nodes]

    def device(self, node: str) -> str:
        """The name of the node's device."""
        return next(link.devices[node] for link in self.links.values() if node in link.devices)

    def parts(self) -> list[frozenset[str]]:
        """Sets of nodes that reach each other, directly or through others, the largest first; without silent ones."""
        left, parts = set(self.reached), []
        while left:
            part: set[str] = set()
            waiting = {min(left)}
            while waiting:
                part |= waiting
                waiting = {other for node in waiting for other in self.reached[node]} - part
            left -= part
            parts.append(frozenset(part))
        return sorted(parts, key=lambda part: (-len(part), min(part)))


def rails_of(measurements: Sequence[Measurement]) -> list[Rail]:
    """The rails on which anything was tried, in order."""
    links: dict[int, dict[Pair, Link]] = {}
    for measurement in measurements:
        a, b = measurement.pair
        for exchange in measurement.reading.exchanges:
            if exchange.is_made:
                link = links.setdefault(exchange.rail, {}).setdefault(
                    measurement.pair, Link({a: exchange.a, b: exchange.b})
                )
                link.problems.append(exchange.problem)
    return [Rail(number, of_pair) for number, of_pair in sorted(links.items())]


def why(links: Iterable[Link]) -> str:
    """The most common reason of these failures."""
    problems = Counter(problem for link in links for problem in link.problems if problem)
    return problems.most_common(1)[0][0] if problems else SILENCE


def _partners(pairs: Iterable[Pair]) -> Mapping[str, frozenset[str]]:
    partners_of: dict[str, set[str]] = {}
    for a, b in pairs:
        partners_of.setdefault(a, set()).add(b)
        partners_of.setdefault(b, set()).add(a)
    return {node: frozenset(partners) for node, partners in partners_of.items()}


@dataclass
class _Model:
    """Nodes with most devices at the same positions, and all positions of their devices."""

    positions: set[str]
    nodes: list[str] = field(default_factory=list)

    def has(self, positions: set[str]) -> bool:
        """Whether a node with devices at these positions belongs to it."""
        return 2 * len(positions & self.positions) > min(len(positions), len(self.positions))

    def numbers(self) -> Mapping[str, int]:
        """The rail of each position on the PCI bus."""
        ordered = sorted(self.positions, key=lambda position: (len(position), position))
        return {position: number for number, position in enumerate(ordered)}


def numbered(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The exchanges, renumbered with their rail among all nodes of a model.

    An exchange between two models by the order of devices, some of which one model lacks, has no rail and is left out.
    If no positions are known, as in older recordings, the numbers stay.
    """
    rail_numbers = _numbers(measurements)
    return [
        replace(
            measurement, reading=replace(measurement.reading, exchanges=tuple(_renumbered(measurement, rail_numbers)))
        )
        for measurement in measurements
    ]


def _renumbered(measurement: Measurement, rail_numbers: Mapping[str, Mapping[str, int]]) -> Iterator[Exchange]:
    for exchange in measurement.reading.exchanges:
        numbers = {
            rail_numbers[node][position]
            for node, position in zip(measurement.pair, exchange.places, strict=True)
            if position
        }
        if len(numbers) < 2:
            yield replace(exchange, rail=numbers.pop()) if numbers else exchange


def _numbers(measurements: Sequence[Measurement]) -> Mapping[str, Mapping[str, int]]:
    """The rails of each node by position on the PCI bus."""
    positions: dict[str, set[str]] = {}
    for measurement in measurements:
        for exchange in measurement.reading.exchanges:
            for node, position in zip(measurement.pair, exchange.places, strict=True):
                if position:
                    positions.setdefault(node, set()).add(position)
    models: list[_Model] = []
    for node in sorted(positions, key=lambda node: (-len(positions[node]), node)):
        model = next((model for model in models if model.has(positions[node])), None)
        if model is None:
            models.append(model := _Model(set()))
        model.positions |= positions[node]
        model.nodes.append(node)
    return {node: numbers for model in models for numbers in [model.numbers()] for node in model.nodes}
