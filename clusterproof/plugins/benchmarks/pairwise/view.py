"""Measurements as differences of logarithms from what is normal: 0.0 is normal, log(0.93) is 7 % slower."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from clusterproof.plugins.benchmarks.pairwise.normal import Normal
from clusterproof.plugins.benchmarks.pairwise.schedule import is_inside
from clusterproof.plugins.evidence.pairwise.model import Measurement, Pair

OFTEN_TOGETHER = 2  # rounds in which two pairs are slow at once, from which on that is no chance


@dataclass(frozen=True, slots=True)
class Value:
    """One successful measurement of a pair, beside what is normal for pairs like it."""

    pair: Pair
    x: float
    round: int
    is_inside: bool
    is_relaxed: bool  # at most half as many pairs ran at once as in the first rounds
    is_retest: bool  # of a round that was chosen after a look at the first ones


@dataclass(frozen=True, slots=True)
class Settings:
    """What an analysis takes for granted; the numbers are catalog/busbw.toml's."""

    min_effect: float  # difference of logarithms from which slowness matters: -log(0.95)
    places: Mapping[str, str]  # rack, UltraServer or zone of a node, where it is known
    first_rounds: int  # rounds whose pairs do not depend on any measurement


def succeeded(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those that brought a bandwidth."""
    return [one for one in measurements if one.reading.busbw_gb_per_s]


def is_relaxed(one: Measurement, most_at_once: int) -> bool:
    """Whether at most half as many pairs ran at once as ever did."""
    return 2 * one.at_once <= most_at_once


def values(measurements: Sequence[Measurement], usual: Normal, settings: Settings) -> list[Value]:
    """Every successful measurement beside its normal."""
    most = max((one.at_once for one in measurements), default=1)
    found = []
    for one in succeeded(measurements):
        inside = is_inside(one.pair, settings.places)
        relaxed = is_relaxed(one, most)
        is_retest = one.round >= settings.first_rounds
        shared = usual.rounds.get(one.round, 0.0)
        x = log_of(one) - usual.of(inside) - (usual.relief(inside) if relaxed else 0.0) - shared
        found.append(Value(one.pair, x, one.round, inside, relaxed, is_retest))
    return found


def by_node(found: Iterable[Value]) -> dict[str, list[Value]]:
    """The values of each node."""
    data: dict[str, list[Value]] = defaultdict(list)
    for value in found:
        for node in value.pair.nodes:
            data[node].append(value)
    return data


def by_pair(found: Iterable[Value]) -> dict[Pair, list[Value]]:
    """The values of each pair."""
    data: dict[Pair, list[Value]] = defaultdict(list)
    for value in found:
        data[value.pair].append(value)
    return data


def slow_together(one: Pair, of_pair: Mapping[Pair, Sequence[Value]], settings: Settings) -> dict[Pair, set[int]]:
    """The pairs that were slow when this one was, again and again, and in which rounds: they may share a way."""
    rounds = {value.round for value in of_pair[one] if value.x <= -settings.min_effect}
    together: dict[Pair, set[int]] = defaultdict(set)
    for other, data in of_pair.items():
        for value in data:
            if other != one and value.x <= -settings.min_effect and value.round in rounds:
                together[other].add(value.round)
    return {other: shared for other, shared in together.items() if len(shared) >= OFTEN_TOGETHER}


def log_of(one: Measurement) -> float:
    """The logarithm of its bandwidth."""
    return log(one.reading.busbw_gb_per_s or 1.0)
