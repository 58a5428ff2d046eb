"""Likelihood ratios of a node's values: slow by a given share, or healthy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import exp, fsum, inf, log, pi, sqrt
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.normal import OUTLIERS, VALUES_BEFORE, Normal, Tails, even
from clusterproof.plugins.core.robust import MAX_VALUES, location, spread, spread_above

SURE = 0.995  # from which on a node or link is named
ONE_SIDED = 1.645  # standard errors: at 19 in 20 the slowness may well be the minimum effect
LEAST_SIGMA = 0.01  # of few values that happen to be alike
JITTERY = 0.05  # nodes of a larger noise of their own, for each slow one, among those whose values look slow
JITTERS = (2.5, 3.5, 5.0, 7.0)  # times the usual noise, that of a jittery node
REFERENCE_NOISE: Mapping[float, float] = {1.0: 1.0}  # the usual noise, surely
STEP, SLOWEST = 0.025, 0.3  # of the slownesses of a node that are weighed against one another
_STEPS = 12  # of expectation and maximisation, at most


def normal_part(values: Sequence[float]) -> tuple[float, float]:
    """The centre and standard deviation under which these values are likeliest, those far below taken as outliers.

    Of many values the median and the MAD say as much, and sooner. Of few, a wide spread that holds the outliers and a
    narrow one that leaves them out may each be the best near by.
    """
    if len(values) > MAX_VALUES:
        return median(values), max(spread(values), LEAST_SIGMA)
    fits = [_fit(values, max(start, LEAST_SIGMA)) for start in {spread(values), spread_above(values)}]
    _, centre, sigma = max(fits)
    return centre, sigma


def _fit(values: Sequence[float], sigma: float) -> tuple[float, float, float]:
    """How likely the values are under the best centre and deviation that are found from this one on, and both."""
    centre, share = median(values), OUTLIERS
    for _ in range(_STEPS):
        weights = [_share_of_normal(x - centre, sigma, share) for x in values]
        total = sum(weights)
        before, centre = centre, sum(weight * x for weight, x in zip(weights, values, strict=True)) / total
        squares = sum(weight * (x - centre) ** 2 for weight, x in zip(weights, values, strict=True))
        sigma = max(sqrt(squares / max(total - 1, 1)), LEAST_SIGMA)
        share = (OUTLIERS * VALUES_BEFORE + len(values) - total) / (VALUES_BEFORE + len(values))
        if abs(centre - before) < sigma / 100:
            break
    likely = sum(log((1 - share) * _normal(x - centre, sigma) + share * even(x - centre)) for x in values)
    return likely, centre, sigma


def confidence(
    values: Sequence[float],
    reference: Normal,
    tries: int,
    noise: Mapping[float, float] = REFERENCE_NOISE,
    own_tries: int = 1,
) -> float:
    """One less a bound on the chance that any of so many healthy nodes has values that speak so much for slowness.

    A likelihood ratio above A is had by chance at most once in A times (Ville's inequality); there are as many tries as
    nodes. Each of the values, and their location, may be what slowness looks like. Besides, a node's own noise may be
    larger than that of the others, and all of its values on one side by chance. `noise` is what other values say about
    it beforehand (see `own_noise`), `own_tries` how many such sets of values it has.
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
    """How likely a node with these values is slower by that (a difference of logarithms), or by more.

    Beforehand any slowness is as likely as any other, and its own noise may be larger than that of others.
    """
    less = [-STEP * number for number in range(int(SLOWEST / STEP)) if STEP * number < effect]
    more = [-effect - STEP * number for number in range(int((SLOWEST - effect) / STEP))]
    likelihoods = [_either(_with_noise([x - of for x in values], reference).values()) for of in (*less, *more)]
    whole = _either(likelihoods)
    return sum(exp(likelihood - whole) for likelihood in likelihoods[len(less) :])


def own_noise(values: Sequence[float], reference: Normal) -> dict[float, float]:
    """How likely a node's own noise is each of so many times the usual, by its values."""
    logs = _with_noise(values, reference)
    whole = _either(logs.values())
    return {times: exp(likelihood - whole) for times, likelihood in logs.items()}


def _with_noise(values: Sequence[float], reference: Normal) -> dict[float, float]:
    """The logarithms of how likely a node's own noise is each of so many times the usual, and these are its values."""
    before = {1.0: 1 - JITTERY, **dict.fromkeys(JITTERS, JITTERY / len(JITTERS))}
    return {
        times: log(likely) + _likelihood(values, 0.0, times * reference.sigma, reference.tails)
        for times, likely in before.items()
    }


def noise_of_both(noise: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """The noise of a pair of such nodes: that of the worse."""
    worse: dict[float, float] = defaultdict(float)
    for times, likely in noise.items():
        for others_times, others in other.items():
            worse[max(times, others_times)] += likely * others
    return worse


def _slow(values: Sequence[float], reference: Normal, without: float, noise: Mapping[float, float]) -> float:
    """How likely they are of a slow node, whose own noise may be larger as well."""
    as_normal = _log(noise[1.0]) + _as_others(values, reference)
    with_its_own = without + _known(noise, values, reference), log(JITTERY) + without + _jittery(values, reference)
    return _either((as_normal, *with_its_own))


def _known(noise: Mapping[float, float], values: Sequence[float], reference: Normal) -> float:
    """How likely they are of a node whose noise is larger than the usual, as far as that is known."""
    larger = {times: likely for times, likely in noise.items() if times > 1.0}
    likelihoods = [
        _log(of) + _likelihood(values, 0.0, times * reference.sigma, reference.tails) for times, of in larger.items()
    ]
    return _either(likelihoods) if likelihoods else -inf


def _log(likely: float) -> float:
    return log(likely) if likely else -inf


def _as_others(values: Sequence[float], reference: Normal) -> float:
    """The logarithm of how likely these values are; where few others show what is normal, these are among them."""
    if not reference.sample:
        return _likelihood(
            values, 0.0, reference.sigma + reference.error, reference.tails
        )  # it is no better known than that
    together = [*reference.sample, *values]
    return _likelihood(together, *normal_part(together), reference.tails)


def _jittery(values: Sequence[float], reference: Normal) -> float:
    """How likely they are of a node whose noise is several times the usual, nobody knows how many."""
    likelihoods = [_likelihood(values, 0.0, times * reference.sigma, reference.tails) for times in JITTERS]
    return _either(likelihoods) - log(len(JITTERS))


def _odds(log_of_them: float) -> float:
    return exp(min(log_of_them, 100.0))


def _either(logs: Collection[float]) -> float:
    """The logarithm of the sum of what these are the logarithms of."""
    most = max(logs)
    return most if most == -inf else most + log(fsum(exp(value - most) for value in logs))


def _likelihood(values: Sequence[float], centre: float, sigma: float, tails: Tails) -> float:
    normal = 1 - tails.share
    return sum(log(normal * _normal(x - centre, sigma) + tails.density(x - centre)) for x in values)


def _share_of_normal(x: float, sigma: float, outliers: float) -> float:
    normal = (1 - outliers) * _normal(x, sigma)
    return normal / (normal + outliers * even(x))


def _normal(x: float, sigma: float) -> float:
    return exp(-0.5 * (x / sigma) ** 2) / (sigma * sqrt(2 * pi))
