"""How sure an accusation is: what a node's values weigh for "slow by so much" against "healthy, and unlucky"."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, pi, sqrt

from clusterproof.plugins.pairwise.robust import location

# A healthy node's value is normal noise, and now and then anything slower: one in OUTLIERS, up to LONGEST slower.
OUTLIERS = 0.05
LONGEST = 0.7


def surely(values: Sequence[float], sigma: float, nodes: int) -> float:
    """One less a bound on the chance that any of so many healthy nodes has values that speak so much for slowness.

    A likelihood ratio above A is had by chance at most once in A times (Ville's inequality); there are as many tries as
    nodes, and as values that may each be what slowness looks like.
    """
    effects = [effect for effect in (*values, location(values)) if effect < 0.0]
    weight = max((_weight(values, effect, sigma) for effect in effects), default=0.0)
    return max(0.0, 1.0 - nodes * len(values) * exp(-weight))


def _weight(values: Sequence[float], effect: float, sigma: float) -> float:
    return sum(log(_density(x - effect, sigma) / _density(x, sigma)) for x in values)


def _density(x: float, sigma: float) -> float:
    normal = exp(-0.5 * (x / sigma) ** 2) / (sigma * sqrt(2 * pi))
    slower = 1 / LONGEST if -LONGEST < x < 0 else 1e-3
    return (1 - OUTLIERS) * normal + OUTLIERS * slower
