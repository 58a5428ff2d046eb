"""The confidence of a finding: weighs a node's values for "slow by so much" against "healthy, and unlucky"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import exp, fsum, inf, log, pi, sqrt
from operator import add, mul
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.normal import OUTLIERS, VALUES_BEFORE, Normal, Tails, even
from clusterproof.plugins.core.robust import MAX_VALUES, location, spread, spread_above

SURE = 0.995  # from here on a node or link is named
ONE_SIDED = 1.645  # standard errors: with 95 % confidence the slowness reaches the minimum effect
MIN_SIGMA = 0.01  # for few values that happen to be equal
JITTERY = 0.05  # expected number of nodes with larger noise per slow node, among those whose values look slow
JITTERS = (2.5, 3.5, 5.0, 7.0)  # noise of a jittery node, relative to the usual
REFERENCE_NOISE: Mapping[float, float] = {1.0: 1.0}  # certainly the usual noise
STEP, SLOWEST = 0.025, 0.3  # grid of slownesses that are weighed against one another
_STEPS = 12  # maximum iterations of expectation maximisation


def normal_part(values: Sequence[float]) -> tuple[float, float]:
    """The centre and standard deviation that make these values most likely, treating low ones as outliers.

    For many values the median and the MAD are as good, and faster. For few, a wide spread that contains the outliers
    and a narrow one that excludes them may both be local optima.
    """
    if len(values) > MAX_VALUES:
        return median(values), max(spread(values), MIN_SIGMA)
    fits = [_fit(values, max(start, MIN_SIGMA)) for start in {spread(values), spread_above(values)}]
    _, centre, sigma = max(fits)
    return centre, sigma


def _fit(values: Sequence[float], sigma: float) -> tuple[float, float, float]:
    """The best fit from this start: its likelihood, centre and deviation."""
    centre, share = median(values), OUTLIERS
    for _ in range(_STEPS):
        normal, beyond = _parts(values, centre, sigma, share)
        weights = [of / (of + other) for of, other in zip(normal, beyond, strict=True)]
        total = sum(weights)
        before, centre = centre, sum(map(mul, weights, values)) / total
        squares = sum([weight * (x - centre) ** 2 for weight, x in zip(weights, values, strict=True)])
        sigma = max(sqrt(squares / max(total - 1, 1)), MIN_SIGMA)
        share = (OUTLIERS * VALUES_BEFORE + len(values) - total) / (VALUES_BEFORE + len(values))
        if abs(centre - before) < sigma / 100:
            break
    likely = sum(map(log, map(add, *_parts(values, centre, sigma, share))))
    return likely, centre, sigma


def confidence(
    values: Sequence[float],
    reference: Normal,
    tries: int,
    noise: Mapping[float, float] = REFERENCE_NOISE,
    own_tries: int = 1,
) -> float:
    """One minus a bound on the chance that any of so many healthy nodes has values that look this slow.

    A likelihood ratio above A occurs by chance at most once in A times (Ville's inequality); there are as many tries
    as nodes. Each of the values, and their location, may be what slowness looks like. Also, a node's own noise may be
    larger than that of the others, and all of its values low by chance. `noise` is the prior from other values
    (see `own_noise`), `own_tries` how many such sets of values it has.
    """
    effects = [effect for effect in {*values, location(values)} if effect < 0.0]
    if not effects:
        return 0.0
    without = _as_others((), reference)
    slow = _either([_slow([x - effect for x in values], reference, without, noise) for effect in effects])
    slow -= log(len(effects))
    of_a_normal_node = tries * noise[1.0] * _odds(_as_others(values, reference) - slow)
    of_known_noise = own_tries * _odds(without + _known(noise, values, reference) - slow)
    of_a_jittery_node = JITTERY * _odds(without + _jittery(values, reference) - slow)
    return max(0.0, 1.0 - of_a_normal_node - of_known_noise - of_a_jittery_node)


def at_least(effect: float, values: Sequence[float], reference: Normal) -> float:
    """How likely a node with these values is slower by at least that (a difference of logarithms).

    The prior is uniform over slownesses, and the node's noise may be larger than that of others.
    """
    less = [-STEP * number for number in range(int(SLOWEST / STEP)) if STEP * number < effect]
    more = [-effect - STEP * number for number in range(int((SLOWEST - effect) / STEP))]
    likelihoods = [_either(_with_noise([x - of for x in values], reference).values()) for of in (*less, *more)]
    total = _either(likelihoods)
    return sum(exp(likelihood - total) for likelihood in likelihoods[len(less) :])


def own_noise(values: Sequence[float], reference: Normal) -> dict[float, float]:
    """The likelihood of each noise level, in multiples of the usual, given a node's values."""
    logs = _with_noise(values, reference)
    total = _either(logs.values())
    return {times: exp(likelihood - total) for times, likelihood in logs.items()}


def _with_noise(values: Sequence[float], reference: Normal) -> dict[float, float]:
    """The log-likelihoods of these values together with each noise level."""
    before = {1.0: 1 - JITTERY, **dict.fromkeys(JITTERS, JITTERY / len(JITTERS))}
    return {
        times: log(likely) + _likelihood(values, 0.0, times * reference.sigma, reference.tails)
        for times, likely in before.items()
    }


def noise_of_both(noise: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """The noise of a pair of such nodes: that of the noisier one."""
    worse: dict[float, float] = defaultdict(float)
    for times, likely in noise.items():
        for others_times, others in other.items():
            worse[max(times, others_times)] += likely * others
    return worse


def _slow(values: Sequence[float], reference: Normal, without: float, noise: Mapping[float, float]) -> float:
    """The likelihood for a slow node, whose own noise may be larger too."""
    as_normal = _log(noise[1.0]) + _as_others(values, reference)
    with_its_own = without + _known(noise, values, reference), log(JITTERY) + without + _jittery(values, reference)
    return _either((as_normal, *with_its_own))


def _known(noise: Mapping[float, float], values: Sequence[float], reference: Normal) -> float:
    """The likelihood for a node with larger noise than usual, as far as that is known."""
    larger = {times: likely for times, likely in noise.items() if times > 1.0}
    likelihoods = [
        _log(of) + _likelihood(values, 0.0, times * reference.sigma, reference.tails) for times, of in larger.items()
    ]
    return _either(likelihoods) if likelihoods else -inf


def _log(likely: float) -> float:
    return log(likely) if likely else -inf


def _as_others(values: Sequence[float], reference: Normal) -> float:
    """The log-likelihood of these values; if few others define what is normal, these are included."""
    if not reference.sample:
        return _likelihood(
            values, 0.0, reference.sigma + reference.error, reference.tails
        )  # it is known no more precisely
    together = [*reference.sample, *values]
    return _likelihood(together, *normal_part(together), reference.tails)


def _jittery(values: Sequence[float], reference: Normal) -> float:
    """The likelihood for a node with several times the usual noise, of unknown size."""
    likelihoods = [_likelihood(values, 0.0, times * reference.sigma, reference.tails) for times in JITTERS]
    return _either(likelihoods) - log(len(JITTERS))


def _odds(log_of_them: float) -> float:
    return exp(min(log_of_them, 100.0))


def _either(logs: Collection[float]) -> float:
    """The logarithm of a sum, from the logarithms of its terms."""
    most = max(logs)
    return most if most == -inf else most + log(fsum(exp(value - most) for value in logs))


def _likelihood(values: Sequence[float], centre: float, sigma: float, tails: Tails) -> float:
    about = [x - centre for x in values]
    return sum(map(log, map(add, _normal(about, sigma, 1 - tails.share), map(tails.density, about))))


def _parts(values: Sequence[float], centre: float, sigma: float, share: float) -> tuple[list[float], list[float]]:
    """The densities of these values as normal ones, and as outliers, of which there is this share."""
    about = [x - centre for x in values]
    return _normal(about, sigma, 1 - share), [share * even(x) for x in about]


def _normal(about: Sequence[float], sigma: float, share: float) -> list[float]:
    height = sigma * sqrt(2 * pi)
    return [share * (exp(-0.5 * (x / sigma) ** 2) / height) for x in about]
