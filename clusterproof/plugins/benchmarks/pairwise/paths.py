"""Links of a rail that carry nothing though both their devices reach others: sides cut off, else paths. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterproof.plugins.benchmarks.pairwise.rails import Link, Rail, why
from clusterproof.plugins.benchmarks.pairwise.sides import Cut
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.exchanges import MeshKind
from clusterproof.plugins.evidence.pairs import Pair

FEWEST_IN_COMMON = 2  # paths of one device that fail
RAILS = "{rails}"  # in words that may be of several


@dataclass(frozen=True, slots=True)
class OnRail:
    """What was found on one rail; what is alike on others is one finding. `key` is what it is about."""

    kind: MeshKind
    nodes: tuple[str, ...]
    words: str
    rail: int
    why: str
    key: str = ""
    links: tuple[tuple[str, str], ...] = ()


def between(rail: Rail, found: Sequence[Cut]) -> Iterator[OnRail]:
    """What these cuts account for, and what is left."""
    for cut in found:
        yield _cut(rail, cut)
    across = {ends for cut in found for ends in cut.across}
    yield from _paths(
        rail, {e: link for e, link in rail.failed.items() if e not in across and not rail.silent & set(e)}
    )


def _paths(rail: Rail, failed: Mapping[Pair, Link]) -> Iterator[OnRail]:
    """What is left: a device that several of these have in common, else the path between two."""
    left = dict(failed)
    while left:
        node, count = Counter(node for ends in sorted(left) for node in ends).most_common(1)[0]
        if count < FEWEST_IN_COMMON:
            break
        own = {ends: left.pop(ends) for ends in list(left) if node in ends}
        partners, reached = fold(ends.other(node) for ends in own), fold(rail.reached[node])
        words = (
            f"{rail.device(node)} (rail {rail.number}) reaches {reached}, and not {partners}, which reach others on it"
        )
        yield OnRail(MeshKind.PARTLY, (node,), words, rail.number, why(own.values()))
    for ends, link in left.items():
        words = f"{ends.a} and {ends.b} do not reach each other on {RAILS}, though both reach others there"
        again = ((ends.a, ends.b),) if len(link.problems) == 1 else ()
        devices = " to ".join(link.devices[node] for node in ends)
        yield OnRail(MeshKind.PATH, ends.nodes, words, rail.number, f"{devices}: {why([link])}", links=again)


def _cut(rail: Rail, cut: Cut) -> OnRail:
    failed = [rail.links[ends] for ends in cut.across]
    nodes = tuple(sorted(frozenset().union(*cut.sides)))
    apart = " and ".join(sorted(map(fold, cut.sides)))
    words = f"cut on {RAILS}: {apart} do not reach each other, though each reaches others"
    return OnRail(
        MeshKind.CUT, nodes, words, rail.number, f"none of {number_of(len(failed), 'pair')} across, {why(failed)}"
    )
