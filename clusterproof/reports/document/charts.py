"""Charts of the load on FSx file systems by minute, from CloudWatch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape

from clusterproof.plugins.catalog.aws import fsx_metrics
from clusterproof.plugins.core.cluster import is_of_aws
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.facts_fsx import FileSystem, Points, clock
from clusterproof.plugins.evidence.aws.mounted_fsx import file_systems
from clusterproof.reports.document import Section, table
from clusterproof.reports.run import Run

MAX_SYSTEMS = 20
MAX_LINES = 8  # per metric: the servers or targets with the highest peaks
WIDTH, HEIGHT = 600, 80  # units of the drawing
FULL = 100.0  # percent
MAX_POINTS = 600  # of a line; more are merged, keeping each stretch's maximum
MINUTE_S = 60
MAX_NAME = 80  # characters


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart: a file system, or one of its servers or targets."""

    name: str
    points: Points

    @property
    def values(self) -> list[float]:
        """The existing points."""
        return [point for point in self.points if point is not None]


def file_systems_section(run: Run) -> Section | None:
    """A chart for each percentage of each file system that nodes mount."""
    if not is_of_aws(run.cluster):
        return None
    try:
        systems = file_systems(run.facts)
    except (Incomplete, NotApplicable):
        return None
    parts = [part for system in systems[:MAX_SYSTEMS] if (part := _system(system))]
    if len(systems) > MAX_SYSTEMS:
        parts.append(f"<p>… and {len(systems) - MAX_SYSTEMS} more file systems</p>")
    return Section("storage", "File systems", "".join(parts)) if parts else None


def _system(system: FileSystem) -> str:
    charts = list(_charts(system))
    if not charts:
        return ""
    try:
        begin = system.begin
    except Incomplete:
        begin = 0.0
    drawn = "".join(_figure(metric, lines, begin) for metric, lines in charts)
    rows = [row for metric, lines in charts for row in _rows(metric, lines[:MAX_LINES])]
    figures = table(("percent of", "where", "mean", "highest"), rows)
    name = escape(printable(system.label, 3 * MAX_NAME))
    return f'<h3>{name}</h3><div class="charts">{drawn}</div><details><summary>in figures</summary>{figures}</details>'


def _charts(system: FileSystem) -> Iterator[tuple[str, list[ChartLine]]]:
    """The chart's text and lines."""
    with suppress(Incomplete, NotApplicable):
        yield "throughput, of what it is made for", [ChartLine("", system.throughput_percent)]
    for name, row in fsx_metrics().items():
        if row.words:
            lines = _lines(system, name)
            if lines:
                yield row.words, lines


def _lines(system: FileSystem, metric: str) -> list[ChartLine]:
    try:
        lines = [ChartLine(printable(series.component, MAX_NAME), series.points) for series in system.series(metric)]
    except (Incomplete, NotApplicable):
        return []
    return sorted((line for line in lines if line.values), key=lambda line: -max(line.values))


def _figure(metric: str, of_all: list[ChartLine], begin: float) -> str:
    lines = of_all[:MAX_LINES]
    left_out = f", the {MAX_LINES} highest of {len(of_all)}" if len(of_all) > len(lines) else ""
    caption = f"{metric}{left_out}"
    points = max((len(line.points) for line in lines), default=0)
    if not points:
        return ""
    top = max([FULL, *(value for line in lines for value in line.values)])
    peak = max((value for line in lines for value in line.values), default=0.0)
    drawn = "".join(
        f'<path class="line line-{number}" d="{_path(line.points, top)}"/>' for number, line in enumerate(lines)
    )
    full = HEIGHT * (1 - FULL / top)
    until = begin + MINUTE_S * (points - 1)
    return (
        f"<figure><figcaption>{escape(caption)}: at most {peak:.0f} %</figcaption>"
        f'<svg viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}" role="img" aria-label="{escape(caption)} by the minute, '
        f'at most {peak:.0f} percent" preserveAspectRatio="none">'
        f'<path class="axis" d="M0 {HEIGHT}H{WIDTH}"/><path class="full" d="M0 {full:.1f}H{WIDTH}"/>{drawn}</svg>'
        f"<p><span>{clock(begin)} UTC</span><span>dotted: 100 %</span><span>{clock(until)} UTC</span></p></figure>"
    )


def _path(points: Points, top: float) -> str:
    """A line with gaps for missing values."""
    stride = -(-len(points) // MAX_POINTS)
    joined = [max(filter(_is_known, points[at : at + stride]), default=None) for at in range(0, len(points), stride)]  # type: ignore[type-var]
    step = WIDTH / max(1, len(joined) - 1)
    segments: list[str] = []
    is_drawn = False
    for number, value in enumerate(joined):
        if value is not None:
            height = HEIGHT * (1 - max(0.0, value) / top)
            segments.append(f"{'L' if is_drawn else 'M'}{number * step:.1f} {height:.1f}{'' if is_drawn else 'h.1'}")
        is_drawn = value is not None
    return "".join(segments)


def _is_known(point: float | None) -> bool:
    return point is not None


def _rows(caption: str, lines: Iterable[ChartLine]) -> Iterator[tuple[str, str, str, str]]:
    for line in lines:
        values = line.values
        if values:
            yield caption, line.name or "as a whole", f"{sum(values) / len(values):.1f} %", f"{max(values):.1f} %"
