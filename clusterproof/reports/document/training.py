"""What a training run recorded, in charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from statistics import median

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.robust import weighted_median, weighted_spread
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.training_run import KERNEL, OPERATOR, OTHER
from clusterproof.plugins.training_run.rules.phases import Phase, phases
from clusterproof.plugins.training_run.rules.steps import DRIFT_LINES, StepPart, StepTime, causes, drift, outliers
from clusterproof.plugins.training_run.rules.stragglers import MIN_PEERS
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.reports.document import Section, table
from clusterproof.reports.document.losses import StepAxis, losses_drawn
from clusterproof.reports.document.memory import memory_section
from clusterproof.reports.document.over_time import band_section, nodes_over_time
from clusterproof.reports.document.rules import rules_table
from clusterproof.reports.document.run_figures import (
    RankCell,
    in_seconds,
    step_figures,
    strip_of_ranks,
    summary,
    usage_figures,
    waits_for_data,
)

WIDTH, HEIGHT = 600, 110  # units of the drawing of steps
MAX_POINTS = 600  # of it; more are merged, keeping each stretch's longest
GAP = 5  # times the usual distance: steps in between are unknown
MAX_MARKS = 200  # of long steps
MAX_STEPS, MAX_RANKS, MAX_NAMES = 10, 10, 12  # of tables, and bars
MAX_NAME = 90  # characters of a kernel's name
BAR = 240  # units


def training_section(
    run: TrainingRun, results: Sequence[Result] = (), compared: Mapping[str, Sequence[str]] = {}
) -> Section | None:
    """The section; None if its files have nothing to draw. Its rules are among the `results`.

    `compared`: as for the rules table.
    """
    drawn = (
        summary(run),
        rules_table(run, results, compared),
        _phases(run.data),
        _steps(run),
        waits_for_data(run.data),
        _ranks(run),
        band_section(run.data.samples),
        nodes_over_time(run.data.samples),
        usage_figures(run.data.samples),
        memory_section(run.data.samples),
    )
    parts = [*drawn, *(_spent(run.data, kind, title) for kind, title in _SPENT)]
    body = "".join(part for part in parts if part)
    return Section("training", f"Training run: {printable(run.name, MAX_NAME)}", body) if body else None


_SPENT = (
    (KERNEL, "Kernels, by their time on GPUs"),
    (OPERATOR, "Operators, by their time on CPUs with what they call"),
)


def _phases(recorded: RunData) -> str:
    spent = phases(recorded)
    if not spent:
        return ""
    label = ", ".join(f"{phase.name} {_percent(phase.share)}" for phase in spent)
    at, drawn = 0.0, []
    for phase in spent:
        width = WIDTH * phase.share
        title = f"<title>{phase.name}: {_percent(phase.share)}, {in_seconds(phase.seconds)}</title>"
        drawn.append(f'<rect class="phase {phase.name}" x="{at:.1f}" width="{width:.1f}" height="26">{title}</rect>')
        at += width
    return (
        "<h3>Where the time goes</h3>"
        f'<svg class="phases" viewBox="0 0 {WIDTH} 26" preserveAspectRatio="none" role="img" '
        f'aria-label="Of the time of all ranks: {label}">{"".join(drawn)}</svg>'
        f'<ul class="phases">{"".join(map(_legend, spent))}</ul>'
    )


def _legend(phase: Phase) -> str:
    name = "everything else" if phase.name == OTHER else phase.name
    return (
        f'<li><span class="swatch phase {phase.name}"></span> {name} <b>{_percent(phase.share)}</b> '
        f"{in_seconds(phase.seconds)}</li>"
    )


def _steps(run: TrainingRun) -> str:
    series = run.every_step
    if len(series) < 2:
        learnt = losses_drawn(run, None, ())
        return f"<h3>Loss and gradients</h3>{learnt}" if learnt else ""
    unusual = outliers(series)
    top = max(point.seconds for point in series) or 1.0
    sigma = weighted_spread([point.seconds for point in series], [point.times for point in series])
    scale = min(top, max(3 * unusual.typical_s, 1.2 * unusual.typical_s + 8 * sigma))
    scale = scale or top
    axis = StepAxis(series[0].step, series[-1].step).with_losses(run.data.losses)
    x = axis.x

    def y(seconds: float) -> float:
        return HEIGHT * (1 - min(seconds, scale) / scale)

    few = list(_few(series))
    max_gap = GAP * median(later.step - earlier.step for earlier, later in pairwise(few)) if len(few) > 1 else 0
    line = f"M{x(few[0].step):.1f} {y(few[0].seconds):.1f}" + "".join(
        f"{'M' if later.step - earlier.step > max_gap else 'L'}{x(later.step):.1f} {y(later.seconds):.1f}"
        for earlier, later in pairwise(few)
    )
    marks = "".join(
        f"M{x(outlier.step):.1f} {y(outlier.seconds):.1f}V{HEIGHT}" for outlier in unusual.steps[:MAX_MARKS]
    )
    cut = f", cut at {in_seconds(scale)}" if scale < top else ""
    typical = in_seconds(unusual.typical_s)
    caption = f"{unusual.of:,} steps, usually {typical}, at most {in_seconds(top)}, {unusual.count} far longer"
    return (
        f'<h3>Steps</h3><figure class="steps"><figcaption>{caption}{cut}{_drifts(series)}</figcaption>'
        f'<svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none" role="img" aria-label="Seconds of each '
        f'step: {caption}"><path class="outlier" d="{marks}"/><path class="line" d="{line}"/>'
        f'<path class="full" d="M0 {y(unusual.typical_s):.1f}H{WIDTH}"/></svg>'
        f"<p><span>step {axis.first:,.0f}</span><span>dotted: the usual {typical}</span>"
        f"<span>step {axis.last:,.0f}</span></p></figure>{losses_drawn(run, axis, unusual.steps)}"
        f"{step_figures(series)}{_longest(run, unusual.steps[:MAX_STEPS], unusual.typical_s)}"
    )


def _few(series: Sequence[StepTime]) -> Iterator[StepTime]:
    """At most so many: the longest of each stretch."""
    stride = -(-len(series) // MAX_POINTS)
    for at in range(0, len(series), stride):
        yield max(series[at : at + stride], key=lambda point: point.seconds)


def _drifts(series: Sequence[StepTime]) -> str:
    change = drift(series) if len(series) > DRIFT_LINES else None
    return f"; from step {change.step:,} on {change.times:.2f} times as long as before" if change else ""


def _longest(run: TrainingRun, steps: Sequence[StepTime], typical: float) -> str:
    if not steps:
        return ""
    rows = [
        (step.label, in_seconds(step.seconds), f"{step.seconds / typical:.1f}" if typical else "", _causes(run, parts))
        for step, parts in zip(steps, causes(run.data, steps, typical), strict=True)
    ]
    return table(("step", "takes", "times the usual", "what took longer in it"), rows, "The longest steps")


def _causes(run: TrainingRun, parts: Sequence[StepPart]) -> str:
    lasted = ((f"{printable(part.name, MAX_NAME)} +{in_seconds(part.seconds)}", part.rank) for part in parts[:3])
    return ", ".join(f"{name} ({run.data.rank_words(rank)})" for name, rank in lasted)


def _ranks(run: TrainingRun) -> str:
    try:
        paces = sorted(run.paces.values(), key=lambda pace: (pace.position.stage, pace.position.rank))
    except (Incomplete, NotApplicable):
        return _ranks_by_steps(run)
    cells = [
        RankCell(pace.position.rank, pace.position.stage, pace.ratio, _where(run, pace.position.rank))
        for pace in paces
        if pace.peers + 1 >= MIN_PEERS
    ]
    return (
        strip_of_ranks(cells, "computes", "the others of its stage", _placement_source(run))
        if cells
        else _ranks_by_steps(run)
    )


def _ranks_by_steps(run: TrainingRun) -> str:
    """Without the ranks' compute times: how long their steps take, which in a synchronous job shows little."""
    middle = {
        rank: weighted_median([mean for mean, _ in cells.values()], [count for _, count in cells.values()])
        for rank, cells in run.data.steps.items()
        if cells
    }
    if len(middle) < MIN_PEERS or not (typical := median(middle.values())):
        return ""
    cells = [
        RankCell(rank, run.data.positions[rank].stage, seconds / typical, _where(run, rank))
        for rank, seconds in sorted(middle.items())
    ]
    return strip_of_ranks(cells, "takes for a step", "all ranks", _placement_source(run))


def _where(run: TrainingRun, rank: int) -> str:
    placement = run.placements.get(rank)
    return placement.location if placement else ""


def _placement_source(run: TrainingRun) -> str:
    return next((placement.by for placement in run.placements.values()), "")


def _spent(recorded: RunData, kind: str, title: str) -> str:
    seconds_by_name = {name: spent for (of, name), spent in recorded.spent.items() if of == kind}
    if not seconds_by_name:
        return ""
    most = sorted(seconds_by_name.items(), key=lambda entry: -entry[1][0])[:MAX_NAMES]
    total_s = sum(seconds for seconds, _ in seconds_by_name.values())
    others = total_s - sum(seconds for _, (seconds, _) in most)
    rows = [(name, seconds, number_of(times, "time")) for name, (seconds, times) in most]
    if len(seconds_by_name) > len(most):
        rows.append((number_of(len(seconds_by_name) - len(most), "other"), others, ""))
    top = max(seconds for _, seconds, _ in rows) or 1.0
    data_rows = "".join(_bar(name, seconds, times, top, total_s) for name, seconds, times in rows)
    return f'<h3>{title}</h3><div class="scroll"><table class="bars"><tbody>{data_rows}</tbody></table></div>'


def _bar(name: str, seconds: float, times: str, top: float, total_s: float) -> str:
    full = printable(name, 4 * MAX_NAME)
    shown = full if len(full) <= MAX_NAME else f"{full[:MAX_NAME]}…"
    drawn = (
        f'<svg width="{BAR}" height="12" aria-hidden="true"><rect width="{BAR * seconds / top:.1f}" height="12"/></svg>'
    )
    return (
        f'<tr><th scope="row" title="{escape(full)}"><code>{escape(shown)}</code></th><td>{drawn}</td>'
        f"<td>{_percent(seconds / total_s if total_s else 0.0)}</td><td>{in_seconds(seconds)}</td><td>{times}</td></tr>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.995 else "100 %"
