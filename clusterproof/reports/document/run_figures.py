"""A training run in figures: its time and phases, step durations, node utilization.

And its ranks side by side, with the slow ones coloured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from itertools import groupby

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.training_run import DATA, kind_of
from clusterproof.plugins.training_run.rules.phases import START, phases
from clusterproof.plugins.training_run.rules.steps import StepTime
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import LINK, NETWORK, NETWORK_BYTES, Samples
from clusterproof.reports.document import table

SHARES = ((1.0, "max"), (0.99, "p99"), (0.95, "p95"), (0.5, "p50"), (0.05, "p5"), (0.0, "min"))
MAX_LOADERS = 8  # that are shown
MAX_NODES = 32  # of the table; of more the first ones
EPOCH_S = 365 * 86_400  # smaller times are relative to the beginning of a file
COLUMNS, WIDTH, HEIGHT = 40, 600, 70  # of the histogram
SHOWN_SHARE = 0.995  # of the steps, the shortest ones: a few long steps would squeeze the others into one column


def summary(run: TrainingRun) -> str:
    """When it ran, its ranks and steps, its start and its checkpoints, as far as recorded."""
    rows = list(_summary(run))
    return f"<h3>The job</h3>{table(('what', 'recorded'), rows)}" if rows else ""


def _summary(run: TrainingRun) -> Iterator[tuple[str, str]]:
    if span := run.data.samples.span:
        began, ended = span
        if began > EPOCH_S:
            yield "sampled from", _clock(began)
            yield "to", _clock(ended)
        yield "sampled for", in_seconds(ended - began)
    loop = run.data.loop
    if loop and (before := run.before_steps):
        yield "before the first step", in_seconds(before[0])
        yield "from the first step to the last", in_seconds(loop.ended - loop.began)
        yield "behind the last step", in_seconds(before[1] - before[0] - (loop.ended - loop.began))
    if ranks := len({*run.data.positions, *run.data.dumps}):
        yield "ranks", f"{ranks:,}"
    series = run.every_step
    if series:
        yield "steps", f"{sum(point.times for point in series):,}"
        yield "in steps, without checkpoints", in_seconds(sum(point.seconds * point.times for point in series))
    for rank, loader in sorted(run.data.loaders.items())[:MAX_LOADERS]:
        yield f"data loader of rank {rank}", loader.description
    if run.data.cores:
        few, most = min(run.data.cores.values()), max(run.data.cores.values())
        yield "CPUs that were sampled, each node", f"{few:,}" if few == most else f"{few:,} to {most:,}"
    ranks = max(1, len(run.data.positions))
    for phase in phases(run.data):
        yield f"{phase.name}, each rank", f"{in_seconds(phase.seconds / ranks)}, {100 * phase.share:.1f} %"
        if phase.name == START:
            starts = max((count for count, _ in run.data.starts.values()), default=1)
            yield "starts", number_of(starts, "start")


def step_figures(series: Sequence[StepTime]) -> str:
    """Percentiles and histogram of step durations, each step as long as on most ranks."""
    if len(series) < 2:
        return ""
    return _figures(sorted((point.seconds, point.times) for point in series), "steps")


def waits_for_data(recorded: RunData) -> str:
    """Percentiles and histogram of how long steps wait for data, over all ranks."""
    waits = sorted(
        (mean, count)
        for (_, name), cells in recorded.parts.items()
        if kind_of(name) == DATA
        for mean, count in cells.values()
    )
    return _figures(waits, "waits for data") if len(waits) > 1 and waits[-1][0] else ""


def _figures(weighted: Sequence[tuple[float, int]], what: str) -> str:
    count = sum(times for _, times in weighted)
    mean = sum(seconds * times for seconds, times in weighted) / count
    percentiles = [in_seconds(_weighed(weighted, share)) for share, _ in SHARES]
    figures = table((what, "mean", *(name for _, name in SHARES)), [(f"{count:,}", in_seconds(mean), *percentiles)])
    return figures + _histogram(weighted, what)


def _weighed(weighted: Sequence[tuple[float, int]], share: float) -> float:
    """The value at that share of the total weight; `weighted` is sorted, each value with its count."""
    left = share * sum(count for _, count in weighted)
    for value, count in weighted:
        left -= count
        if left <= 0:
            return value
    return weighted[-1][0]


def _histogram(weighted: Sequence[tuple[float, int]], what: str) -> str:
    low, high = weighted[0][0], _weighed(weighted, SHOWN_SHARE)
    if high <= low:
        return ""
    columns = [0] * COLUMNS
    for seconds, count in weighted:
        if seconds <= high:
            columns[min(COLUMNS - 1, int(COLUMNS * (seconds - low) / (high - low)))] += count
    top, width = max(columns), WIDTH / COLUMNS
    bars = "".join(
        f'<rect class="phase compute" x="{at * width:.1f}" y="{HEIGHT * (1 - count / top):.1f}" '
        f'width="{width - 1:.1f}" height="{HEIGHT * count / top:.1f}"/>'
        for at, count in enumerate(columns)
        if count
    )
    beyond = sum(count for seconds, count in weighted if seconds > high)
    caption = f"how many {what} take how long, {in_seconds(low)} to {in_seconds(high)}"
    more = f"; {beyond:,} longer" if beyond else ""
    return (
        f'<figure><figcaption>{caption}{more}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{caption}{more}">{bars}</svg></figure>'
    )


def usage_figures(samples: Samples) -> str:
    """Percentiles over time for each node and metric, over all its GPUs; empty if nothing was sampled."""
    values_of: dict[tuple[str, str], list[float]] = {}
    for (metric, node, _), series in samples.series.items():
        values_of.setdefault((node, metric), []).extend(samples.mean for samples in series.values())
    nodes = sorted({node for node, _ in values_of})
    rows = [
        (printable(node, 60), metric, _unit(metric), *(f"{_weighed(weighed, share):.4g}" for share, _ in SHARES))
        for (node, metric), values in sorted(values_of.items())
        if node in nodes[:MAX_NODES] and (weighed := [(value, 1) for value in sorted(values)])
    ]
    if not rows:
        return ""
    more = f" The first {MAX_NODES} of {len(nodes):,} nodes." if len(nodes) > MAX_NODES else ""
    head = ("node", "what", "unit", *(name for _, name in SHARES))
    figures = table(head, rows)
    about = f"Of means of {samples.bin_s} s over all of the time, and of all GPUs of a node together.{more}"
    return f"<details><summary>Use of nodes, in figures</summary><p>{about}</p>{figures}</details>"


def _unit(metric: str) -> str:
    return {"clock": "MHz", LINK: "MB/s", NETWORK: "MB/s", NETWORK_BYTES: "bytes"}.get(metric, "%")


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def in_seconds(seconds: float) -> str:
    """`1.31 s`, `12 ms`, `2.4 h`."""
    for least, unit, of in ((7200.0, "h", 3600.0), (600.0, "min", 60.0), (1.0, "s", 1.0), (1e-3, "ms", 1e-3)):
        if seconds >= least:
            return f"{seconds / of:.3g} {unit}" if seconds / of < 1000 else f"{seconds / of:,.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


MAX_CELLS = 1_024  # with more ranks, neighbours share a cell, which shows the slowest
MAX_ROWS, MIN_ROWS = 8, 3
SLOWER = ((1.03, "level-0"), (1.05, "level-1"), (1.10, "level-2"), (1.25, "level-3"))
WORST = "level-4"
FAST, WORD_FAST = 0.95, "fast"


@dataclass(frozen=True, slots=True)
class RankCell:
    """A rank: its compute time relative to its peers', and where it runs, if known."""

    rank: int
    stage: int
    ratio: float
    where: str = ""


def strip_of_ranks(cells: Sequence[RankCell], verb: str, peers: str, seated: str) -> str:
    """The cells by stage, and a table of the slowest; `seated` says how their nodes are known."""
    slowest = sorted(cells, key=lambda cell: -cell.ratio)
    worst = slowest[0]
    label = f"{len(cells):,} ranks; the slowest, rank {worst.rank}, {verb} {worst.ratio:.2f} times as long as {peers}"
    stages = [list(group) for _, group in groupby(cells, key=lambda cell: cell.stage)]
    each = -(-len(cells) // MAX_CELLS)
    rows = "".join(_stage(stage, each, is_one=len(stages) == 1) for stage in stages)
    rows_of = [
        cell for number, cell in enumerate(slowest[:MAX_ROWS]) if number < MIN_ROWS or cell.ratio >= SLOWER[0][0]
    ]
    has_where = any(cell.where for cell in rows_of)
    head = ("the slowest", "stage", "times as long", *(("where",) if has_where else ()))
    shown = [
        (f"rank {cell.rank}", str(cell.stage), f"{cell.ratio:.2f}", *((cell.where,) if has_where else ()))
        for cell in rows_of
    ]
    several = f", {each} of them to a cell" if each > 1 else ""
    placement = f" Nodes and GPUs {seated}." if seated else ""
    return (
        f"<h3>Ranks side by side</h3>"
        f"<p>How many times as long as {escape(peers)} each rank {escape(verb)}{several}.{escape(placement)}</p>"
        f'{_legend()}<div class="ranks" role="img" aria-label="{escape(label)}">{rows}</div>'
        f"{table(head, shown)}"
    )


def _stage(cells: Sequence[RankCell], ranks_a_square: int, *, is_one: bool) -> str:
    name = "" if is_one else f"<span>stage {cells[0].stage}</span>"
    return f'<div class="stage">{name}<div>{"".join(_cells(cells, ranks_a_square))}</div></div>'


def _cells(cells: Sequence[RankCell], ranks_a_square: int) -> Iterator[str]:
    for at in range(0, len(cells), ranks_a_square):
        worst = max(cells[at : at + ranks_a_square], key=lambda cell: cell.ratio)
        where = f" on {worst.where}" if worst.where else ""
        yield f'<i class="{_level(worst.ratio)}" title="rank {worst.rank}{escape(where)}: {worst.ratio:.2f}"></i>'


def _level(ratio: float) -> str:
    if ratio < FAST:
        return WORD_FAST
    return next((name for most, name in SLOWER if ratio < most), WORST)


def _legend() -> str:
    steps = [(WORD_FAST, f"less than {FAST:g}")]
    least = FAST
    for most, name in SLOWER:
        steps.append((name, f"{least:g} to {most:g}"))
        least = most
    steps.append((WORST, f"{least:g} and more"))
    shown = "".join(f'<span><i class="{name}"></i> {text}</span>' for name, text in steps)
    return f'<p class="ranks-legend">{shown}</p>'
