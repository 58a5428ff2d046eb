"""Nodes over time: how busy their CPUs are, how long they wait for storage, and their network traffic."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import median

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.training_run.samples import CPU, IO_WAIT, NETWORK, Samples
from clusterproof.reports.document.over_time import HEIGHT, WIDTH, Band, clock, of_nodes, path_of, stretches_of

METRICS = (
    (CPU, "CPUs in use", "%"),
    (IO_WAIT, "CPUs that wait for storage", "%"),
    (NETWORK, "network traffic", "MB/s"),
)
MAX_APART = 3  # nodes with a line of their own
APART_POINTS, APART_SHARE = 10.0, 0.2  # how far the mean of such a node is from that of the middle one


def nodes_over_time(samples: Samples) -> str:
    """A drawing for each of these that was sampled; empty where none was."""
    drawn = "".join(_figure(samples, *metric) for metric in METRICS)
    return f"<h3>Nodes over time</h3>{drawn}" if drawn else ""


def _figure(samples: Samples, metric: str, what: str, unit: str) -> str:
    every = samples.of(metric)
    if not every:
        return ""
    first, stride, columns = stretches_of(every.values())
    bands = of_nodes(every, first, stride, columns)
    middle = [_middle([band.means[column] for band in bands]) for column in range(columns)]
    apart = _apart(bands, unit)
    top = 100.0 if unit == "%" else max(value for band in bands for value in band.means if value is not None) or 1.0
    lines = [path_of(_scaled(means, top)) for means in (middle, *(band.means for band in apart))]
    drawn = "".join(f'<path class="line line-{number}" d="{line}"/>' for number, line in enumerate(lines))
    far = "; ".join(f"{printable(band.name, 60)} {band.mean:.4g} {unit} in the mean" for band in apart)
    usual = median(band.mean for band in bands)
    words = f"{what}: {number_of(len(bands), 'node')}, the middle one {usual:.4g} {unit} in the mean"
    words += f"; far from it {far}" if far else ""
    begin, end = first * samples.bin_s, (first + stride * columns) * samples.bin_s
    return (
        f"<figure><figcaption>{escape(words)}</figcaption>"
        f'<svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f'<path class="axis" d="M0 {HEIGHT}H{WIDTH}"/><path class="full" d="M0 0H{WIDTH}"/>{drawn}</svg>'
        f"<p><span>{clock(begin)}</span><span>dotted: {top:.4g} {unit}</span><span>{clock(end)}</span></p></figure>"
    )


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _apart(bands: Sequence[Band], unit: str) -> list[Band]:
    """The nodes whose mean is far from that of the middle one, the farthest first."""
    usual = median(band.mean for band in bands)
    least = APART_POINTS if unit == "%" else APART_SHARE * usual
    far = [band for band in bands if len(bands) > 1 and abs(band.mean - usual) > least]
    return sorted(far, key=lambda band: -abs(band.mean - usual))[:MAX_APART]


def _scaled(means: Sequence[float | None], top: float) -> list[float | None]:
    return [None if value is None else 100 * value / top for value in means]
