"""Robust location and spread of a few numbers with outliers; importing `statistics` would delay a prolog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log, sqrt

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_HODGES_LEHMANN = 1.05  # its standard error on normal noise, relative to the mean's
MAX_VALUES = 64  # above this, a plain median is as good without the quadratic cost


def median(values: Iterable[float]) -> float:
    """The median. Raises IndexError for no values."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float]) -> float:
    """The standard deviation estimated from the median absolute deviation (MAD); 0.0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return _MAD_TO_SIGMA * median(abs(value - middle) for value in values)


def spread_above(values: Sequence[float]) -> float:
    """The same from the values above the median only, so that low outliers do not widen it; 0.0 for fewer than two."""
    middle = median(values)
    above = [value - middle for value in values if value > middle]
    return _MAD_TO_SIGMA * median(above) if above else 0.0


def weighted_median(values: Sequence[float], weights: Sequence[int]) -> float:
    """The median of values with counts."""
    total_weight, at, below = sum(weights), 0, 0.0
    is_middle = False
    for value, weight in sorted(zip(values, weights, strict=True)):
        if is_middle:
            return (below + value) / 2
        at += weight
        if 2 * at > total_weight:
            return value
        is_middle, below = 2 * at == total_weight, value
    return below


def weighted_spread(values: Sequence[float], weights: Sequence[int]) -> float:
    """As `spread`, for values with counts."""
    if len(values) < 2:
        return 0.0
    middle = weighted_median(values, weights)
    return _MAD_TO_SIGMA * weighted_median([abs(value - middle) for value in values], weights)


def location(values: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate: the median of all pairwise means. Tolerates two outliers in eight values."""
    if len(values) > MAX_VALUES:
        return median(values)
    ordered = sorted(values)
    return median((value + other) / 2 for number, value in enumerate(ordered) for other in ordered[number:])


def location_error(count: int, sigma: float) -> float:
    """The standard error of `location` for so many values."""
    return _HODGES_LEHMANN * sigma / sqrt(max(count, 1))


def share(effect: float) -> float:
    """Convert a difference of logarithms to a share of the normal bandwidth: log(0.93) → 0.93."""
    return exp(effect)


def effect(of_share: float) -> float:
    """The inverse of `share`."""
    return log(of_share)
