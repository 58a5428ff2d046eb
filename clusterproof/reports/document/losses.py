"""Losses and gradient norms over the steps of a run: on the axis of step durations, with marks for findings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import median

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import weighted_median
from clusterproof.plugins.training_run.loss_curve import Interval
from clusterproof.plugins.training_run.loss_window import WINDOW
from clusterproof.plugins.training_run.losses import LOSS, NORM, Losses
from clusterproof.plugins.training_run.rules.steps import StepTime
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.reports.document import table
from clusterproof.reports.document.run_figures import in_seconds

WIDTH, HEIGHT = 600, 80  # units of a drawing
GAP = 5  # times the usual distance: beyond it, the line is interrupted
STROKE = 5  # units: the width of an isolated point
BULK, BEYOND = 0.05, 2  # the share that may be cut at each end, and the scale's limit as a multiple of the rest
MIN_SHARED = 0.1  # of an axis that both steps and losses must cover to share it
MAX_ROWS, MAX_MARKS, MAX_SPIKES = 12, 200, 50  # of the table; of unusually long steps


@record
class StepAxis:
    """The range of steps, or epochs, of a drawing."""

    first: float
    last: float

    def x(self, position: float) -> float:
        """The position of a step."""
        return WIDTH * (position - self.first) / ((self.last - self.first) or 1)

    def with_losses(self, losses: Losses) -> StepAxis:
        """The axis extended by the losses; unchanged if either would only be a sliver of it."""
        intervals = [interval for (_, is_step), curve in losses.curves.items() if is_step for interval in curve]
        if not intervals:
            return self
        theirs = axis_of(intervals)
        both = StepAxis(min(self.first, theirs.first), max(self.last, theirs.last))
        least = MIN_SHARED * (both.last - both.first)
        return both if min(self.last - self.first, theirs.last - theirs.first) >= least else self


def axis_of(intervals: Sequence[Interval]) -> StepAxis:
    """The axis for these values, at least one wide."""
    return StepAxis(min(interval.begin for interval in intervals), max(interval.end for interval in intervals))


@record
class Mark:
    """A loss or norm named by a rule: position, kind of problem, and log."""

    kind: str  # LOSS or NORM
    at: str  # `step 500`, `epoch 0.31`
    what: str  # `nan in 20 of 1,000 lines, first here`
    value: float | None  # None if not a number
    name: str
    others: int = 0  # number of other logs with some there

    @property
    def is_step(self) -> bool:
        """Whether its position is a step."""
        return self.at.startswith("step ")

    @property
    def position(self) -> float:
        """The position as a number."""
        return float(self.at.partition(" ")[2])

    @property
    def description(self) -> str:
        """`rank 0 and 7 more: loss of 30.6, 13.2 times the largest of the lines before`."""
        more = f" and {self.others:,} more" if self.others else ""
        return f"{self.name}{more}: {self.kind} {self.what}"


def losses_drawn(run: TrainingRun, axis: StepAxis | None, slow: Sequence[StepTime]) -> str:
    """A chart of the losses and one of the norms, if logged, and a table of findings; empty without any.

    Uses `axis`, that of step durations, if it fits; `slow` are unusually long steps.
    """
    marks = _marks(run)
    drawn = []
    for (kind, is_step), curve in sorted(run.data.losses.curves.items()):
        intervals = list(curve)
        own = axis_of(intervals)
        is_on_it = is_step and axis is not None and axis.first <= own.first and own.last <= axis.last
        named = [mark for mark in marks if (mark.kind, mark.is_step) == (kind, is_step)]
        shown = axis if axis is not None and is_on_it else own
        drawn.append(
            _Drawing(kind, "step" if is_step else "epoch", intervals, shown, _scale(intervals)).figure(
                named, slow if is_on_it else ()
            )
        )
    return "".join(drawn) + _table(marks, run.every_step)


def _marks(run: TrainingRun) -> list[Mark]:
    """Findings of the loss rules: non-numbers, and leaps above their thresholds; of one step only the highest."""
    highest: dict[tuple[str, str, bool], Mark] = {}
    names: dict[tuple[str, str, bool], set[str]] = {}
    for name, kind, at, what, value in (*_no_numbers(run.data.losses), *_leaps(run)):
        key = kind, at, value is None
        names.setdefault(key, set()).add(name)
        if key not in highest or (value or 0.0) > (highest[key].value or 0.0):
            highest[key] = Mark(kind, at, what, value, name)
    return [replace(mark, others=len(names[key]) - 1) for key, mark in highest.items()]


def _no_numbers(losses: Losses) -> Iterator[tuple[str, str, str, str, float | None]]:
    """For each series its name, kind, step, what is there, and None."""
    for name, series in losses.never_again:
        yield name, LOSS, series.since, f"{series.word} from here on, in {number_of(series.at_end, 'line')}", None
    for name, series in losses.for_a_while:
        yield name, LOSS, series.first_wrong, f"{series.word} in {number_of(series.wrong, 'line')}, first here", None
    for name, series in losses.without_norm:
        yield name, NORM, series.since, f"{series.word} from here on, in {number_of(series.at_end, 'line')}", None


def _leaps(run: TrainingRun) -> Iterator[tuple[str, str, str, str, float | None]]:
    """The same for leaps, with their values."""
    losses = run.data.losses
    most, mean, norm = (run.threshold(f"run.{name}") for name in ("loss_leap", "loss_rise", "norm_leap"))
    before = f"of the {WINDOW} lines before"
    of_losses = [(name, LOSS, series) for name, series in losses.named(losses.losses)]
    for name, kind, series in (*of_losses, *((name, NORM, series) for name, series in losses.named(losses.norms))):
        highest, rise = series.window.leap, series.window.rise
        for leap in series.window.leaps or ([highest] if highest else []):
            if leap.times < (most if kind == LOSS else norm):
                continue
            yield name, kind, leap.at, f"{leap.value:.3g}, {leap.times:,.1f} times the largest {before}", leap.value
        if rise and kind == LOSS and rise.times >= mean:
            yield name, kind, rise.at, f"{rise.value:.3g}, {rise.times:,.1f} times the mean {before}", rise.value


@record
class _Drawing:
    """A chart of losses, or norms: its axes and their contents."""

    kind: str
    unit: str  # step, epoch
    intervals: Sequence[Interval]
    axis: StepAxis
    scale: tuple[float, float]  # the lowest and highest numbers shown

    def figure(self, marks: Sequence[Mark], slow: Sequence[StepTime]) -> str:
        """The chart, its caption, and its legend."""
        steps = "".join(f"M{self.axis.x(step.step):.1f} -6V{HEIGHT + 4}" for step in slow[:MAX_MARKS])
        wrong = "".join(f"M{self._across(interval, -3)}" for interval in self.intervals if interval.wrong)
        leaps = sorted((mark for mark in marks if mark.value is not None), key=lambda mark: -(mark.value or 0.0))
        spikes = "".join(map(self._spike, leaps[:MAX_SPIKES]))
        runs = list(_unbroken(self.intervals))
        area = "".join(self._area(run) for run in runs if any(interval.low < interval.high for interval in run))
        line = "".join(self._line(run) for run in runs)
        means = (
            (steps, "vertical lines: far longer steps"),
            (spikes, "dots: the highest spikes"),
            (wrong, "bars: nan or inf"),
            (area, "shade: lowest to highest"),
        )
        legend = ", ".join(label for drawn, label in means if drawn)
        return (
            f'<figure class="loss"><figcaption>{self._caption}</figcaption>'
            f'<svg viewBox="0 -6 {WIDTH} {HEIGHT + 10}" preserveAspectRatio="none" role="img" '
            f'aria-label="{self._caption}"><path class="spread" d="{area}"/><path class="line" d="{line}"/>'
            f'<path class="outlier" d="{steps}"/><path class="wrong" d="{wrong}"/>{spikes}</svg>'
            f"<p><span>{self._at(self.axis.first)}</span><span>{legend}</span>"
            f"<span>{self._at(self.axis.last)}</span></p></figure>"
        )

    @property
    def _caption(self) -> str:
        """`loss by step: 980 lines, 2.1 to 30.6, cut at 16; nan or inf in 20 lines`."""
        known = [interval for interval in self.intervals if interval.lines]
        caption = f"{self.kind} by {self.unit}"
        if known:
            low, high = min(interval.low for interval in known), max(interval.high for interval in known)
            lines = number_of(sum(interval.lines for interval in known), "line")
            caption += f": {lines}, {low:.3g}" + (f" to {high:.3g}" if low < high else "")
            cut = [f"{end:.3g}" for end, whole in zip(self.scale, (low, high), strict=True) if end != whole]
            caption += f", cut at {' and '.join(cut)}" if cut else ""
        wrong = sum(interval.wrong for interval in self.intervals)
        return f"{caption}; nan or inf in {number_of(wrong, 'line')}" if wrong else caption

    def _at(self, position: float) -> str:
        return f"step {position:,.0f}" if self.unit == "step" else f"epoch {position:.3g}"

    def _y(self, value: float) -> float:
        low, high = self.scale
        return HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low)) if high > low else HEIGHT / 2

    def _across(self, interval: Interval, y: float) -> str:
        begin = min(self.axis.x(interval.begin), WIDTH - STROKE)
        return f"{begin:.1f} {y:.1f}H{max(self.axis.x(interval.end), begin + STROKE):.1f}"

    def _line(self, run: Sequence[Interval]) -> str:
        if len(run) == 1:
            return f"M{self._across(run[0], self._y(run[0].mean))}"
        points = (f"{self.axis.x(interval.middle):.1f} {self._y(interval.mean):.1f}" for interval in run)
        return "M" + "L".join(points)

    def _area(self, run: Sequence[Interval]) -> str:
        """The range between lowest and highest."""
        above = [f"{self.axis.x(interval.middle):.1f} {self._y(interval.high):.1f}" for interval in run]
        below = [f"{self.axis.x(interval.middle):.1f} {self._y(interval.low):.1f}" for interval in reversed(run)]
        return f"M{'L'.join([*above, *below])}Z"

    def _spike(self, mark: Mark) -> str:
        at = f"{self.axis.x(mark.position):.1f} {self._y(mark.value or 0.0):.1f}"
        return f'<path class="spike" d="M{at}h0"><title>{escape(f"{mark.description} at {mark.at}")}</title></path>'


def _scale(intervals: Sequence[Interval]) -> tuple[float, float]:
    """The lowest and highest numbers to show: a few outliers must not flatten the rest."""
    known = [interval for interval in intervals if interval.lines]
    lows, highs = sorted(interval.low for interval in known), sorted(interval.high for interval in known)
    if not known:
        return 0.0, 0.0
    rest = int(BULK * len(known))
    more = BEYOND * (highs[-1 - rest] - lows[rest])
    return (max(lows[0], lows[rest] - more), min(highs[-1], highs[-1 - rest] + more)) if more else (lows[0], highs[-1])


def _unbroken(intervals: Sequence[Interval]) -> Iterator[list[Interval]]:
    """Sequences without gaps or non-numbers."""
    max_gap = (
        GAP * median(later.middle - earlier.middle for earlier, later in pairwise(intervals))
        if len(intervals) > 1
        else 0.0
    )
    run: list[Interval] = []
    for interval in intervals:
        if run and (not interval.lines or interval.middle - run[-1].middle > max_gap):
            yield run
            run = []
        if interval.lines:
            run.append(interval)
    if run:
        yield run


def _table(marks: Sequence[Mark], series: Sequence[StepTime]) -> str:
    """The findings, with the durations of their steps."""
    if not marks:
        return ""
    median_s = weighted_median([step.seconds for step in series], [step.times for step in series]) if series else 0.0
    ends = [step.step for step in series]
    rows = []
    for mark in sorted(marks, key=lambda mark: (not mark.is_step, mark.position))[:MAX_ROWS]:
        after = bisect_left(ends, mark.position) if mark.is_step else len(ends)
        step = series[after] if after < len(ends) and series[after].first <= mark.position else None
        lasted = (
            (in_seconds(step.seconds), f"{step.seconds / median_s:.1f}" if median_s else "")
            if step
            else ("not known", "")
        )
        rows.append((mark.at, mark.description, *lasted))
    more = f"; {len(marks) - MAX_ROWS:,} more" if len(marks) > MAX_ROWS else ""
    head = ("at", "loss or norm", "that step takes", "times the usual")
    return table(head, rows, f"What rules name, and how long those steps take{more}")
