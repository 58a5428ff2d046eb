"""A rail that is cut: sides each of which is well inside, and that do not reach each other. Pure.

Few pairs are tried, so what reaches each other directly or by others are parts of a side only. Parts of one place with
no failure between them are of one side, and so are parts that fail with the same others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterproof.plugins.benchmarks.pairwise.rails import Rail
from clusterproof.plugins.evidence.pairs import Pair

FEWEST_ACROSS = 2  # pairs that fail between two sides
FEWEST_PARTNERS = 2  # on each side before a device that reaches none of them is at fault itself

Nodes = frozenset[str]


@dataclass(frozen=True, slots=True)
class Cut:
    """Sides of a rail, and the pairs that failed between them."""

    sides: tuple[Nodes, ...]
    across: tuple[Pair, ...]

    def may_have(self, partners: Nodes) -> bool:
        """Whether a device that reaches none of these partners may only be on another side than most of them."""
        proven = sum(len(partners & side) >= FEWEST_PARTNERS for side in self.sides)
        return proven < len(self.sides) and partners <= frozenset().union(*self.sides)


def cuts(rail: Rail, places: Mapping[str, str]) -> list[Cut]:
    """The cuts of a rail."""
    parts = _of_places(rail.parts(), rail, places)
    failed: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    number_of = {node: number for number, nodes in enumerate(parts) for node in nodes}
    for ends in rail.failed:
        if not rail.silent & set(ends):
            one, other = sorted(number_of[node] for node in ends)
            if one != other:
                failed[one, other].append(ends)
    found = []
    for numbers in _joined(list(failed)):
        across = tuple(ends for two, pairs in failed.items() if two[0] in numbers for ends in pairs)
        if len(across) >= FEWEST_ACROSS:
            found.append(Cut(_two_sides(numbers, failed, parts), across))
    return found + _between_places(rail, places, {ends for cut in found for ends in cut.across})


def _of_places(parts: Sequence[Nodes], rail: Rail, places: Mapping[str, str]) -> list[Nodes]:
    """The parts, those of one place as one where nothing failed between them."""
    merged: list[Nodes] = []
    for nodes in parts:
        own = {places.get(node) for node in nodes} - {None, ""}
        alike = next((one for one in merged if own & {places.get(node) for node in one}), None)
        if alike is None or any(set(ends) & nodes and set(ends) & alike for ends in rail.failed):
            merged.append(nodes)
        else:
            merged[merged.index(alike)] = alike | nodes
    return merged


def _joined(edges: Sequence[tuple[int, int]]) -> Iterator[frozenset[int]]:
    """The parts that fail with each other, directly or by others."""
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
    """Two sides where each part fails with one of them only; else the parts themselves."""
    side_of: dict[int, int] = {min(numbers): 0}
    while left := [edge for edge in failed if len(side_of.keys() & set(edge)) == 1]:
        for one, other in left:
            known, new = (one, other) if one in side_of else (other, one)
            side_of.setdefault(new, 1 - side_of[known])
    if any(side_of[one] == side_of[other] for one, other in failed if one in numbers):
        return tuple(parts[number] for number in sorted(numbers))
    of_side: tuple[set[str], set[str]] = (set(), set())
    for number in numbers:
        of_side[side_of[number]].update(parts[number])
    return tuple(frozenset(nodes) for nodes in of_side)


def _between_places(rail: Rail, places: Mapping[str, str], explained: set[Pair]) -> list[Cut]:
    """Two places none of whose pairs reach each other, though both reach a third."""
    tried: dict[Nodes, list[Pair]] = defaultdict(list)
    for ends in rail.links:
        tried[frozenset(places.get(node, "") for node in ends)].append(ends)
    failed = {ends for ends in rail.failed if not rail.silent & set(ends)} - explained
    found = []
    for two, pairs in tried.items():
        if len(two) > 1 and "" not in two and len(pairs) >= FEWEST_ACROSS and failed.issuperset(pairs):
            of_two = [
                frozenset(node for ends in pairs for node in ends if places[node] == place) for place in sorted(two)
            ]
            found.append(Cut(tuple(of_two), tuple(pairs)))
    return found
