"""Step durations: outliers, with their causes, and lasting changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from math import sqrt
from statistics import median

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import weighted_median, weighted_spread
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run import CHECKPOINT, kind_of
from clusterproof.plugins.training_run.rules.stragglers import WARM_UP
from clusterproof.plugins.training_run.rules.work import grows, nearest
from clusterproof.plugins.training_run.run_data import RunData, Seconds

LOG_STEPS = "give a log of steps with their parts, docs/training-runs.md shows how"
EACH_STEP = "log each step (Megatron-LM: --log-interval 1), or where a bar says the time give a longer part of the run"
OUTLIER_SIGMAS, OUTLIER_TIMES = 5.0, 1.2  # with ten slow steps of a hundred, mean + 3 sigma finds none
OUTLIER_STEPS, DRIFT_STEPS = 100, 200  # minimum
SEGMENT = 20  # lines on each side of a change, minimum
OUTLIER_LINES, DRIFT_LINES = 20, 2 * SEGMENT  # minimum, for logs whose lines stand for several steps
CERTAIN = 5.0  # standard errors of a change
CLIP = 3.0  # sigmas: one long step is no change


@record
class StepTime:
    """A step and its seconds, without checkpoint; or the last of several steps, and their mean."""

    step: int
    seconds: float
    times: int = 1
    work: str = ""  # the size of its work, such as its batch size, if that may change

    @property
    def first(self) -> int:
        """The first of the steps."""
        return self.step - self.times + 1

    @property
    def label(self) -> str:
        """`250`, `1,241-1,250`."""
        return f"{self.step:,}" if self.times == 1 else f"{self.first:,}-{self.step:,}"


@record
class Outliers:
    """Steps that are far longer than usual, the longest first, and the time lost."""

    steps: tuple[StepTime, ...]
    of: int
    typical_s: float
    lost: float  # s
    share: float  # of all time

    @property
    def count(self) -> int:
        """The number of steps."""
        return sum(step.times for step in self.steps)


@record
class Drift:
    """A lasting change: the step where it begins, and seconds per step before and after."""

    step: int
    before: float
    after: float

    @property
    def times(self) -> float:
        """The ratio of step durations after and before."""
        return self.after / self.before


def step_times(recorded: RunData) -> list[StepTime]:
    """All steps in order, each as long as on most ranks, without checkpoints."""
    saved: dict[tuple[int, int], float] = {}
    for (rank, name), cells in recorded.parts.items():
        if kind_of(name) == CHECKPOINT:
            for step, (seconds, count) in cells.items():
                saved[rank, step] = saved.get((rank, step), 0.0) + seconds * count
    ranks: dict[int, list[tuple[float, int]]] = {}
    for rank, cells in recorded.steps.items():
        for step, (seconds, count) in cells.items():
            own = max(0.0, seconds - saved.get((rank, step), 0.0) / count)
            ranks.setdefault(step, []).append((own, count))
    series: list[StepTime] = []
    for step, seconds_of_ranks in sorted(ranks.items()):
        stands_for = min(count for _, count in seconds_of_ranks)  # a repeated step counts once
        step_count = step - series[-1].step if series else max(1, step)
        series.append(
            StepTime(
                step,
                median(seconds for seconds, _ in seconds_of_ranks),
                max(1, min(stands_for, step_count)),
                recorded.work.get(step, ""),
            )
        )
    return series


def steady(series: Sequence[StepTime]) -> Sequence[StepTime]:
    """Without the warm-up."""
    return [step for step in series if step.first >= series[0].first + WARM_UP] if series else []


def by_work(series: Sequence[StepTime]) -> list[Sequence[StepTime]]:
    """The steps by size of work, each kind in order; the most frequent first."""
    kinds: dict[str, list[StepTime]] = {}
    for step in series:
        kinds.setdefault(step.work, []).append(step)
    return sorted(kinds.values(), key=lambda kind: -_count(kind))


def timed(series: Sequence[StepTime], least: int, least_lines: int) -> Sequence[StepTime]:
    """Those after the warm-up, for each kind with so many steps and lines. Raises Incomplete."""
    ready = steady(series)
    enough = judged(ready, least)
    if not enough:
        kinds = by_work(ready) or [[]]
        of = " that work on as much" if len(kinds) > 1 else ""
        few = (
            f"{number_of(_count(kinds[0]), 'step')}{of} behind the warm-up; expected at least {least}: log more of them"
        )
        raise Incomplete(few, cause=few)
    chosen = [step for kind in enough if len(kind) >= least_lines for step in kind]
    if not chosen:
        most = max(enough, key=_count)
        stands_for = f"{len(most)} lines that stand for {_count(most)} steps"
        few = f"{stands_for}; expected at least {least_lines}: {EACH_STEP}"
        raise Incomplete(few, cause=few)
    return chosen


def judged(series: Sequence[StepTime], least: int) -> list[Sequence[StepTime]]:
    """The kinds with so many steps: of equal work, with others within a fifth of it; or else all steps as one.

    Work that grows from step to step is no kind: longer sequences take longer.
    """
    kinds = by_work(series)
    large = [kind for kind in kinds if _count(kind) >= least]
    rest = sorted((step for kind in kinds if _count(kind) < least for step in kind), key=lambda step: step.step)
    labels = nearest(step.work for step in rest)
    near: dict[str, list[StepTime]] = {}
    for step in rest:
        near.setdefault(labels[step.work], []).append(step)
    large += [_as_one(kind, label) for label, kind in near.items() if _is_judged(kind, least)]
    return large or ([_as_one(series, "")] if _is_judged(series, least) else [])


def _is_judged(kind: Sequence[StepTime], least: int) -> bool:
    return _count(kind) >= least and not grows([step.work for step in kind])


def _as_one(series: Sequence[StepTime], work: str) -> Sequence[StepTime]:
    return [replace(step, work=work) for step in series]


def _count(series: Sequence[StepTime]) -> int:
    return sum(step.times for step in series)


def period(steps: Sequence[StepTime]) -> int:
    """The regular distance of these steps, as for saving or evaluating; 0 if irregular, or fewer than 3."""
    ordered = sorted(steps, key=lambda step: step.step)
    begun = [step for step, before in zip(ordered[1:], ordered, strict=False) if step.first > before.step + 1]
    numbers = [step.step for step in [*ordered[:1], *begun]]
    distances = [later - earlier for earlier, later in pairwise(numbers)]
    tolerance = 2 * max((step.times for step in ordered), default=0)
    period = round(median(distances)) if len(distances) > 1 else 0
    return period if period > tolerance and all(abs(distance - period) <= tolerance for distance in distances) else 0


def outliers(series: Sequence[StepTime], *, within: bool = False) -> Outliers:
    """The steps that are far longer than others of equal work; `typical_s` is that of most of them."""
    kinds = [_outliers(kind, within=within) for kind in by_work(series)] or [_outliers(series, within=within)]
    lost, total_s = sum(kind.lost for kind in kinds), sum(step.seconds * step.times for step in series)
    longest = sorted((step for kind in kinds for step in kind.steps), key=lambda step: -step.seconds)
    of = sum(kind.of for kind in kinds)
    return Outliers(tuple(longest), of, kinds[0].typical_s, lost, lost / total_s if total_s else 0.0)


def _outliers(series: Sequence[StepTime], *, within: bool) -> Outliers:
    """The steps above the median + 5 sigmas, estimated from the middle, that take 1.2 times as long as the median.

    A mean of several steps must be as far above; `within` finds those in which perhaps a single step is.
    """
    seconds, weights = [step.seconds for step in series], [step.times for step in series]
    typical, sigma = weighted_median(seconds, weights), weighted_spread(seconds, weights)
    outlying = [
        step
        for step in series
        if step.seconds - typical
        > max(OUTLIER_SIGMAS * sigma, (OUTLIER_TIMES - 1) * typical / (step.times if within else 1))
    ]
    lost = sum((step.seconds - typical) * step.times for step in outlying)
    return Outliers(tuple(outlying), sum(weights), typical, lost, 0.0)


def drift(series: Sequence[StepTime]) -> Drift | None:
    """The largest lasting increase among steps of equal work; None if none is significant."""
    changes = [_drift(kind) for kind in by_work(series) if len(kind) > 2 * SEGMENT - 1]
    return max((change for change in changes if change), key=lambda change: change.times, default=None)


def _drift(series: Sequence[StepTime]) -> Drift | None:
    """The increase that explains most and is still there at the end; None if none is significant."""
    at = _nearest(series, _change(series))
    before, after = series[:at], series[at:]
    change = Drift(series[at].first, _middle_of(before), _middle_of(after))
    error = sqrt(sum(_spread_of(part) ** 2 / len(part) for part in (before, after)))
    persists = _middle_of(series[-SEGMENT:]) - change.before >= (change.after - change.before) / 2
    is_certain = change.after - change.before > CERTAIN * error
    return change if is_certain and persists and change.before > 0 else None


def _middle_of(series: Sequence[StepTime]) -> float:
    return weighted_median([step.seconds for step in series], [step.times for step in series])


def _spread_of(series: Sequence[StepTime]) -> float:
    return weighted_spread([step.seconds for step in series], [step.times for step in series])


def _change(series: Sequence[StepTime]) -> int:
    """Where the cumulative deviation turns: the first of the later part."""
    seconds, weights = [level.seconds for level in series], [level.times for level in series]
    middle, limit = _middle_of(series), CLIP * _spread_of(series)
    clipped = [min(max(level, middle - limit), middle + limit) for level in seconds] if limit else seconds
    mean = sum(level * weight for level, weight in zip(clipped, weights, strict=True)) / sum(weights)
    total, best, at = 0.0, -1.0, SEGMENT
    for number, (level, weight) in enumerate(zip(clipped[:-SEGMENT], weights, strict=False), 1):
        total += (level - mean) * weight
        if number >= SEGMENT and abs(total) > best:
            best, at = abs(total), number
    return at


def _nearest(series: Sequence[StepTime], at: int) -> int:
    """The position at which each step is nearest to the median of its own side."""
    before, after = _middle_of(series[:at]), _middle_of(series[at:])
    middle, half = (before + after) / 2, (after - before) / 2
    if half <= 0:
        return at
    total, best, nearest_at = 0.0, float("inf"), at
    for number, step in enumerate(series[:-SEGMENT], 1):
        total += min(max(step.seconds - middle, -half), half) * step.times
        if number >= SEGMENT and total < best:
            best, nearest_at = total, number
    return nearest_at


MAX_VALUES = 101  # of a part, used to determine what is usual
LEAST = 0.1  # of a step's excess, from which on a part is a cause


@record
class StepPart:
    """A part of a step that took so many seconds longer than usual, on the rank with the maximum."""

    name: str
    seconds: float
    rank: int


def causes(recorded: RunData, steps: Sequence[StepTime], typical: float) -> list[tuple[StepPart, ...]]:
    """For each step the parts that explain at least a tenth of its excess, the largest first."""
    parts_by_step: list[list[StepPart]] = [[] for _ in steps]
    for (rank, name), cells in (*recorded.parts.items(), *recorded.compute.items()):
        if rank not in recorded.steps or not cells:
            continue
        middle = _middle(cells)
        for number, step in enumerate(steps):
            more = cells.get(step.step, (middle, 1))[0] - middle
            if more > LEAST * (step.seconds - typical) > 0:
                parts_by_step[number].append(StepPart(name, more, rank))
    return [_worst_of_each(parts) for parts in parts_by_step]


def _middle(cells: Seconds) -> float:
    """The median of a sample of them."""
    return median(mean for mean, _ in islice(cells.values(), 0, None, -(-len(cells) // MAX_VALUES)))


def _worst_of_each(parts: Sequence[StepPart]) -> tuple[StepPart, ...]:
    worst: dict[str, StepPart] = {}
    for part in parts:
        if part.name not in worst or part.seconds > worst[part.name].seconds:
            worst[part.name] = part
    return tuple(sorted(worst.values(), key=lambda part: -part.seconds))
