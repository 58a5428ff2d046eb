"""GPU memory usage over time, with its trend."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import median

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.training_run.samples import MEMORY, Samples, Series
from clusterproof.reports.document import table
from clusterproof.reports.document.over_time import HEIGHT, WIDTH, clock, of_gpus, path_of, time_bins

MAX_LINES = 8  # the GPUs with the highest final usage


@dataclass(frozen=True, slots=True)
class Trend:
    """The medians of a GPU's first and last tenth of samples, which a single jump does not change, in percent.

    Their times are in bins.
    """

    begin: float
    begin_at: float
    end: float
    end_at: float

    def per_hour(self, bin_s: int) -> str:
        """`+9.96` points; empty if there is only one sample."""
        hours = (self.end_at - self.begin_at) * bin_s / 3600
        return f"{(self.end - self.begin) / hours:+.2f}" if hours else ""


def memory_section(samples: Samples) -> str:
    """The memory of the GPUs that use most; empty if none was sampled."""
    every = samples.of(MEMORY)
    if not every:
        return ""
    first, stride, columns = time_bins(every.values())
    trends = {f"{node} {device}": trend_of(series) for (node, device), series in every.items()}
    bands = sorted(of_gpus(every, first, stride, columns), key=lambda band: -trends[band.name].end)
    shown = bands[:MAX_LINES]
    peak = max(samples.mean for series in every.values() for samples in series.values())
    lines = "".join(
        f'<path class="line line-{number}" d="{path_of(band.means)}"/>' for number, band in enumerate(shown)
    )
    slope = _path_of_trend(trends[shown[0].name], first, stride, columns)
    rows = []
    for band in shown:
        trend = trends[band.name]
        figures = (f"{percent:.1f} %" for percent in (band.mean, trend.begin, trend.end))
        rows.append((printable(band.name, 80), *figures, trend.per_hour(samples.bin_s)))
    caption = f"memory of {number_of(len(bands), 'GPU')}, at most {peak:.0f} %"
    caption += f", the {MAX_LINES} that use most in the end" if len(bands) > MAX_LINES else ""
    begin, end = first * samples.bin_s, (first + stride * columns) * samples.bin_s
    middle = f"dotted: 100 %, dashed: trend of {escape(printable(shown[0].name, 60))}"
    return (
        f"<h3>GPU memory</h3><figure><figcaption>{caption}</figcaption>"
        f'<svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none" role="img" aria-label="{caption}">'
        f'<path class="axis" d="M0 {HEIGHT}H{WIDTH}"/><path class="full" d="M0 0H{WIDTH}"/>{lines}'
        f'<path class="slope" d="{slope}"/></svg>'
        f"<p><span>{clock(begin)}</span><span>{middle}</span><span>{clock(end)}</span></p></figure>"
        "<details><summary>in figures</summary>"
        f"{table(('GPU', 'mean', 'at first', 'at last', 'points an hour'), rows)}</details>"
    )


def trend_of(series: Series) -> Trend:
    """The trend of a GPU's memory, from the times of its samples."""
    times = sorted(series)
    tenth = max(1, len(times) // 10)
    begin, end = times[:tenth], times[-tenth:]
    first, last = (median(series[at].mean for at in tenth_of) for tenth_of in (begin, end))
    return Trend(first, median(begin), last, median(end))


def _path_of_trend(trend: Trend, first: int, stride: int, columns: int) -> str:
    step = WIDTH / max(1, columns - 1) / stride
    points = ((trend.begin_at, trend.begin), (trend.end_at, trend.end))
    begin, end = (f"{(at - first) * step:.1f} {HEIGHT * (1 - percent / 100):.1f}" for at, percent in points)
    return f"M{begin}L{end}"
