"""The reference of a population of like hardware, and likelihood ratios of one unit's values: good or bad.

A unit is a node, or a device of one. It is bad if it is slower than its population by the declared effect, always or in
the declared share of runs. Values are logarithms, and more is better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, exp, inf, log, pi, sqrt

from clusterproof.plugins.accept.factors import MIN_NODES, Shift, shifts_for, shifts_of
from clusterproof.plugins.benchmarks.pairwise.likelihood import JITTERY, MIN_SIGMA
from clusterproof.plugins.benchmarks.pairwise.normal import Tails, tails
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import median, spread, spread_above

Unit = tuple[str, str]  # a node and its device, empty for the node itself
Values = Mapping[Unit, float]  # of one run
Levels = Mapping[str, Sequence[str]]  # by node: its rack, its group, its versions

MIN_OF_A_RUN = 8  # units, to know what all of a run had in common
POLISHES = 3  # of runs against units, until neither changes
JITTERS = (2.5, 5.0)  # times the usual noise, that of a unit with a noise of its own
USUAL = 3.0  # standard deviations between good units, within which none is bad for that alone
OF_THE_WAY = 0.6  # share of the effect by which good units may differ at most
FASTER = 2.0  # standard deviations above the usual: anything faster counts as this
APART = 0.1  # prior shares of good units that differ by so much to either side
NO_LEVELS: Levels = {}
_MEDIAN = 1.2533  # the median's standard error for normal noise, relative to the mean's
_MAD = 1.17  # the relative standard error of a spread by the MAD, times the square root of the number of values


def declared(share: float) -> str:
    """A share that a plan declares, in percent and in full: 0.025 is `2.5%`."""
    return f"{100 * share:.6g}%"


@record
class Errors:
    """The two error rates and the effect size of a plan: shares between 0 and 1."""

    good_rejected: float  # share of good nodes
    bad_accepted: float  # share of bad nodes
    slower: float  # a bad one is slower by at least this,
    shows_in: float  # in all runs, or in this share of them

    @property
    def effect(self) -> float:
        """The smallest difference of logarithms that is bad."""
        return -log(1 - self.slower)

    @property
    def least_runs(self) -> int:
        """How often to measure each node, so that a fault that shows in some runs is rarely missed in all of them."""
        return max(1, ceil(log(self.bad_accepted) / log(1 - self.shows_in) - 1e-9))


@record
class Reference:
    """Centre and spread of a population, in logarithms."""

    centre: float
    sigma: float  # noise of one unit, from run to run
    between: float  # spread of good units, in addition
    error: float  # standard error of the centre
    tails: Tails
    runs: Mapping[int, float]  # what all units of a run had in common
    middles: Mapping[Unit, float]
    nodes: int
    usual: float  # the centre that was measured, where a floor above it has taken its place
    shifts: tuple[Shift, ...] = ()  # shifts of racks and batches, from the centre

    @property
    def tolerance(self) -> float:
        """How far below the centre a unit may be without being bad for that alone."""
        return USUAL * self.between + self.error

    def error_in_common(self, nodes: int) -> float:
        """The standard error of what this many nodes of a run have in common."""
        return _MEDIAN * self.sigma / sqrt(nodes)

    def reference_for(self, levels: Sequence[str], floor: float | None, effect: float) -> Reference:
        """What a node of these levels is held to: what is usual in its rack and batch, and no less than is due.

        If that is so slow that it is bad, the usual speed of all: a bad rack does not excuse its nodes.
        """
        own = [*shifts_for(levels, self.shifts)]
        by = sum(shift.by for shift in own)
        if not own or by <= -effect or self.centre == floor:
            return self
        few = min(shift.nodes for shift in own)
        error = self.error * sqrt(1 + self.nodes / few)
        return replace(self, centre=self.centre + by if floor is None else max(self.centre + by, floor), error=error)

    def compared_again(self, now: Values, levels: Levels, by_chance: float) -> Reference:
        """The same centre, with what is usual, and what racks and batches have in common, now."""
        shifts = shifts_of(of_nodes(now), levels, by_chance, acceptance.common().least)
        return replace(self, usual=self.centre + median(_without(shifts, now, levels)), shifts=shifts)


def reference_of(
    runs: Mapping[int, Values],
    floor: float | None = None,
    levels: Levels = NO_LEVELS,
    by_chance: float = 0.0,
) -> Reference | None:
    """What is usual, if enough nodes show it; `floor`, a logarithm, is what is due at least.

    With a floor fewer nodes suffice, as what is due is known. What the nodes of a rack or batch in `levels` have in
    common does not count as a difference between good nodes; `by_chance` is how often chance may show it.
    """
    of_unit = by_unit(runs)
    nodes = {node for node, _ in of_unit}
    if not nodes or (len(nodes) < MIN_NODES and floor is None):
        return None
    common = _in_common(runs, of_unit)
    middles = {unit: _middle(own, common) for unit, own in of_unit.items()}
    steps = [step for own in of_unit.values() for step in _steps(own, common)]
    sigma = max(spread(steps), MIN_SIGMA) * (1 + _MAD / sqrt(max(1, len(steps))))
    about = [x for unit, own in of_unit.items() for x in _about(own, middles[unit], common)]
    often = median(map(len, of_unit.values()))
    shifts = shifts_of(of_nodes(middles), levels, by_chance, acceptance.common().least)
    shifted = _without(shifts, middles, levels)
    overall = spread_above(shifted)
    between = sqrt(max(0.0, overall**2 - (_MEDIAN * sigma) ** 2 / often))
    error = _MEDIAN * max(overall, sigma / sqrt(often)) / sqrt(len(nodes))
    centre = usual = median(shifted)
    if floor is not None and (floor > centre or len(nodes) < MIN_NODES):
        centre, between, error = floor, 0.0, 0.0
    return Reference(centre, sigma, between, error, tails(about, sigma), common, middles, len(nodes), usual, shifts)


def _without(shifts: Sequence[Shift], middles: Values, levels: Levels) -> list[float]:
    """The value of each unit without what its node's rack and batch have in common."""
    return [x - sum(shift.by for shift in shifts_for(levels.get(node, ()), shifts)) for (node, _), x in middles.items()]


def of_nodes(middles: Mapping[Unit, float]) -> dict[str, float]:
    """The median of the units of each node."""
    medians_of_units: dict[str, list[float]] = {}
    for (node, _), x in middles.items():
        medians_of_units.setdefault(node, []).append(x)
    return {node: median(own) for node, own in medians_of_units.items()}


def by_unit(runs: Mapping[int, Values]) -> dict[Unit, dict[int, float]]:
    """The values of each unit by run."""
    of_unit: dict[Unit, dict[int, float]] = {}
    for run, values in runs.items():
        for unit, x in values.items():
            of_unit.setdefault(unit, {})[run] = x
    return of_unit


def _in_common(runs: Mapping[int, Values], of_unit: Mapping[Unit, Mapping[int, float]]) -> dict[int, float]:
    """What all units of a run had in common; nothing for a run with few units."""
    common = dict.fromkeys(runs, 0.0)
    for _ in range(POLISHES if len(runs) > 1 else 0):
        middles = {unit: _middle(own, common) for unit, own in of_unit.items()}
        common = {run: in_common(values, middles) for run, values in runs.items()}
    return common


def in_common(values: Values, middles: Mapping[Unit, float]) -> float:
    """What all units of a run had in common, relative to the usual; empty if there are too few units or nodes.

    Otherwise a node that is slow as a whole at times would look usual if it was measured alone.
    """
    known = {unit: x - middles[unit] for unit, x in values.items() if unit in middles}
    return median(known.values()) if is_wide(known) else 0.0


def is_wide(units: Collection[Unit]) -> bool:
    """Whether so many units show what all of a run have in common."""
    return len(units) >= MIN_OF_A_RUN and len({node for node, _ in units}) >= MIN_NODES


def _middle(own: Mapping[int, float], common: Mapping[int, float]) -> float:
    return median(x - common[run] for run, x in own.items())


def _steps(own: Mapping[int, float], common: Mapping[int, float]) -> Iterator[float]:
    """Differences between consecutive runs of a unit, as noise of one: a unit that is always slow has no noise."""
    for before, after in pairwise(own[run] - common[run] for run in sorted(own)):
        yield (after - before) / sqrt(2)


def _about(own: Mapping[int, float], middle: float, common: Mapping[int, float]) -> list[float]:
    """How far a unit's values are from its median, without the nearest one."""
    return sorted((x - common[run] - middle for run, x in own.items()), key=abs)[1:]


def is_bad(xs: Sequence[float], reference: Reference, errors: Errors, tries: int) -> bool:
    """Whether a unit's values are such strong evidence of a fault that a good unit shows it no more often than
    declared.

    The values are relative to the usual and to what their runs had in common. The lowest is ignored, as it may be an
    outlier. `tries` is how many units a node has, in all measurements: one bad unit suffices to reject the node.
    """
    kept = sorted(xs)[1:]
    if not kept or median(kept) > -errors.effect / 2:
        return False
    weigh = _Weighed(kept, reference, errors.shows_in)
    slow = _slow(kept, max(errors.effect, reference.tolerance / OF_THE_WAY))
    good = (0.0, reference.tolerance, -reference.tolerance, max(median(kept), -reference.tolerance))
    of_slow = _mean([max(weigh.slow(shift)) for shift in slow], [1 / len(slow)] * len(slow))
    return of_slow - max(map(weigh.good, good)) >= log(tries / errors.good_rejected)


def is_good(xs: Sequence[float], reference: Reference, errors: Errors) -> bool:
    """The opposite: such strong evidence of being good that a bad unit shows it no more often than declared."""
    if len(xs) < errors.least_runs:
        return False
    fastest = FASTER * reference.sigma  # otherwise it is an outlier, which is evidence for neither
    xs = [min(x, fastest) for x in xs]
    weigh = _Weighed(xs, reference, errors.shows_in)
    within = min(reference.tolerance, OF_THE_WAY * errors.effect)
    good = _mean([weigh.good(shift) for shift in (0.0, within, -within)], [1 - 2 * APART, APART, APART])
    most = good - log(1 / errors.bad_accepted)  # maximum weight of any explanation as bad
    slow = sorted(_slow(xs, errors.effect))
    return all(likely <= most for shift in slow for likely in weigh.slow(shift, above=most))


def _slow(xs: Sequence[float], effect: float) -> set[float]:
    """Slownesses to try: the effect, and values that the unit's own suggest."""
    return {-effect, *(x for x in (*xs, median(xs)) if x < -effect)}


class _Weighed:
    """Log-likelihoods of values."""

    def __init__(self, xs: Sequence[float], reference: Reference, now_and_then: float) -> None:
        self._xs = [(x, reference.tails.density(x)) for x in xs]
        self._sigma = reference.sigma
        self._normal = (1 - reference.tails.share) / sqrt(2 * pi)
        self._part = now_and_then

    def good(self, shift: float) -> float:
        """For a unit with this offset, with the usual noise or more."""
        usually = self._likely(shift, self._sigma)
        return max(usually, *self._jittery(shift, above=usually))

    def slow(self, shift: float, above: float = -inf) -> Iterator[float]:
        """The same for slow at times, always, or with more noise; skips what cannot exceed `above`."""
        yield self._partly(shift)
        yield self._likely(shift, self._sigma)
        yield from self._jittery(shift, above)

    def _jittery(self, shift: float, above: float) -> Iterator[float]:
        yield -inf
        for times in JITTERS:
            beforehand, high = log(JITTERY / len(JITTERS)), self._normal / (times * self._sigma)
            if beforehand + sum([log(high + tail) for _, tail in self._xs]) > above:
                yield beforehand + self._likely(shift, times * self._sigma)

    def _likely(self, shift: float, sigma: float) -> float:
        high, narrow = self._normal / sigma, -0.5 / sigma**2
        return sum([log(high * exp(narrow * (x - shift) ** 2) + tail) for x, tail in self._xs])

    def _partly(self, shift: float) -> float:
        high, narrow = self._normal / self._sigma, -0.5 / self._sigma**2
        off, well = self._part * high, (1 - self._part) * high
        return sum(
            [log(off * exp(narrow * (x - shift) ** 2) + well * exp(narrow * x * x) + tail) for x, tail in self._xs]
        )


def _mean(logs: Sequence[float], shares: Sequence[float]) -> float:
    most = max(logs)
    return most + log(sum(share * exp(each - most) for each, share in zip(logs, shares, strict=True)))
