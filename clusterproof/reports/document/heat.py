"""Draws measurements as shares of normal, in SVG: pairs as a heat map, and nodes as strips of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor

from clusterproof.reports.document import of_nodes

# The class and text of a cell, from this share of normal on, the best first.
STEPS = (
    (1.10, "fast", "110 % of normal or more"),
    (0.95, "normal", "95 % or more"),
    (0.90, "low-1", "90 to 95 %"),
    (0.80, "low-2", "80 to 90 %"),
    (0.50, "low-3", "50 to 80 %"),
    (0.0, "low-4", "less than 50 %"),
)
NORMAL, FAILED = "normal", "failed"
MAX_LABEL = 22  # characters of a name along an edge
MAX_TITLE = 300  # characters of a tooltip
MARK = "▸ "
_WIDTH_OF_CHAR = 6.7


@dataclass(frozen=True, slots=True)
class HeatMapLine:
    """A row or column: its name, and whether findings name it."""

    name: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A value at a row and column of the map. `share` is None if all measurements failed."""

    positions: tuple[tuple[int, int], ...]
    share: float | None
    title: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The map's contents. `groups` are runs of rows, by first row and name."""

    rows: Sequence[HeatMapLine]
    columns: Sequence[HeatMapLine]
    cells: Sequence[Cell]
    groups: Mapping[int, str]
    label: str
    cell_px: int


def step(share: float | None) -> str:
    """The CSS class of a share."""
    if share is None:
        return FAILED
    return next((name for least, name, _ in STEPS if share >= least), STEPS[-1][1])


def legend() -> str:
    """The legend of colours and numbers."""
    entries = [(name, _sample(least, name), meaning) for least, name, meaning in STEPS]
    entries.append((FAILED, "×", "failed"))
    swatches = "".join(
        f'<span><span class="swatch {name}">{sample}</span> {meaning}</span>' for name, sample, meaning in entries
    )
    return f'<p class="heat-legend">{swatches}<span>empty: not measured</span></p>'


def _sample(least: float, name: str) -> str:
    return "" if name == NORMAL else f"{max(least, 0.4) * 100 + (0 if name == 'fast' else 2):.0f}"


def heat_map(heat: HeatMap) -> str:
    """The map."""
    head = 0.87 * _longest(heat.columns) + 12
    left = _longest(heat.rows) + 8
    of_groups = max((len(label_of(name)) for name in heat.groups.values()), default=0) * _WIDTH_OF_CHAR
    across, down = len(heat.columns) * heat.cell_px, len(heat.rows) * heat.cell_px
    width, height = left + across + max(of_groups + 14, head * 0.6), head + down + 4
    return (
        f'<div class="scroll"><svg class="heat" role="img" aria-label="{escape(heat.label)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f"{''.join(_labels(heat, left, head))}"
        f'<g transform="translate({left:.0f} {head:.0f})"><path class="empty" d="M0 0h{across}v{down}h-{across}z"/>'
        f"{''.join(_fills(heat))}{_numbers(heat)}{_lines(heat, across, down)}</g></svg></div>"
    )


def _fills(heat: HeatMap) -> Iterator[str]:
    by_step: dict[str, list[str]] = {}
    for cell in heat.cells:
        size = heat.cell_px
        path = "".join(
            f"M{column * size} {row * size}h{size - 1}v{size - 1}h{1 - size}z" for row, column in cell.positions
        )
        title = escape(cell.title[:MAX_TITLE], quote=False)
        by_step.setdefault(step(cell.share), []).append(f'<path d="{path}"><title>{title}</title></path>')
    for name, paths in by_step.items():
        yield f'<g class="{name}">{"".join(paths)}</g>'


def _numbers(heat: HeatMap) -> str:
    size = heat.cell_px
    labels = (
        f'<text class="on-{name}" x="{column * size + size // 2}" y="{row * size + size // 2 + 4}">{number}</text>'
        for cell in heat.cells
        if (name := step(cell.share)) != NORMAL
        for number in (_number(cell.share),)
        for row, column in cell.positions
    )
    return f'<g class="numbers{" small" if size < 20 else ""}">{"".join(labels)}</g>'


def _number(share: float | None) -> str:
    return "×" if share is None else f"{min(share * 100, 999):.0f}"


def _lines(heat: HeatMap, across: int, down: int) -> str:
    """The lines between groups, in both directions."""
    size = heat.cell_px
    starts = [start for start in heat.groups if start]
    path = "".join(
        f"M0 {start * size - 0.5:g}h{across}"
        + (f"M{start * size - 0.5:g} 0v{down}" if start < len(heat.columns) else "")
        for start in starts
    )
    return f'<path class="between" d="{path}"/>' if path else ""


def _labels(heat: HeatMap, left: float, head: float) -> Iterable[str]:
    size = heat.cell_px
    for number, row in enumerate(heat.rows):
        y = head + number * size + size // 2 + 4
        yield f'<text class="row{_marked(row)}" x="{left - 5:.0f}" y="{y:.0f}">{_name(row)}</text>'
    for number, column in enumerate(heat.columns):
        x = left + (number + 0.5) * size + 3
        yield (
            f'<text class="column{_marked(column)}" transform="translate({x:.0f} {head - 4:.0f}) rotate(-60)">'
            f"{_name(column)}</text>"
        )
    starts = [*heat.groups, len(heat.rows)]
    for start, end in pairwise(starts):
        x = left + len(heat.columns) * size + 8
        y = head + (start + end) / 2 * size + 4
        yield f'<text class="group" x="{x:.0f}" y="{y:.0f}">{escape(label_of(heat.groups[start]))}</text>'


def _marked(line: HeatMapLine) -> str:
    return " marked" if line.is_marked else ""


def _name(line: HeatMapLine) -> str:
    return f"{MARK if line.is_marked else ''}{escape(label_of(line.name))}"


def _longest(lines: Sequence[HeatMapLine]) -> float:
    return max((len(label_of(line.name)) + 2 * line.is_marked for line in lines), default=0) * _WIDTH_OF_CHAR


def label_of(name: str) -> str:
    """A name along an edge; a long one is reduced to its end, where names differ."""
    return name if len(name) <= MAX_LABEL else f"…{name[1 - MAX_LABEL :]}"


MAX_LINES = 40
WIDTH = 560  # of the axis
ROW = 18
LEFT, RIGHT, HEAD = 180, 250, 22
MAX_NOTE = 38  # characters
_LOW, _HIGH = 0.85, 1.1  # the axis spans at least this


@dataclass(frozen=True, slots=True)
class StripLine:
    """A node, or several in one line: its measurements as shares of normal, and its findings."""

    name: str
    shares: tuple[float, ...]
    failures: int
    note: str = ""
    title: str = ""
    href: str = ""
    is_marked: bool = False


def strip(lines: Sequence[StripLine], slow: float) -> str:
    """The strip; a measurement below `slow` is slow."""
    shares = [share for line in lines for share in line.shares]
    least = max(0.0, min(_LOW, floor(min(shares, default=1.0) * 20) / 20))
    most = min(2.0, max(_HIGH, ceil(max(shares, default=1.0) * 20) / 20))
    scale = _Scale(least, most)
    height = HEAD + ROW * len(lines) + 4
    band = f"M{scale.x(slow):g} {HEAD}H{scale.x(min(2 - slow, most)):g}V{height}H{scale.x(slow):g}z"
    label = f"measurements of {len(lines)} lines of nodes as shares of normal, the worst first"
    return (
        f'<div class="scroll"><svg class="strip" role="group" aria-label="{label}" '
        f'viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" width="{LEFT + WIDTH + RIGHT}" height="{height}">'
        f'<path class="band" d="{band}"/>{"".join(_axis(scale, height))}'
        f"{''.join(_line(line, number, scale) for number, line in enumerate(lines))}</svg></div>"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    least: float
    most: float

    def x(self, share: float) -> float:
        """The position of a share; values off the axis are placed at its end."""
        inside = min(max(share, self.least), self.most)
        return round(2 * (LEFT + WIDTH * (inside - self.least) / (self.most - self.least))) / 2


def _axis(scale: _Scale, height: int) -> Iterator[str]:
    interval = 0.05 if scale.most - scale.least <= 0.5 else 0.1 if scale.most - scale.least <= 1.0 else 0.25
    for number in range(ceil(scale.least / interval - 1e-9), floor(scale.most / interval + 1e-9) + 1):
        share = number * interval
        x = scale.x(share)
        name = "one" if abs(share - 1) < 1e-9 else "grid"
        yield f'<path class="{name}" d="M{x:g} {HEAD}V{height}"/>'
        yield f'<text class="at" x="{x:g}" y="{HEAD - 7}">{share * 100:.0f} %</text>'


def _line(line: StripLine, number: int, scale: _Scale) -> str:
    top = HEAD + number * ROW
    base = top + 13
    marked = " marked" if line.is_marked else ""
    name = escape(label_of(line.name))
    label = f'<text class="row{marked}" x="{LEFT - 12}" y="{base}">{MARK if line.is_marked else ""}{name}</text>'
    if line.href:
        label = f'<a href="{escape(line.href)}">{label}</a>'
    note = escape(line.note if len(line.note) <= MAX_NOTE else f"{line.note[:MAX_NOTE]}…")
    failed = f'<tspan class="failures">{line.failures} × failed</tspan> ' if line.failures else ""
    failures = f'<text class="note" x="{LEFT + WIDTH + 12}" y="{base}">{failed}{note}</text>' if failed or note else ""
    title = f"<title>{escape(line.title[:MAX_TITLE], quote=False)}</title>" if line.title else ""
    hit = f'<path class="hit" d="M{LEFT} {top}h{WIDTH}v{ROW}h-{WIDTH}z">{title}</path>'
    about = of_nodes([line.name]) if line.href else ""
    return f"<g{about}>{label}{failures}{''.join(_ticks(line.shares, top, scale))}{hit}</g>"


def _ticks(shares: Sequence[float], top: int, scale: _Scale) -> Iterator[str]:
    """Slow ticks are taller."""
    by_step: dict[str, set[float]] = {}
    for share in shares:
        by_step.setdefault(step(share), set()).add(scale.x(share))
    for name in sorted(by_step, key=lambda name: name != NORMAL):
        gap, high = (5, ROW - 10) if name == NORMAL else (2, ROW - 4)
        path = "".join(f"M{x:g} {top + gap}v{high}" for x in sorted(by_step[name]))
        yield f'<path class="tick {name}" d="{path}"/>'
