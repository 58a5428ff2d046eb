"""What racks and batches of hardware, and the runs of an acceptance, have in common beyond chance.

Pure functions of logarithms. A level is a rack, a group, or a version that nodes have: `group r07`, `VBIOS 96.00.99`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import erfc, exp, log, sqrt

from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import median

MIN_NODES = 3  # of a level, and of all others
_RATES = tuple(2 ** (step / 4) for step in range(-8, 60))  # of Chernoff's bound, each of which is one
CLEAR_SHARE = 0.9  # as the clearest level: of those the slowest is taken for the one that differs
REFITS = 2


@record
class Shift:
    """Nodes that are all slower or faster than the others, by a difference of logarithms; slower is negative."""

    levels: tuple[str, ...]  # levels with exactly these nodes
    nodes: int
    by: float
    chance: float  # at most, that nodes without anything in common differ as much, in any level


def shifts_of(
    middles: Mapping[str, float], levels: Mapping[str, Sequence[str]], by_chance: float, least: float
) -> tuple[Shift, ...]:
    """Which levels differ by the share `least` or more, the clearest first.

    Each is compared without the nodes of those before it.

    `middles` has the value of each node. What most nodes have is usual; of two equal halves, the faster one.
    """
    remaining, candidates, shifts = dict(middles), _candidates(middles, levels), dict[frozenset[str], Shift]()
    count = len(candidates)
    while candidates:
        nodes, chance = _clearest(remaining, candidates)
        if count * chance > by_chance:
            break
        names, by = candidates.pop(nodes), _difference(remaining, nodes)
        if share_of(by) >= least:
            shifts[nodes] = Shift(tuple(names), len(nodes), by, count * chance)
            remaining |= {node: remaining[node] - by for node in nodes}
    for nodes in [*shifts] * REFITS:  # the first were beside others that were not known yet
        by = _difference(remaining, nodes)
        shifts[nodes] = replace(shifts[nodes], by=shifts[nodes].by + by)
        remaining |= {node: remaining[node] - by for node in nodes}
    return tuple(shifts.values())


def shifts_for(levels: Sequence[str], shifts: Sequence[Shift]) -> Iterator[Shift]:
    """The shifts of a node with these levels."""
    return (shift for shift in shifts if shift.levels[0] in levels)


def share_of(by: float) -> float:
    """By what share of the speed something is slower or faster, from the difference of logarithms."""
    return abs(1 - exp(by))


def drift_of(common: Sequence[float], error: float, by_chance: float, least: float) -> float | None:
    """How much faster all units became from the first third of runs to the last; None if it is little, or may be
    chance.

    `common` is what all units of each run had in common, in the order of the runs; `error` the standard error of one.
    """
    third = max(1, len(common) // 3)
    if len(common) < 2:
        return None
    by = median(common[-third:]) - median(common[:third])
    return by if share_of(by) >= least and erfc(abs(by) / (2 * error)) <= by_chance else None


def _candidates(middles: Mapping[str, float], levels: Mapping[str, Sequence[str]]) -> dict[frozenset[str], list[str]]:
    """The levels with at most half of the nodes; levels with the same nodes count as one."""
    nodes_of: dict[str, set[str]] = defaultdict(set)
    for node in middles:
        for level in levels.get(node, ()):
            nodes_of[level].add(node)
    candidates: dict[frozenset[str], list[str]] = defaultdict(list)
    for level, nodes in nodes_of.items():
        if MIN_NODES <= len(nodes) <= len(middles) / 2:
            candidates[frozenset(nodes)].append(level)
    return candidates


def _clearest(values: Mapping[str, float], candidates: Iterable[frozenset[str]]) -> tuple[frozenset[str], float]:
    """The nodes that differ most clearly from the others, and an upper bound of how often that happens by chance."""
    ranks, of_all = _ranks(values), len(values)
    shown = {nodes: sum(ranks[node] for node in nodes) / len(nodes) for nodes in candidates}
    clear = {nodes: abs(_deviation(rank, len(nodes), of_all)) for nodes, rank in shown.items()}
    enough = CLEAR_SHARE * max(clear.values())
    nodes = min((nodes for nodes in clear if clear[nodes] >= enough), key=lambda nodes: shown[nodes])
    return nodes, _chance(shown[nodes], len(nodes), of_all)


def _difference(values: Mapping[str, float], nodes: Collection[str]) -> float:
    """How far the middle of these nodes is from that of the others."""
    return median(values[node] for node in nodes) - median(x for node, x in values.items() if node not in nodes)


def _ranks(values: Mapping[str, float]) -> dict[str, float]:
    """Each node's rank as a share of all; equal values share the middle rank."""
    ordered = sorted(values.values())
    return {node: (bisect_left(ordered, x) + bisect_right(ordered, x)) / 2 / len(ordered) for node, x in values.items()}


def _deviation(rank: float, count: int, of_all: int) -> float:
    """How many standard deviations the mean rank of so many nodes is from the middle."""
    return (rank - 0.5) * of_all * sqrt(12 * count / ((of_all + 1) * (of_all - count)))


def _chance(rank: float, count: int, of_all: int) -> float:
    """An upper bound of the chance that the mean rank is as far from the middle, whatever the noise of the values.

    The normal approximation, which is too large far from the middle; or Chernoff's bound for the mean of uniform
    values, which holds for ranks too (Hoeffding 1963, theorem 4) and is smaller for few nodes.
    """
    low = min(rank, 1 - rank)
    bound = exp(count * min(rate * low + log((1 - exp(-rate)) / rate) for rate in _RATES))
    return min(2 * bound, erfc(abs(_deviation(rank, count, of_all)) / sqrt(2)))
