"""The exchanges of a run by rail: which devices were tried with which others, and which of them they reached. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from clusterproof.plugins.evidence.pairs import Measurement, Pair

SILENCE = "nothing says why"


@dataclass
class Link:
    """Two devices of one rail, and each time that they were tried: empty where bytes came back, else why not."""

    devices: Mapping[str, str]  # by node
    problems: list[str] = field(default_factory=list)

    @property
    def has_arrived(self) -> bool:
        """Whether bytes came back at least once."""
        return "" in self.problems

    @property
    def has_failed(self) -> bool:
        """Whether they did not at least once."""
        return any(self.problems)


@dataclass(frozen=True)
class Rail:
    """One rail: the links that were tried on it."""

    number: int
    links: Mapping[Pair, Link]

    @cached_property
    def tried(self) -> Mapping[str, frozenset[str]]:
        """The partners that each node's device was tried with."""
        return _partners(self.links)

    @cached_property
    def reached(self) -> Mapping[str, frozenset[str]]:
        """Those that it reached, of devices that reached any."""
        return _partners(pair for pair, link in self.links.items() if link.has_arrived)

    @cached_property
    def silent(self) -> frozenset[str]:
        """The nodes whose device reached nobody."""
        return frozenset(self.tried.keys() - self.reached.keys())

    @property
    def arrived(self) -> int:
        """How many links carry anything."""
        return sum(link.has_arrived for link in self.links.values())

    def good_partners(self, node: str) -> frozenset[str]:
        """The partners of a node's device that are known to work: they reach others."""
        return frozenset(self.tried.get(node, frozenset()) - self.silent)

    @cached_property
    def failed(self) -> Mapping[Pair, Link]:
        """The links that never carried anything."""
        return {pair: link for pair, link in self.links.items() if not link.has_arrived}

    def failed_of(self, nodes: Collection[str]) -> list[Link]:
        """Those of these nodes."""
        return [link for pair, link in self.failed.items() if pair.a in nodes or pair.b in nodes]

    def device(self, node: str) -> str:
        """What the node's device is called."""
        return next(link.devices[node] for link in self.links.values() if node in link.devices)

    def parts(self) -> list[frozenset[str]]:
        """Nodes that reach each other, directly or by others, the most first; without silent ones."""
        left, found = set(self.reached), []
        while left:
            part: set[str] = set()
            waiting = {min(left)}
            while waiting:
                part |= waiting
                waiting = {other for node in waiting for other in self.reached[node]} - part
            left -= part
            found.append(frozenset(part))
        return sorted(found, key=lambda part: (-len(part), min(part)))


def rails_of(measurements: Sequence[Measurement]) -> list[Rail]:
    """The rails on which anything was tried, in their order."""
    links: dict[int, dict[Pair, Link]] = {}
    for measurement in measurements:
        a, b = measurement.pair
        for one in measurement.reading.exchanges:
            if one.is_made:
                link = links.setdefault(one.rail, {}).setdefault(measurement.pair, Link({a: one.a, b: one.b}))
                link.problems.append(one.problem)
    return [Rail(number, of_pair) for number, of_pair in sorted(links.items())]


def why(links: Iterable[Link]) -> str:
    """What most of these failures say."""
    said = Counter(problem for link in links for problem in link.problems if problem)
    return said.most_common(1)[0][0] if said else SILENCE


def _partners(pairs: Iterable[Pair]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for a, b in pairs:
        found.setdefault(a, set()).add(b)
        found.setdefault(b, set()).add(a)
    return {node: frozenset(partners) for node, partners in found.items()}
