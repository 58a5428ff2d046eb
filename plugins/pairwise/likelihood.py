"""How sure an accusation is: what a node's values weigh for "slow by so much" against "healthy, and unlucky"."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, pi, sqrt
from statistics import median

from clusterproof.plugins.pairwise.normal import Normal
from clusterproof.plugins.pairwise.robust import MOST_VALUES, location, spread

SURE = 0.99  # from which on anybody is accused
# A healthy node's value is normal noise, and now and then anything slower: one in OUTLIERS, up to LONGEST slower.
OUTLIERS = 0.05
LONGEST = 0.7
LEAST_SIGMA = 0.01  # of few values that happen to be alike
_STEPS = 12  # of expectation and maximisation, at most


def normal_part(values: Sequence[float]) -> tuple[float, float]:
    """The centre and standard deviation under which these values are likeliest, those far below taken as outliers.

    Of many values the median and the MAD say as much, and sooner.
    """
    centre, sigma = median(values), max(spread(values), LEAST_SIGMA)
    if len(values) > MOST_VALUES:
        return centre, sigma
    for _ in range(_STEPS):
        weights = [_share_of_normal(x - centre, sigma) for x in values]
        total = sum(weights)
        before, centre = centre, sum(weight * x for weight, x in zip(weights, values, strict=True)) / total
        squares = sum(weight * (x - centre) ** 2 for weight, x in zip(weights, values, strict=True))
        sigma = max(sqrt(squares / max(total - 1, 1)), LEAST_SIGMA)
        if abs(centre - before) < sigma / 100:
            break
    return centre, sigma


def surely(values: Sequence[float], usual: Normal, tries: int) -> float:
    """One less a bound on the chance that any of so many healthy nodes has values that speak so much for slowness.

    A likelihood ratio above A is had by chance at most once in A times (Ville's inequality); there are as many tries as
    nodes, and as values that may each be what slowness looks like.
    """
    effects = [effect for effect in {*values, location(values)} if effect < 0.0]
    weight = max((_weight(values, effect, usual) for effect in effects), default=0.0)
    return max(0.0, 1.0 - tries * len(values) * exp(-weight))


def _weight(values: Sequence[float], effect: float, usual: Normal) -> float:
    """The logarithm of the ratio. Where few values tell what is normal, these are among them, slow or not."""
    without = [x - effect for x in values]
    if not usual.sample:
        return _likelihood(without, 0.0, usual.sigma) - _likelihood(values, 0.0, usual.sigma)
    slow, healthy = [*usual.sample, *without], [*usual.sample, *values]
    return _likelihood(slow, *normal_part(slow)) - _likelihood(healthy, *normal_part(healthy))


def _likelihood(values: Sequence[float], centre: float, sigma: float) -> float:
    return sum(log(_density(x - centre, sigma)) for x in values)


def _share_of_normal(x: float, sigma: float) -> float:
    normal = _normal(x, sigma)
    return normal / (normal + _outlier(x))


def _density(x: float, sigma: float) -> float:
    return _normal(x, sigma) + _outlier(x)


def _normal(x: float, sigma: float) -> float:
    return (1 - OUTLIERS) * exp(-0.5 * (x / sigma) ** 2) / (sigma * sqrt(2 * pi))


def _outlier(x: float) -> float:
    return OUTLIERS * (1 / LONGEST if -LONGEST < x < 0 else 1e-3)
