"""What all pairs of a round have in common: rounds may differ by more than the noise of their pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.benchmarks.pairwise.likelihood import MIN_SIGMA, normal_part
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, log_of
from clusterproof.plugins.evidence.pairs import Measurement

ENOUGH = 4  # measurements of a kind of pairs, to know what is normal for it
FEWEST = 2  # values, for a round to show its common effect
BEST_OF = {2: 0.56, 3: 0.85}  # standard deviations by which the best of so many values is above their median
NEAR = 3.0  # standard deviations from it,
MAJORITY = 0.6  # contain this share of the values
ERROR_OF_CENTRE = 1.25  # standard error of a round's centre, relative to the mean's
SURELY = 2.3  # standard errors: in 99 of 100 cases, equal rounds differ by less


@dataclass(frozen=True, slots=True)
class CommonEffects:
    """The common effect of each round's pairs, and by how much rounds differ."""

    of_round: Mapping[int, float]
    differ: float


def common_effects(measurements: Sequence[Measurement], settings: AnalysisSettings) -> CommonEffects:
    """The common effect of each of these rounds, relative to the same kind of pairs in all of them."""
    kinds: dict[bool, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        kinds[is_inside(measurement.pair, settings.places)].append(measurement)
    of_rounds: dict[int, list[float]] = defaultdict(list)
    differ = 0.0
    for of_kind in kinds.values():
        if len(of_kind) < ENOUGH:
            continue
        middle, _ = normal_part([log_of(measurement) for measurement in of_kind])
        of_these = by_round((measurement, log_of(measurement) - middle) for measurement in of_kind)
        differ = max(differ, difference(of_these, max(within(of_these.values()), MIN_SIGMA)))
        for number, xs in of_these.items():
            of_rounds[number] += xs
    return CommonEffects(in_common(of_rounds, max(within(of_rounds.values()), MIN_SIGMA), differ), differ)


def by_round(logs: Iterable[tuple[Measurement, float]]) -> dict[int, list[float]]:
    """The values of each round."""
    of_rounds: dict[int, list[float]] = defaultdict(list)
    for measurement, x in logs:
        of_rounds[measurement.round].append(x)
    return of_rounds


def centre(xs: Sequence[float], sigma: float) -> float:
    """The common value of most of a round's values, 0.0 if there is none.

    For few values it is the best, because noise rarely makes a pair faster.
    """
    if len(xs) < FEWEST:
        return 0.0
    middle = max(xs) - BEST_OF[len(xs)] * sigma if len(xs) in BEST_OF else median(xs)
    near = sum(abs(x - middle) <= NEAR * sigma for x in xs)
    return middle if near >= MAJORITY * len(xs) else 0.0


def difference(of_rounds: Mapping[int, Sequence[float]], sigma: float, about: float | None = None) -> float:
    """The standard deviation between rounds beyond the noise of their values; 0.0 if not significant.

    Compares rounds with one another, or with their expected value if that is given.
    """
    known = {number: xs for number, xs in of_rounds.items() if len(xs) >= FEWEST}
    freedom = len(known) - (about is None)
    if freedom < 1:
        return 0.0
    centres = {number: centre(xs, sigma) for number, xs in known.items()}
    weights = {number: len(xs) / (ERROR_OF_CENTRE * sigma) ** 2 for number, xs in known.items()}
    total_weight = sum(weights.values())
    if about is None:
        middle = sum(weights[number] * centres[number] for number in centres) / total_weight
        effective = total_weight - sum(weight**2 for weight in weights.values()) / total_weight
    else:
        middle, effective = about, total_weight
    squares = sum(weights[number] * (centres[number] - middle) ** 2 for number in centres)
    return sqrt((squares - freedom) / effective) if squares > _unlikely(freedom) else 0.0


def in_common(of_rounds: Mapping[int, Sequence[float]], sigma: float, differ: float) -> dict[int, float]:
    """The common effect of each round, shrunk if few values show it; 0 if rounds do not differ."""
    if not differ:
        return {}
    centres = {number: centre(xs, sigma) for number, xs in of_rounds.items()}
    return {
        number: centres[number] * differ**2 / (differ**2 + (ERROR_OF_CENTRE * sigma) ** 2 / len(of_rounds[number]))
        for number in centres
    }


def within(of_rounds: Collection[Sequence[float]]) -> float:
    """The spread of values about the centres of their own rounds."""
    about: list[float] = []
    for xs in of_rounds:
        if len(xs) >= FEWEST:
            middle, widened = median(xs), sqrt(len(xs) / (len(xs) - 1))
            about += [(x - middle) * widened for x in xs]
    return normal_part(about)[1] if about else 0.0


def _unlikely(freedom: int) -> float:
    """The 99th percentile of a sum of so many squares of normal noise (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + SURELY * sqrt(2 / (9 * freedom))) ** 3
