"""A training run in figures: when it ran and what that time went into, how long steps take, how much nodes are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.training_run.rules.phases import START, phases
from clusterproof.plugins.training_run.rules.steps import StepTime
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import LINK, NETWORK, Samples
from clusterproof.reports.document.section import table

SHARES = ((1.0, "max"), (0.99, "p99"), (0.95, "p95"), (0.5, "p50"), (0.05, "p5"), (0.0, "min"))
MAX_NODES = 32  # of the table; of more the first ones
EPOCH_S = 365 * 86_400  # times below count from the beginning of a file
COLUMNS, WIDTH, HEIGHT = 40, 600, 70  # of the histogram
WHOLE = 0.995  # of the steps that it shows, the shortest ones: few long ones would leave the others one column


def summary(run: TrainingRun) -> str:
    """When it ran, its ranks and steps, its start and its checkpoints, as far as that was recorded."""
    rows = list(_summary(run))
    return f"<h3>The job</h3>{table(('what', 'recorded'), rows)}" if rows else ""


def _summary(run: TrainingRun) -> Iterator[tuple[str, str]]:
    samples = run.data.samples
    times = [at * samples.bin_s for series in samples.series.values() for at in (min(series), max(series) + 1)]
    if times:
        began, ended = min(times), max(times)
        if began > EPOCH_S:
            yield "sampled from", _clock(began)
            yield "to", _clock(ended)
        yield "sampled for", in_seconds(ended - began)
    if ranks := len({*run.data.places, *run.data.dumps}):
        yield "ranks", f"{ranks:,}"
    series = run.every_step
    if series:
        yield "steps", f"{sum(point.times for point in series):,}"
        yield "in steps, without checkpoints", in_seconds(sum(point.seconds * point.times for point in series))
    ranks = max(1, len(run.data.places))
    for phase in phases(run.data):
        yield f"{phase.name}, each rank", f"{in_seconds(phase.seconds / ranks)}, {100 * phase.share:.1f} %"
        if phase.name == START:
            starts = max((count for count, _ in run.data.starts.values()), default=1)
            yield "starts", number_of(starts, "start")


def step_figures(series: Sequence[StepTime]) -> str:
    """The percentiles of how long steps take, each as long as in most ranks, and their histogram."""
    if len(series) < 2:
        return ""
    count = sum(point.times for point in series)
    mean = sum(point.seconds * point.times for point in series) / count
    data = sorted((point.seconds, point.times) for point in series)
    percentiles = [in_seconds(_weighed(data, share)) for share, _ in SHARES]
    figures = table(("steps", "mean", *(name for _, name in SHARES)), [(f"{count:,}", in_seconds(mean), *percentiles)])
    return figures + _histogram(data)


def _weighed(data: Sequence[tuple[float, int]], share: float) -> float:
    """The value below or at which that share of all lies; `data` in order, each value with how often it is there."""
    left = share * sum(count for _, count in data)
    for value, count in data:
        left -= count
        if left <= 0:
            return value
    return data[-1][0]


def _histogram(data: Sequence[tuple[float, int]]) -> str:
    low, high = data[0][0], _weighed(data, WHOLE)
    if high <= low:
        return ""
    columns = [0] * COLUMNS
    for seconds, count in data:
        if seconds <= high:
            columns[min(COLUMNS - 1, int(COLUMNS * (seconds - low) / (high - low)))] += count
    top, width = max(columns), WIDTH / COLUMNS
    bars = "".join(
        f'<rect class="phase compute" x="{at * width:.1f}" y="{HEIGHT * (1 - count / top):.1f}" '
        f'width="{width - 1:.1f}" height="{HEIGHT * count / top:.1f}"/>'
        for at, count in enumerate(columns)
        if count
    )
    beyond = sum(count for seconds, count in data if seconds > high)
    words = f"how many steps take how long, {in_seconds(low)} to {in_seconds(high)}"
    more = f"; {beyond:,} longer" if beyond else ""
    return (
        f'<figure><figcaption>{words}{more}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{words}{more}">{bars}</svg></figure>'
    )


def usage_figures(samples: Samples) -> str:
    """Of each node and metric the percentiles over time, of all its GPUs together; empty where nothing was sampled."""
    of_node: dict[tuple[str, str], list[float]] = {}
    for (metric, node, _), series in samples.series.items():
        of_node.setdefault((node, metric), []).extend(samples.mean for samples in series.values())
    nodes = sorted({node for node, _ in of_node})
    rows = [
        (printable(node, 60), metric, _unit(metric), *(f"{_weighed(data, share):.4g}" for share, _ in SHARES))
        for (node, metric), values in sorted(of_node.items())
        if node in nodes[:MAX_NODES] and (data := [(value, 1) for value in sorted(values)])
    ]
    if not rows:
        return ""
    more = f" The first {MAX_NODES} of {len(nodes):,} nodes." if len(nodes) > MAX_NODES else ""
    head = ("node", "what", "unit", *(name for _, name in SHARES))
    figures = table(head, rows)
    about = f"Of means of {samples.bin_s} s over all of the time, and of all GPUs of a node together.{more}"
    return f"<details><summary>Use of nodes, in figures</summary><p>{about}</p>{figures}</details>"


def _unit(metric: str) -> str:
    return {"clock": "MHz", LINK: "MB/s", NETWORK: "MB/s"}.get(metric, "%")


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def in_seconds(seconds: float) -> str:
    """`1.31 s`, `12 ms`, `2.4 h`."""
    for least, unit, of in ((7200.0, "h", 3600.0), (600.0, "min", 60.0), (1.0, "s", 1.0), (1e-3, "ms", 1e-3)):
        if seconds >= least:
            return f"{seconds / of:.3g} {unit}" if seconds / of < 1000 else f"{seconds / of:,.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"
