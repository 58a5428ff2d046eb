"""Sequential testing of a population: all nodes are measured, then those that are undecided again.

A unit is decided once its values are as strong evidence as declared; chance produces that on the other side no more
often (Ville's inequality), however often it is evaluated. A good unit stays good unless it is found bad.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from math import exp, log, sqrt
from random import Random
from typing import Any, TypeVar

from clusterproof.plugins.accept.factors import MIN_NODES, Shift, drift_of, share_of, shifts_for
from clusterproof.plugins.accept.population import (
    NO_LEVELS,
    USUAL,
    Errors,
    Levels,
    Reference,
    Unit,
    Values,
    by_unit,
    in_common,
    is_bad,
    is_good,
    is_wide,
    reference_of,
)
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import median

Key = TypeVar("Key")

MIN_BESIDE = 16  # good nodes for comparison, if there are as many; and at least as many as are open


class Decision(str, Enum):
    """The decision on a unit or a node so far."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


@record
class JudgedUnit:
    """One unit: its decision, its share of the usual value (0.93 is 7 % slower), and its number of runs.

    `share` is relative to its rack and batch, if these differ from others; `of_all` to all units.
    """

    decision: Decision
    share: float
    of_all: float
    runs: int


class Population:
    """One measurement of one kind of hardware. `tries` is how many units a node has, in all measurements.

    `levels` are the racks and batches of all nodes.
    """

    def __init__(self, errors: Errors, tries: int, floor: float | None = None, levels: Levels = NO_LEVELS) -> None:
        self.errors = errors
        self.tries = tries
        self.floor = floor
        self.levels = levels
        self.runs: dict[int, dict[Unit, float]] = {}
        self.nodes: dict[str, set[str]] = {}  # their measured devices
        self.in_doubt: set[Unit] = set()  # these may be slow by design, and are not bad for that
        self.reference: Reference | None = None
        self.is_learned = False  # whether enough was measured to find out what is usual, as far as that is possible
        self.judged: dict[Unit, JudgedUnit] = {}
        self._values: dict[Unit, list[float]] = {}  # beside the usual
        self._common: dict[int, float] = {}  # of the runs that began when it was known
        self._replaced: set[Unit] = set()  # since then: judged once all are measured

    @property
    def decides(self) -> bool:
        """Whether enough nodes show what is usual: with fewer, only a floor can be checked."""
        return self.reference is not None and self.reference.nodes >= MIN_NODES

    def add(self, number: int, values: dict[Unit, float]) -> None:
        """Add a run; if it is known what is usual, decide on the units measured in it."""
        self.runs[number] = values
        self._measured(values)
        if self.reference:
            self._common[number] = self._in_common(self.reference, values)
            self._add_deviations(self.reference, number, self._common[number])
            for unit in values.keys() - self._replaced:
                self._judge(unit, self.reference)

    @property
    def may_learn(self) -> bool:
        """Whether enough was measured to determine what is usual, but that was not done yet."""
        most = max(map(len, by_unit(self.runs).values()), default=0)
        return self.reference is None and most >= self.errors.least_runs

    def learn(self) -> None:
        """Determine what is usual from all runs so far, unless done or some unit lacks runs; decide on all units.

        After hardware was replaced: what racks and batches have in common now.
        """
        if self.may_learn:
            self.is_learned = True
            self.reference = reference_of(self.runs, self.floor, self.levels, self.errors.good_rejected)
            if self.reference:
                for run, common in self.reference.runs.items():
                    self._add_deviations(self.reference, run, common)
                self._judge_all(self.reference)
        elif self.reference and self._replaced:
            now = {unit: median(xs) for unit, xs in self._values.items()}
            self.reference = self.reference.compared_again(now, self.levels, self.errors.good_rejected)
            self._judge_all(self.reference)

    def forget(self, node: str, devices: Collection[str] = ()) -> None:
        """Drop measurements of a node, or of these devices of it: its hardware was replaced."""
        middles = dict(self.reference.middles) if self.reference else {}
        kept: list[dict[Unit, Any]] = [*self.runs.values(), self.judged, self._values, middles]
        gone = {unit for of in kept for unit in of if unit[0] == node and (not devices or unit[1] in devices)}
        for of in kept:
            for unit in gone & of.keys():
                del of[unit]
        self.in_doubt -= gone
        self._replaced |= gone
        self.nodes = {}
        for values in self.runs.values():
            self._measured(values)
        if self.reference:  # nothing is left of it if there are no nodes
            self.reference = replace(self.reference, middles=middles) if self.nodes else None
        self.is_learned = self.is_learned and bool(self.nodes)

    def judged_units(self, node: str) -> list[JudgedUnit]:
        """The state of its units."""
        return [
            self.judged[unit] for device in sorted(self.nodes.get(node, ())) if (unit := (node, device)) in self.judged
        ]

    @property
    def shifts(self) -> Sequence[Shift]:
        """What racks and batches have in common, relative to the usual."""
        return self.reference.shifts if self.reference and self.nodes else ()

    @property
    def drift(self) -> float | None:
        """By how much all units became faster from the first runs to the last; None if that may be chance."""
        wide = [run for run, values in self.runs.items() if is_wide(values)]
        if not self.reference or not wide:
            return None
        common = {**self.reference.runs, **self._common}
        error = self.reference.error_in_common(min(len({node for node, _ in self.runs[run]}) for run in wide))
        return drift_of([common[run] for run in wide], error, self.errors.good_rejected, acceptance.common().least)

    @property
    def below_floor(self) -> float | None:
        """By how much what is usual is below the floor; None if it is not, or by little."""
        if not self.reference or self.floor is None or not self.nodes:
            return None
        by = self.reference.usual - self.floor
        return by if by < 0 and share_of(by) >= acceptance.common().least else None

    @property
    def far_faster(self) -> Mapping[str, float]:
        """Nodes that are faster by what would be bad the other way round, beyond noise, by how much; empty if few are.

        Where most nodes are slow, that is usual.
        """
        if not self.reference:
            return {}
        known = {node: self.judged_units(node) for node in self.nodes}
        of_floor = self.reference.centre - self.reference.usual  # by how much a floor in its place is faster
        by_node = {
            node: median(log(judged.share) for judged in units) + of_floor for node, units in known.items() if units
        }
        runs = {node: min(judged.runs for judged in units) for node, units in known.items() if units}
        noise, least = self.reference.error_in_common(1), self.errors.effect
        fast = {node: by for node, by in by_node.items() if by > max(least, USUAL * noise / sqrt(runs[node]))}
        return fast if len(fast) >= MIN_NODES else {}

    def group_note(self, node: str) -> str:
        """` in group r07`, where a node is held to what is usual there; else empty."""
        of, levels = self.reference, self.levels.get(node, ())
        if of is None or of.reference_for(levels, self.floor, self.errors.effect) is of:
            return ""
        return f" in {' and '.join(level for shift in shifts_for(levels, of.shifts) for level in shift.levels)}"

    def _measured(self, units: Iterable[Unit]) -> None:
        for node, device in units:
            self.nodes.setdefault(node, set()).add(device)

    def _in_common(self, reference: Reference, values: Values) -> float:
        """Only from good units: open ones had bad luck before, and will have less now."""
        good = {unit: x for unit, x in values.items() if self._is(unit, Decision.GOOD)}
        return in_common(good, reference.middles) or in_common(values, reference.middles)

    def _is(self, unit: Unit, decision: Decision) -> bool:
        return unit in self.judged and self.judged[unit].decision is decision

    def _add_deviations(self, reference: Reference, run: int, common: float) -> None:
        for unit, x in self.runs[run].items():
            self._values.setdefault(unit, []).append(x - reference.centre - common)

    def _judge_all(self, reference: Reference) -> None:
        self._replaced = set()
        for unit in self._values:
            self._judge(unit, reference)

    def _judge(self, unit: Unit, reference: Reference) -> None:
        """Bad stays bad; good is looked at again for bad alone. Slower than all by what is bad is never good."""
        own = reference.reference_for(self.levels.get(unit[0], ()), self.floor, self.errors.effect)
        of_all = median(self._values[unit])
        xs = [x - own.centre + reference.centre for x in self._values[unit]]
        decision = self.judged[unit].decision if unit in self.judged else Decision.OPEN
        may_be_bad = decision is not Decision.BAD and unit not in self.in_doubt
        if may_be_bad and is_bad(xs, own, self.errors, self.tries):
            decision = Decision.BAD
        elif decision is Decision.OPEN and of_all > -self.errors.effect and is_good(xs, own, self.errors):
            decision = Decision.GOOD
        self.judged[unit] = JudgedUnit(decision, exp(median(xs)), exp(of_all), len(xs))


def as_fast(by_key: Mapping[Key, Population]) -> set[Key]:
    """Those of these populations whose usual speeds differ by less than half of the effect, once enough is known.

    A node measured in one of them can then be compared with the others. Populations of few nodes are ignored.
    """
    measured = {key: population for key, population in by_key.items() if population.nodes}
    if len(measured) < 2 or not any(population.may_learn for population in measured.values()):
        return set()
    medians = {key: _median_of_units(population) for key, population in measured.items()}
    due = [x for key, x in medians.items() if len(measured[key].nodes) >= MIN_NODES] or [*medians.values()]
    half = measured[next(iter(measured))].errors.effect / 2
    as_fast = {key for key, x in medians.items() if all(abs(x - other) < half for other in due)}
    return as_fast if max(due) - min(due) < half and len(as_fast) > 1 else set()


def _median_of_units(population: Population) -> float:
    return median(median(own.values()) for own in by_unit(population.runs).values())


def joined(populations: Sequence[Population]) -> Population:
    """One population of all that was measured in these, which does not know yet what is usual."""
    of_all = Population(
        populations[0].errors,
        max(population.tries for population in populations),
        populations[0].floor,
        populations[0].levels,
    )
    for population in populations:
        of_all.in_doubt |= population.in_doubt
        for number, values in population.runs.items():
            of_all.add(number, {**of_all.runs.get(number, {}), **values})
    return of_all


def decision_of(parts: Iterable[Decision]) -> Decision:
    """The decision on a node: bad if one unit is, good if all are; open if there are none."""
    seen = set(parts)
    if Decision.BAD in seen:
        return Decision.BAD
    return Decision.GOOD if seen == {Decision.GOOD} else Decision.OPEN


def to_measure(decisions: Mapping[str, Decision], runs: Mapping[str, int], most: int, errors: Errors) -> list[str]:
    """The nodes of the next run; none if all are decided, or were measured `most` times. Bad ones get no more load.

    `runs` is how often each was measured. Nodes measured later than most are accompanied by good nodes.
    """
    kept = [node for node, of in decisions.items() if of is not Decision.BAD]
    first = [node for node in kept if runs.get(node, 0) < errors.least_runs]
    if len(first) == len(kept):
        return first
    is_open = [node for node in kept if decisions[node] is Decision.OPEN and runs.get(node, 0) < most]
    due = {*first, *is_open}
    good = [node for node in kept if node not in due and decisions[node] is Decision.GOOD]
    healthy = Random(len(due)).sample(good, min(len(good), max(MIN_BESIDE, len(due))))  # noqa: S311 - no secret
    chosen = {*due, *healthy} if due else due
    return [node for node in kept if node in chosen]
