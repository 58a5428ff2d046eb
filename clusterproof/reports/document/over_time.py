"""GPUs and nodes over time: the utilization of each GPU as a coloured band.

For nodes: CPU utilization, time waiting for storage, and network traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from itertools import pairwise
from statistics import fmean, median, median_low

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.training_run.samples import (
    CPU,
    GPU,
    HOST_MEMORY,
    IO_WAIT,
    NETWORK,
    NETWORK_BYTES,
    Samples,
    Series,
)

MAX_BANDS = 64  # with more GPUs, one band per node; with more nodes, only the idlest
MAX_APART, APART = 16, 10.0  # GPUs with their own line, and how many points idler they are
MAX_COLUMNS = 300  # of a band; longer runs have wider columns
LEFT, WIDTH, ROW, HEAD = 170, 600, 11, 4
LEVELS = ((10.0, "idle"), (50.0, "low"), (70.0, "half"), (90.0, "much"))  # upper limits in percent
FULL = "full"
MAX_NAME = 26  # characters
HEIGHT, STROKE = 90, 3
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Band:
    """One line of the chart: a GPU, or all of a node's together; None where nothing was sampled."""

    name: str
    means: Sequence[float | None]  # in each column
    mean: float  # of all samples


def band_section(samples: Samples) -> str:
    """The bands; empty if no GPU was sampled."""
    every = samples.of(GPU)
    if not every:
        return ""
    first, stride, columns = time_bins(every.values())
    bands = of_gpus(every, first, stride, columns)
    what = _gpus(len(bands))
    if len(bands) > MAX_BANDS:
        far = _idle_outliers(bands)
        outliers = far[:MAX_APART]
        bands = of_nodes(every, first, stride, columns)
        what += f" of {len(bands):,} nodes, a line for each node"
        if len(bands) > MAX_BANDS - len(outliers):
            bands = sorted(bands, key=lambda band: band.mean)[: MAX_BANDS - len(outliers)]
            what += f", the {len(bands)} idlest"
        which = f"the {MAX_APART} idlest of {len(far):,} GPUs" if len(far) > MAX_APART else "each GPU"
        what += f", and for {which} that {'are' if len(far) > MAX_APART else 'is'} far idler than most" if far else ""
        bands += outliers
    bands.sort(key=lambda band: band.name)
    drawn = _drawn(bands, what, (first, stride, columns), samples.bin_s)
    return f"<h3>How busy GPUs are</h3><p>{what}.</p>{_legend()}{drawn}"


def _gpus(count: int) -> str:
    return f"{count:,} GPU{'s' * (count != 1)}"


def _idle_outliers(bands: Sequence[Band]) -> list[Band]:
    """The GPUs that are much idler than the median, the idlest first."""
    middle = median(band.mean for band in bands)
    return sorted((band for band in bands if band.mean < middle - APART), key=lambda band: band.mean)


def time_bins(every: Iterable[Series]) -> tuple[int, int, int]:
    """The first stretch, stretches per column, and number of columns."""
    times = [at for series in every if series for at in (min(series), max(series))]
    first, last = min(times), max(times)
    stride = -(-(last - first + 1) // MAX_COLUMNS)
    return first, stride, (last - first) // stride + 1


def of_gpus(every: Mapping[tuple[str, str], Series], first: int, stride: int, columns: int) -> list[Band]:
    """A band for each device."""
    return [_band(f"{node} {device}", [series], first, stride, columns) for (node, device), series in every.items()]


def of_nodes(every: Mapping[tuple[str, str], Series], first: int, stride: int, columns: int) -> list[Band]:
    """A band for each node: the mean over its devices."""
    nodes: dict[str, list[Series]] = {}
    for (node, _), series in every.items():
        nodes.setdefault(node, []).append(series)
    return [_band(node, many, first, stride, columns) for node, many in nodes.items()]


def _band(name: str, many: Sequence[Series], first: int, stride: int, columns: int) -> Band:
    """The mean of several series in each column; None if none has a sample."""
    totals, counts = [0.0] * columns, [0] * columns
    for series in many:
        for column, value in enumerate(_in_columns(series, first, stride, columns)):
            if value is not None:
                totals[column] += value
                counts[column] += 1
    means = [total / count if count else None for total, count in zip(totals, counts, strict=True)]
    return Band(name, means, fmean(fmean(samples.mean for samples in series.values()) for series in many))


def _in_columns(series: Series, first: int, stride: int, columns: int) -> list[float | None]:
    """The mean of its samples in each column; gaps up to one sampling interval repeat the previous column."""
    times = sorted(series)
    sampled: dict[int, list[float]] = {}
    for at in times:
        sampled.setdefault((at - first) // stride, []).append(series[at].mean)
    interval = median_low([later - earlier for earlier, later in pairwise(times)] or [1])
    longest = max(1, -(-3 * interval // (2 * stride)))  # with tolerance, because sampling times vary
    means: list[float | None] = [None] * columns
    for column, following in pairwise([*sampled, columns + longest]):
        end = following if following - column <= longest else column + 1
        means[column:end] = [fmean(sampled[column])] * (end - column)
    return means


def _drawn(bands: Sequence[Band], what: str, axis: tuple[int, int, int], bin_s: int) -> str:
    first, stride, columns = axis
    height = HEAD + ROW * len(bands)
    idlest = min(bands, key=lambda band: band.mean)
    label = f"how busy {what} are over time; the idlest, {idlest.name}, {idlest.mean:.0f} % on average"
    lines = "".join(_line(band, HEAD + ROW * number, columns) for number, band in enumerate(bands))
    begin, end = first * bin_s, (first + stride * columns) * bin_s
    return (
        f'<div class="scroll"><svg class="bands" role="img" aria-label="{escape(printable(label, 400))}" '
        f'viewBox="0 0 {LEFT + WIDTH} {height + 18}" width="{LEFT + WIDTH}" height="{height + 18}">{lines}'
        f'<text x="{LEFT}" y="{height + 13}">{clock(begin)}</text>'
        f'<text class="end" x="{LEFT + WIDTH}" y="{height + 13}">{clock(end)}</text></svg></div>'
    )


def _line(band: Band, top: int, columns: int) -> str:
    """One path per colour, with adjacent stretches of one colour merged."""
    width = WIDTH / columns
    paths: dict[str, list[str]] = {}
    at = 0
    while at < columns:
        name = _level(band.means[at])
        end = at + 1
        while end < columns and _level(band.means[end]) == name:
            end += 1
        if name:
            long = (end - at) * width
            paths.setdefault(name, []).append(f"M{LEFT + at * width:.1f} {top}h{long:.1f}v{ROW - 2}h-{long:.1f}z")
        at = end
    name = printable(band.name, 4 * MAX_NAME)
    shown = name if len(name) <= MAX_NAME else f"…{name[1 - MAX_NAME :]}"
    drawn = "".join(f'<path class="{level}" d="{"".join(parts)}"/>' for level, parts in paths.items())
    return (
        f"<g><title>{escape(name)}: {band.mean:.0f} % on average</title>"
        f'<text class="row" x="{LEFT - 6}" y="{top + ROW - 3}">{escape(shown)}</text>{drawn}</g>'
    )


def _level(percent: float | None) -> str:
    if percent is None:
        return ""
    return next((name for most, name in LEVELS if percent < most), FULL)


def _legend() -> str:
    steps, least = [], 0.0
    for most, name in LEVELS:
        steps.append((name, f"{least:g} to {most:g} %"))
        least = most
    steps.append((FULL, f"{least:g} % and more"))
    shown = "".join(f'<span><i class="{name}"></i> {text}</span>' for name, text in steps)
    return f'<p class="bands-legend">{shown}</p>'


def path_of(means: Sequence[float | None]) -> str:
    """A line through values of 0 to 100, interrupted where there is none; an isolated value is a short stroke."""
    step = WIDTH / max(1, len(means) - 1)
    segments = []
    for before, (number, value), behind in zip((None, *means), enumerate(means), (*means[1:], None), strict=False):
        if value is not None:
            x, y = number * step, HEIGHT * (1 - value / 100)
            is_alone = before is None and behind is None
            stroke = f"M{min(x, WIDTH - STROKE):.1f} {y:.1f}h{STROKE}"
            segments.append(stroke if is_alone else f"{'M' if before is None else 'L'}{x:.1f} {y:.1f}")
    return "".join(segments)


def clock(time_s: float) -> str:
    """`06-03 05:00`; for times relative to the start `00:10:00`."""
    if time_s < 365 * DAY_S:
        hours, rest = divmod(round(time_s), 3600)
        return f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%m-%d %H:%M UTC")


METRICS = (
    (CPU, "CPUs in use", "%"),
    (IO_WAIT, "CPUs that wait for storage", "%"),
    (HOST_MEMORY, "memory of the nodes in use", "%"),
    (NETWORK, "network traffic", "MB/s"),
    (NETWORK_BYTES, "network traffic as SageMaker counts it", "bytes"),
)
NODES_APART = 3  # nodes with their own line
APART_POINTS, APART_SHARE = 10.0, 0.2  # difference of such a node's mean from the median


def nodes_over_time(samples: Samples) -> str:
    """A chart for each of these that was sampled; empty if none was."""
    drawn = "".join(_node_figure(samples, *metric) for metric in METRICS)
    return f"<h3>Nodes over time</h3>{drawn}" if drawn else ""


def _node_figure(samples: Samples, metric: str, what: str, unit: str) -> str:
    every = samples.of(metric)
    if not every:
        return ""
    first, stride, columns = time_bins(every.values())
    bands = of_nodes(every, first, stride, columns)
    middle = [_middle_of([band.means[column] for band in bands]) for column in range(columns)]
    all_far = _far_from_the_middle(bands, unit)
    outliers = all_far[:NODES_APART]
    top = 100.0 if unit == "%" else max(value for band in bands for value in band.means if value is not None) or 1.0
    lines = [path_of(_scaled(means, top)) for means in (middle, *(band.means for band in outliers))]
    drawn = "".join(f'<path class="line line-{number}" d="{line}"/>' for number, line in enumerate(lines))
    far = [f"{printable(band.name, 60)} {band.mean:.4g} {unit} on average" for band in outliers]
    far += [f"and {len(all_far) - len(far):,} more"] if len(all_far) > len(far) else []
    typical = median(band.mean for band in bands)
    label = f"{what}: {number_of(len(bands), 'node')}, median {typical:.4g} {unit} on average"
    label += f"; far from it {'; '.join(far)}" if far else ""
    begin, end = first * samples.bin_s, (first + stride * columns) * samples.bin_s
    return (
        f"<figure><figcaption>{escape(label)}</figcaption>"
        f'<svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'<path class="axis" d="M0 {HEIGHT}H{WIDTH}"/><path class="full" d="M0 0H{WIDTH}"/>{drawn}</svg>'
        f"<p><span>{clock(begin)}</span><span>dotted: {top:.4g} {unit}</span><span>{clock(end)}</span></p></figure>"
    )


def _middle_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _far_from_the_middle(bands: Sequence[Band], unit: str) -> list[Band]:
    """The nodes whose mean is far from the median, the farthest first."""
    middle = median(band.mean for band in bands)
    least = APART_POINTS if unit == "%" else APART_SHARE * middle
    far = [band for band in bands if len(bands) > 1 and abs(band.mean - middle) > least]
    return sorted(far, key=lambda band: -abs(band.mean - middle))


def _scaled(means: Sequence[float | None], top: float) -> list[float | None]:
    return [None if value is None else 100 * value / top for value in means]
