"""Two sides of a rail that do not reach each other, though each reaches others. Pure functions.

Only few pairs are tried, so nodes that reach each other, directly or through others, are only parts of a side. Parts of
one place without a failure between them are on one side, and so are parts that fail with the same others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterproof.plugins.benchmarks.pairwise.rails import Rail
from clusterproof.plugins.evidence.pairs import Pair

MIN_ACROSS = 2  # failing pairs between two sides
MIN_PARTNERS = 2  # on each side before a device that reaches none of them is at fault itself

Nodes = frozenset[str]


@dataclass(frozen=True, slots=True)
class RailCut:
    """Two sides of a rail, and the pairs between them that failed."""

    sides: tuple[Nodes, ...]
    across: tuple[Pair, ...]

    def may_have(self, partners: Nodes) -> bool:
        """Whether a device that reaches none of these partners may be on a different side from most of them."""
        proven = sum(len(partners & side) >= MIN_PARTNERS for side in self.sides)
        return proven < len(self.sides) and partners <= frozenset().union(*self.sides)


def cuts(rail: Rail, places: Mapping[str, str]) -> list[RailCut]:
    """The cuts of a rail."""
    parts = _of_places(rail.parts(), rail, places)
    failed: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    number_of = {node: number for number, nodes in enumerate(parts) for node in nodes}
    for pair in rail.failed:
        if not rail.silent & set(pair):
            a, b = sorted(number_of[node] for node in pair)
            if a != b:
                failed[a, b].append(pair)
    between_parts = []
    for numbers in _joined(list(failed)):
        across = tuple(pair for two, pairs in failed.items() if two[0] in numbers for pair in pairs)
        if len(across) >= MIN_ACROSS:
            between_parts.append(RailCut(_two_sides(numbers, failed, parts), across))
    return between_parts + _between_places(rail, places, {pair for cut in between_parts for pair in cut.across})


def _of_places(parts: Sequence[Nodes], rail: Rail, places: Mapping[str, str]) -> list[Nodes]:
    """The parts, with those of one place merged if nothing failed between them."""
    merged: list[Nodes] = []
    for nodes in parts:
        own = {places.get(node) for node in nodes} - {None, ""}
        side_of_place = next((side for side in merged if own & {places.get(node) for node in side}), None)
        if side_of_place is None or any(set(pair) & nodes and set(pair) & side_of_place for pair in rail.failed):
            merged.append(nodes)
        else:
            merged[merged.index(side_of_place)] = side_of_place | nodes
    return merged


def _joined(edges: Sequence[tuple[int, int]]) -> Iterator[frozenset[int]]:
    """Parts that fail with each other, directly or through others."""
    left = set(edges)
    while left:
        numbers = set(min(left))
        while more := {edge for edge in left if numbers & set(edge)}:
            left -= more
            numbers |= {number for edge in more for number in edge}
        yield frozenset(numbers)


def _two_sides(
    numbers: frozenset[int], failed: Mapping[tuple[int, int], object], parts: Sequence[Nodes]
) -> tuple[Nodes, ...]:
    """Two sides if each part fails with only one of them; else the parts themselves."""
    side_of: dict[int, int] = {min(numbers): 0}
    while left := [edge for edge in failed if len(side_of.keys() & set(edge)) == 1]:
        for a, b in left:
            known, new = (a, b) if a in side_of else (b, a)
            side_of.setdefault(new, 1 - side_of[known])
    if any(side_of[a] == side_of[b] for a, b in failed if a in numbers):
        return tuple(parts[number] for number in sorted(numbers))
    of_side: tuple[set[str], set[str]] = (set(), set())
    for number in numbers:
        of_side[side_of[number]].update(parts[number])
    return tuple(frozenset(nodes) for nodes in of_side)


def _between_places(rail: Rail, places: Mapping[str, str], explained: set[Pair]) -> list[RailCut]:
    """Two places none of whose pairs reach each other, though both reach a third."""
    tried: dict[Nodes, list[Pair]] = defaultdict(list)
    for pair in rail.links:
        tried[frozenset(places.get(node, "") for node in pair)].append(pair)
    failed = {pair for pair in rail.failed if not rail.silent & set(pair)} - explained
    between_places = []
    for two, pairs in tried.items():
        if len(two) > 1 and "" not in two and len(pairs) >= MIN_ACROSS and failed.issuperset(pairs):
            of_two = [
                frozenset(node for pair in pairs for node in pair if places[node] == place) for place in sorted(two)
            ]
            between_places.append(RailCut(tuple(of_two), tuple(pairs)))
    return between_places
