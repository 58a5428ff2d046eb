"""The normal bandwidth of a pair; measurements are logarithmic differences from it: log(0.93) is 7 % slower."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.evidence.pairs import Measurement, Pair

OUTLIERS = 0.05  # of the values, at least: a healthy one is now and then anything slower,
LONGEST = 0.7  # up to so much
FASTER = 0.05  # the density above normal, before any was seen
BEYOND = 3.0  # standard deviations, from which on a value is seen to be no normal noise
VALUES_BEFORE = 40  # as many values as the share of outliers above weighs
_OUTLIERS_BEFORE = 4  # as many outliers as their even distribution weighs
OFTEN_TOGETHER = 2  # rounds in which two pairs are slow at once, from which on that is no chance


@dataclass(frozen=True, slots=True)
class Tails:
    """The distribution of outliers seen so far: their share, and a histogram of where they lie."""

    share: float = OUTLIERS
    width: float = 1.0
    seen: Mapping[int, int] = field(default_factory=dict)
    count: int = 0

    def density(self, x: float) -> float:
        """How often a healthy value is no normal noise, and here."""
        if not self.count:
            return self.share * even(x)
        bin_ = int(x // self.width)
        near = self.seen.get(bin_ - 1, 0) + 2 * self.seen.get(bin_, 0) + self.seen.get(bin_ + 1, 0)
        return self.share * (near / (4 * self.width) + _OUTLIERS_BEFORE * even(x)) / (self.count + _OUTLIERS_BEFORE)


def even(x: float) -> float:
    """The density of outliers of which none was seen: as good as none is faster than normal."""
    return 1 / LONGEST if -LONGEST < x < 0 else FASTER


def tails(about: Sequence[float], sigma: float) -> Tails:
    """The tails of these values about their centre."""
    beyond = [x for x in about if abs(x) > BEYOND * sigma]
    share = (OUTLIERS * VALUES_BEFORE + len(beyond)) / (VALUES_BEFORE + len(about))
    return Tails(max(OUTLIERS, share), sigma, Counter(int(x // sigma) for x in beyond), len(beyond))


@dataclass(frozen=True, slots=True)
class Normal:
    """The centres of log(busbw) within places and across them, and its spread."""

    inside: float
    across: float
    sigma: float
    error: float = 0.0  # standard error of the centre
    sample: tuple[float, ...] = ()  # what it was taken from, about the centre; empty where there is plenty
    relief_inside: float = 0.0  # how much faster they are when at most half of them run at once; 0.0 where not sure
    relief_across: float = 0.0
    rounds: Mapping[int, float] = field(default_factory=dict)  # what all pairs of a round have in common beyond that
    tails: Tails = field(default_factory=Tails)

    def of(self, inside: bool) -> float:
        """The centre for such pairs."""
        return self.inside if inside else self.across

    def relief(self, inside: bool) -> float:
        """What fewer at once bring such pairs."""
        return self.relief_inside if inside else self.relief_across


@dataclass(frozen=True, slots=True)
class Value:
    """One successful measurement of a pair, relative to the normal of pairs like it."""

    pair: Pair
    x: float
    round: int
    is_inside: bool
    is_relaxed: bool  # at most half as many pairs ran at once as in the first rounds
    is_retest: bool  # of a round that was chosen after a look at the first ones


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """The parameters of an analysis, from catalog/busbw.toml."""

    min_effect: float  # difference of logarithms from which slowness matters: -log(0.95)
    places: Mapping[str, str]  # rack, UltraServer or zone of a node, where it is known
    first_rounds: int  # rounds whose pairs do not depend on any measurement


def succeeded(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those that brought a bandwidth."""
    return [measurement for measurement in measurements if measurement.reading.busbw_gb_per_s]


def is_relaxed(measurement: Measurement, most_at_once: int) -> bool:
    """Whether at most half as many pairs ran at once as ever did."""
    return 2 * measurement.at_once <= most_at_once


def values(measurements: Sequence[Measurement], reference: Normal, settings: AnalysisSettings) -> list[Value]:
    """Every successful measurement beside its normal."""
    most = max((measurement.at_once for measurement in measurements), default=1)
    normalized = []
    for measurement in succeeded(measurements):
        inside = is_inside(measurement.pair, settings.places)
        relaxed = is_relaxed(measurement, most)
        is_retest = measurement.round >= settings.first_rounds
        shared = reference.rounds.get(measurement.round, 0.0)
        x = log_of(measurement) - reference.of(inside) - (reference.relief(inside) if relaxed else 0.0) - shared
        normalized.append(Value(measurement.pair, x, measurement.round, inside, relaxed, is_retest))
    return normalized


def by_node(values: Iterable[Value]) -> dict[str, list[Value]]:
    """The values of each node."""
    by_name: dict[str, list[Value]] = defaultdict(list)
    for value in values:
        for node in value.pair.nodes:
            by_name[node].append(value)
    return by_name


def by_pair(values: Iterable[Value]) -> dict[Pair, list[Value]]:
    """The values of each pair."""
    by_both: dict[Pair, list[Value]] = defaultdict(list)
    for value in values:
        by_both[value.pair].append(value)
    return by_both


def slow_together(
    pair: Pair, of_pair: Mapping[Pair, Sequence[Value]], settings: AnalysisSettings
) -> dict[Pair, set[int]]:
    """The pairs that were slow when this one was, again and again, and in which rounds: they may share a way."""
    rounds = {value.round for value in of_pair[pair] if value.x <= -settings.min_effect}
    together: dict[Pair, set[int]] = defaultdict(set)
    for other, values in of_pair.items():
        for value in values:
            if other != pair and value.x <= -settings.min_effect and value.round in rounds:
                together[other].add(value.round)
    return {other: shared for other, shared in together.items() if len(shared) >= OFTEN_TOGETHER}


def log_of(measurement: Measurement) -> float:
    """The logarithm of its bandwidth."""
    return log(measurement.reading.busbw_gb_per_s or 1.0)
