"""Measures pairs, then groups, through a launcher within a time budget; each result is stored before the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from clusterproof.plugins.benchmarks.launchers import Measured, PairOrGroup
from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS, Round
from clusterproof.plugins.benchmarks.pairwise.groups import GroupLimits, GroupPlan, next_groups
from clusterproof.plugins.benchmarks.pairwise.journal import Journal, JournalWriter
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, next_round
from clusterproof.plugins.evidence.pairs import GroupMeasurement, Measurement, Reading
from clusterproof.plugins.transport import Unusable

M = TypeVar("M", Measurement, GroupMeasurement)

MIN_FIRST_ROUNDS = 2  # a single one cannot identify a node


class Measuring(Protocol):
    """The launcher interface that a campaign uses."""

    def measure(self, together: Sequence[PairOrGroup], measured: Measured, /) -> None:
        """Measure all these at the same time; `measured` is called once for each, from any thread."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a campaign. Rounds are counted from 1; `rounds` are planned, more if a node stays undecided."""

    round: int
    rounds: int
    measured: int
    seconds_left: float  # approximate maximum


@dataclass(slots=True)
class BatchTime:
    """The duration of a batch of pairs, and what is left of the budget."""

    budget_s: float
    clock: Callable[[], float]
    started: float = field(init=False)
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def took(self, seconds: float) -> None:
        """Record a batch."""
        self.slowest_s = max(self.slowest_s, seconds)

    @property
    def batches_left(self) -> float:
        """How many more batches there is time for."""
        left_s = self.budget_s - (self.clock() - self.started)
        return left_s / self.slowest_s if self.slowest_s else float("inf")


def drive(
    journal: Journal,
    writer: JournalWriter,
    launcher: Measuring,
    budget_s: float,
    at_once: int,
    on_progress: Callable[[Progress], None],
    clock: Callable[[], float] = time.monotonic,
    groups_follow: bool = False,
) -> Journal:
    """Measure until no pair is left, or the budget is used up. Raises Unusable if nothing can be measured.

    If time is short, fewer of the first rounds run, so that suspects can still be retested. Marks the file as finished
    unless `groups_follow`.
    """
    pace = BatchTime(budget_s, clock)
    measurements = list(journal.measurements)
    plan = journal.plan
    left_out = ""
    most_batches = 0  # in a round: retest rounds differ in size
    while not left_out:
        number, pairs = next_round(plan, measurements)
        if not pairs:
            break
        batches = [pairs[start : start + at_once] for start in range(0, len(pairs), at_once)]
        most_batches = max(most_batches, len(batches))
        for done, batch in enumerate(batches):
            if pace.batches_left < 1:
                left_out = _left_out(batches[done:], number)
                break
            started = clock()
            measurements += _measure(launcher, batch, partial(_of_pair, number, len(batch)), writer.measured)
            pace.took(clock() - started)
            rounds = max(number + 1, len(plan.first) + (0 if plan.asked else RETEST_ROUNDS))
            batches_left = (rounds - number - 1) * most_batches + len(batches) - done - 1
            on_progress(Progress(number + 1, rounds, len(measurements), batches_left * pace.slowest_s))
        if number == 0:
            plan = shortened(plan, pace.batches_left / len(batches), writer)
    why_ended = "; ".join(filter(None, (_skipped(plan), left_out)))
    if not groups_follow:
        writer.finish(why_ended)
    return replace(journal, plan=plan, measurements=tuple(measurements), ended=why_ended)


def _of_pair(number: int, at_once: int, pair: Any, reading: Reading) -> Measurement:
    return Measurement(pair, number, at_once, reading)


def drive_groups(
    journal: Journal,
    writer: JournalWriter,
    launcher: Measuring,
    plan: GroupPlan,
    limits: GroupLimits,
    budget_s: float,
    on_batch: Callable[[Sequence[PairOrGroup]], None],
    clock: Callable[[], float] = time.monotonic,
) -> Journal:
    """Measure groups until none is left, the budget is used up, or nothing can be measured any more."""
    writer.groups_planned(plan)
    pace = BatchTime(budget_s, clock)
    measurements = [measurement for measurement in journal.groups if measurement.group in set(plan.groups)]
    left_out = ""
    while groups := next_groups(plan, limits, measurements):
        if pace.batches_left < 1 or budget_s <= 0:
            left_out = f"no time for groups of {len(groups[0].nodes)} nodes and more"
            break
        on_batch(groups)
        started = clock()
        try:
            measurements += _measure(launcher, groups, partial(_of_group, len(groups)), writer.measured_group)
        except Unusable as problem:
            left_out = f"groups of {len(groups[0].nodes)} nodes and more: {problem}"
            break
        pace.took(clock() - started)
    ended = "; ".join(filter(None, (journal.ended, left_out)))
    writer.finish(ended)
    return replace(journal, group_plan=plan, groups=tuple(measurements), ended=ended)


def _of_group(at_once: int, group: Any, reading: Reading) -> GroupMeasurement:
    return GroupMeasurement(group, at_once, reading)


def shortened(plan: PairPlan, rounds_left: float, writer: JournalWriter) -> PairPlan:
    """The plan with as many first rounds as leave time for retests."""
    fits = 1 + int(min(rounds_left, 1e9)) - RETEST_ROUNDS
    first_rounds = max(MIN_FIRST_ROUNDS, fits)
    if plan.asked or first_rounds >= len(plan.first):
        return plan
    writer.limited(first_rounds)
    return replace(plan, first_rounds=first_rounds)


def _measure(
    launcher: Measuring,
    batch: Sequence[PairOrGroup],
    measurement_of: Callable[[Any, Reading], M],
    keep: Callable[[M], None],
) -> list[M]:
    """Measure a batch. Stores successes at once; failures only if there was no interruption."""
    lock = threading.Lock()
    well: list[M] = []
    failed: list[M] = []
    is_over = False

    def measured(nodes: PairOrGroup, reading: Reading) -> None:
        measurement = measurement_of(nodes, reading)
        with lock:
            if is_over:
                return
            if reading.has_succeeded:
                well.append(measurement)
                keep(measurement)
            else:
                failed.append(measurement)

    try:
        launcher.measure(batch, measured)
    except KeyboardInterrupt:  # what was killed thereby has not failed
        with lock:
            failed.clear()
        raise
    finally:
        with lock:
            is_over = True
            for measurement in failed:
                keep(measurement)
    return well + failed


def _left_out(batches: Sequence[Round], number: int) -> str:
    pairs = [pair for batch in batches for pair in batch]
    shown = ", ".join(map(str, pairs[:4])) + (", …" if len(pairs) > 4 else "")
    return f"{len(pairs)} pairs of round {number + 1} ({shown}), and what would have followed"


def _skipped(plan: PairPlan) -> str:
    skipped = plan.planned[len(plan.first) :]
    pairs = sum(map(len, skipped))
    return f"first rounds {len(plan.first) + 1} to {len(plan.planned)} ({pairs} pairs)" if skipped else ""
