"""Plans measurements of pairs, and finds the node, link or group that makes them slow.

Everything in this package except `drive` and `journal` is pure: nodes and measurements in, rounds and findings out.
This module: rounds of pairs that use each node at most once, and what was measured by pair and by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from random import Random
from typing import Protocol, TypeVar

from clusterproof.plugins.evidence.pairs import Pair, PairFault, pair

Round = tuple[Pair, ...]

RETEST_ROUNDS = 4  # of suspects, after the first rounds

_TRIES = 20  # to find a round without repeated partners


class OfPair(Protocol):
    """Something of a pair: a measurement of it, or one relative to what is normal."""

    @property
    def pair(self) -> Pair:
        """The pair."""


P = TypeVar("P", bound=OfPair)


def by_pair(measured: Iterable[P]) -> dict[Pair, list[P]]:
    """What was measured of each pair, in the order in which pairs were first measured."""
    of_pairs: dict[Pair, list[P]] = {}
    for each in measured:
        of_pairs.setdefault(each.pair, []).append(each)
    return of_pairs


def by_node(measured: Iterable[P]) -> dict[str, list[P]]:
    """What each node took part in."""
    of_nodes: dict[str, list[P]] = {}
    for each in measured:
        for node in each.pair:
            of_nodes.setdefault(node, []).append(each)
    return of_nodes


def pairs_of(measured: Iterable[OfPair]) -> tuple[Pair, ...]:
    """The pairs, each once, in the order in which they were first measured."""
    return tuple({each.pair: None for each in measured})


def nodes_of(measured: Iterable[OfPair]) -> set[str]:
    """The nodes that took part."""
    return {node for each in measured for node in each.pair}


def named_in(findings: Iterable[PairFault]) -> set[str]:
    """The nodes that these findings are about."""
    return {node for finding in findings for node in finding.nodes}


def partners_of(node: str, measured: Iterable[OfPair]) -> set[str]:
    """The other ends of a node's pairs."""
    return {each.pair.other(node) for each in measured}


def circle(nodes: Sequence[str]) -> list[Round]:
    """Every pair exactly once, in the fewest possible rounds: n-1, or n for odd n, where each node rests once."""
    return [of_circle(nodes, number) for number in range(rounds_of_circle(len(nodes)))]


def rounds_of_circle(nodes: int) -> int:
    """How many rounds so many nodes need."""
    return nodes if nodes % 2 else max(nodes - 1, 0)


def of_circle(nodes: Sequence[str], number: int) -> Round:
    """One of these rounds: all of them together are too many for thousands of nodes."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    end = len(ring) - number
    turned = [*ring[:1], *ring[end:], *ring[1:end]]
    half = len(turned) // 2
    facing = zip(turned[:half], reversed(turned[half:]), strict=True)
    return tuple(pair(a, b) for a, b in facing if a is not None and b is not None)


def full(nodes: Sequence[str], places: Mapping[str, str]) -> list[Round]:
    """Every pair once; rounds with many pairs within a place come first."""
    rounds = circle(sorted(nodes, key=lambda node: (places.get(node, ""), node)))
    return sorted(rounds, key=lambda pairs: -sum(is_inside(both, places) for both in pairs))


def quick(nodes: Sequence[str], places: Mapping[str, str], count: int, random: Random) -> list[Round]:
    """A few random rounds: first within places if there are several, then across them.

    No partner is repeated if there are enough nodes.
    """
    by_place = list(nodes_by_place(nodes, places).values())
    if len(by_place) < 2:
        ring = random.sample(nodes, len(nodes))
        turns = _shuffled(rounds_of_circle(len(ring)), random)
        return [of_circle(ring, turns[number % len(turns)]) for number in range(count)] if turns else []
    inside = _inside(by_place, min(count // 2, max(map(len, by_place)) - 1), random)
    rounds, paired = list(inside), set(chain.from_iterable(inside))
    for _ in range(count - len(inside)):
        tried = (_across(by_place, random) for _ in range(_TRIES))
        best = _fewest(tried, paired)
        rounds.append(best)
        paired.update(best)
    return rounds


def is_inside(pair: Pair, places: Mapping[str, str]) -> bool:
    """Whether both ends are in one place."""
    return places.get(pair.a, "") == places.get(pair.b, "")


def nodes_by_place(nodes: Iterable[str], places: Mapping[str, str]) -> dict[str, list[str]]:
    """These nodes by place, in their order; under "" those whose place is unknown."""
    by_place: dict[str, list[str]] = {}
    for node in nodes:
        by_place.setdefault(places.get(node, ""), []).append(node)
    return by_place


def _inside(by_place: Sequence[Sequence[str]], count: int, random: Random) -> list[Round]:
    """Rounds within places; nodes left over in odd places are paired with one another."""
    rings = [random.sample(members, len(members)) for members in by_place]
    turns = [_shuffled(rounds_of_circle(len(ring)), random) for ring in rings]
    made = []
    for number in range(count):
        of_places = (of_circle(ring, own[number % len(own)]) for ring, own in zip(rings, turns, strict=True))
        pairs = list(chain.from_iterable(of_places))
        busy = set(chain.from_iterable(pairs))
        left = [node for members in by_place for node in members if node not in busy]
        random.shuffle(left)
        pairs += [pair(a, b) for a, b in zip_longest(left[::2], left[1::2]) if b is not None]
        made.append(tuple(pairs))
    return made


def _shuffled(count: int, random: Random) -> list[int]:
    numbers = list(range(count))
    random.shuffle(numbers)
    return numbers


def _across(by_place: Sequence[Sequence[str]], random: Random) -> Round:
    """Pair each node with one of another place, unless a place has more than half of all nodes."""
    shuffled = [random.sample(members, len(members)) for members in random.sample(by_place, len(by_place))]
    row = [node for members in shuffled for node in members]
    if len(row) % 2:
        row.pop(random.randrange(len(row)))
    half = len(row) // 2
    return tuple(pair(a, b) for a, b in zip(row[:half], row[half:], strict=True))


def _fewest(tried: Iterable[Round], paired: set[Pair]) -> Round:
    """The round with the fewest repeated partners; the first one with none."""
    best: Round = ()
    fewest: int | None = None
    for pairs in tried:
        again = len(paired.intersection(pairs))
        if fewest is None or again < fewest:
            best, fewest = pairs, again
        if not again:
            break
    return best
