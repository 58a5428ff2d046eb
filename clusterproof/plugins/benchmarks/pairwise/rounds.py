"""What all pairs of a round have in common: what all of them shared at that time is no node's fault."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.likelihood import normal_part

FEWEST = 2  # values, for a round to show what it has in common
BEST_OF = {2: 0.56, 3: 0.85}  # standard deviations by which the best of so many values is above their middle
NEAR = 3.0  # standard deviations from it,
MAJORITY = 0.6  # of the values are
ERROR_OF_CENTRE = 1.25  # standard error of a round's centre, times that of the mean
SURELY = 2.3  # standard errors: 99 times in 100 rounds that are alike do not look so different


def centre(xs: Sequence[float], sigma: float) -> float:
    """What most of a round's values have in common, 0.0 where there is no such thing.

    Of a few values it is the best, as noise rarely makes a pair faster.
    """
    if len(xs) < FEWEST:
        return 0.0
    middle = max(xs) - BEST_OF[len(xs)] * sigma if len(xs) in BEST_OF else median(xs)
    near = sum(abs(x - middle) <= NEAR * sigma for x in xs)
    return middle if near >= MAJORITY * len(xs) else 0.0


def difference(of_rounds: Mapping[int, Sequence[float]], sigma: float, about: float | None = None) -> float:
    """The standard deviation by which rounds differ beyond the noise of their values; 0.0 where that is not sure.

    They differ from one another, or from what all of them should be where that is given.
    """
    known = {number: xs for number, xs in of_rounds.items() if len(xs) >= FEWEST}
    freedom = len(known) - (about is None)
    if freedom < 1:
        return 0.0
    found = {number: centre(xs, sigma) for number, xs in known.items()}
    weights = {number: len(xs) / (ERROR_OF_CENTRE * sigma) ** 2 for number, xs in known.items()}
    whole = sum(weights.values())
    middle = about if about is not None else sum(weights[number] * found[number] for number in found) / whole
    squares = sum(weights[number] * (found[number] - middle) ** 2 for number in found)
    if squares <= _unlikely(freedom):
        return 0.0
    effective = whole - sum(weight**2 for weight in weights.values()) / whole if about is None else whole
    return sqrt((squares - freedom) / effective)


def in_common(of_rounds: Mapping[int, Sequence[float]], sigma: float, differ: float) -> dict[int, float]:
    """What each round has in common, the less the fewer values show it; nothing where rounds do not differ."""
    if not differ:
        return {}
    found = {number: centre(xs, sigma) for number, xs in of_rounds.items()}
    return {
        number: found[number] * differ**2 / (differ**2 + (ERROR_OF_CENTRE * sigma) ** 2 / len(of_rounds[number]))
        for number in found
    }


def within(of_rounds: Collection[Sequence[float]]) -> float:
    """The spread of values about the centres of their own rounds."""
    about = [
        (x - middle) * sqrt(len(xs) / (len(xs) - 1))
        for xs in of_rounds
        if len(xs) >= FEWEST
        for middle in (median(xs),)
        for x in xs
    ]
    return normal_part(about)[1] if about else 0.0


def _unlikely(freedom: int) -> float:
    """What a sum of so many squares of normal noise exceeds once in a hundred times (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + SURELY * sqrt(2 / (9 * freedom))) ** 3
