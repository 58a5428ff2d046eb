"""The normal bandwidth of a pair; measurements are logarithmic differences from it: log(0.93) is 7 % slower."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.evidence.pairs import Measurement, Pair

OUTLIERS = 0.05  # minimum share of values: a healthy one is occasionally anything slower,
LONGEST = 0.7  # up to this much
FASTER = 0.05  # prior density above normal
BEYOND = 3.0  # standard deviations beyond which a value counts as an outlier
VALUES_BEFORE = 40  # weight of the prior share of outliers, in values
_OUTLIERS_BEFORE = 4  # weight of their uniform distribution, in outliers
OFTEN_TOGETHER = 2  # rounds in which two pairs are slow at once, from which on that is no coincidence


@dataclass(frozen=True, slots=True)
class Tails:
    """The share of outliers, and the distribution of those seen: in bins of a width."""

    share: float = OUTLIERS
    width: float = 1.0
    seen: Mapping[int, int] = field(default_factory=dict)
    count: int = 0

    def density(self, x: float) -> float:
        """How often a healthy value is an outlier at this distance."""
        if not self.count:
            return self.share * even(x)
        bin_ = int(x // self.width)
        near = self.seen.get(bin_ - 1, 0) + 2 * self.seen.get(bin_, 0) + self.seen.get(bin_ + 1, 0)
        return self.share * (near / (4 * self.width) + _OUTLIERS_BEFORE * even(x)) / (self.count + _OUTLIERS_BEFORE)


def even(x: float) -> float:
    """The prior density of outliers: practically none is faster than normal."""
    return 1 / LONGEST if -LONGEST < x < 0 else FASTER


def tails(about: Sequence[float], sigma: float) -> Tails:
    """The tails of these values about their centre."""
    beyond = [x for x in about if abs(x) > BEYOND * sigma]
    share = (OUTLIERS * VALUES_BEFORE + len(beyond)) / (VALUES_BEFORE + len(about))
    return Tails(max(OUTLIERS, share), sigma, Counter(int(x // sigma) for x in beyond), len(beyond))


@dataclass(frozen=True, slots=True)
class Normal:
    """What is normal: the centre of log(busbw) within places and across them, and its spread."""

    inside: float
    across: float
    sigma: float
    error: float = 0.0  # standard error of the centre
    sample: tuple[float, ...] = ()  # its values about the centre; empty if there are plenty
    relief_inside: float = 0.0  # how much faster pairs are when at most half run at once; 0.0 if not sure
    relief_across: float = 0.0
    rounds: Mapping[int, float] = field(default_factory=dict)  # common effect of all pairs of a round, beyond that
    tails: Tails = field(default_factory=Tails)

    def of(self, inside: bool) -> float:
        """The centre for such pairs."""
        return self.inside if inside else self.across

    def relief(self, inside: bool) -> float:
        """The effect of fewer such pairs at once."""
        return self.relief_inside if inside else self.relief_across


@dataclass(frozen=True, slots=True)
class Value:
    """One successful measurement of a pair, relative to what is normal for such pairs."""

    pair: Pair
    x: float
    round: int
    is_inside: bool
    is_relaxed: bool  # at most half as many pairs ran at once as in the first rounds
    is_retest: bool  # from a round chosen after evaluating the first ones


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """Settings of an analysis; the numbers are in catalog/busbw.toml."""

    min_effect: float  # difference of logarithms that matters: -log(0.95)
    places: Mapping[str, str]  # rack, UltraServer or zone of a node, if known
    first_rounds: int  # rounds whose pairs do not depend on any measurement


def succeeded(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Measurements that gave a bandwidth."""
    return [measurement for measurement in measurements if measurement.reading.busbw_gb_per_s]


def is_relaxed(measurement: Measurement, most_at_once: int) -> bool:
    """Whether at most half as many pairs ran at once as the maximum."""
    return 2 * measurement.at_once <= most_at_once


def values(measurements: Sequence[Measurement], reference: Normal, settings: AnalysisSettings) -> list[Value]:
    """Every successful measurement relative to its normal."""
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


def slow_together(
    pair: Pair, of_pair: Mapping[Pair, Sequence[Value]], settings: AnalysisSettings
) -> dict[Pair, set[int]]:
    """The pairs that were repeatedly slow together with this one, and in which rounds: they may share a path."""
    rounds = {value.round for value in of_pair.get(pair, ()) if value.x <= -settings.min_effect}
    together: dict[Pair, set[int]] = defaultdict(set)
    for other, values in of_pair.items():
        for value in values:
            if other != pair and value.x <= -settings.min_effect and value.round in rounds:
                together[other].add(value.round)
    return {other: shared for other, shared in together.items() if len(shared) >= OFTEN_TOGETHER}


def log_of(measurement: Measurement) -> float:
    """The logarithm of its bandwidth."""
    return log(measurement.reading.busbw_gb_per_s or 1.0)
