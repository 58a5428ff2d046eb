"""A heat map as one SVG: colour, and beside it the number in every cell that is not normal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

# From which share of normal on a cell has which class and words, the best first.
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
MAX_TITLE = 300  # characters under the pointer
MARK = "▸ "
_WIDTH_OF_CHAR = 6.7


@dataclass(frozen=True, slots=True)
class Line:
    """A row or column: its name, and whether the findings speak of it."""

    name: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One value wherever it stands in the map, by row and column. `share` is None where all measurements failed."""

    places: tuple[tuple[int, int], ...]
    share: float | None
    title: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """What is drawn. `groups` are runs of rows that begin at a number and have a name."""

    rows: Sequence[Line]
    columns: Sequence[Line]
    cells: Sequence[Cell]
    groups: Mapping[int, str]
    words: str
    cell_px: int


def step(share: float | None) -> str:
    """The class of a share."""
    if share is None:
        return FAILED
    return next((name for least, name, _ in STEPS if share >= least), STEPS[-1][1])


def legend() -> str:
    """What colours and numbers mean."""
    data = [(name, _sample(least, name), words) for least, name, words in STEPS]
    data.append((FAILED, "×", "failed"))
    swatches = "".join(
        f'<span><span class="swatch {name}">{sample}</span> {words}</span>' for name, sample, words in data
    )
    return f'<p class="heat-legend">{swatches}<span>empty: not measured</span></p>'


def _sample(least: float, name: str) -> str:
    return "" if name == NORMAL else f"{max(least, 0.4) * 100 + (0 if name == 'fast' else 2):.0f}"


def drawn(heat: HeatMap) -> str:
    """The map."""
    head = 0.87 * _longest(heat.columns) + 12
    left = _longest(heat.rows) + 8
    of_groups = max((len(_shortened(name)) for name in heat.groups.values()), default=0) * _WIDTH_OF_CHAR
    across, down = len(heat.columns) * heat.cell_px, len(heat.rows) * heat.cell_px
    width, height = left + across + max(of_groups + 14, head * 0.6), head + down + 4
    return (
        f'<div class="scroll"><svg class="heat" role="img" aria-label="{escape(heat.words)}" '
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
            f"M{column * size} {row * size}h{size - 1}v{size - 1}h{1 - size}z" for row, column in cell.places
        )
        title = escape(cell.title[:MAX_TITLE], quote=False)
        by_step.setdefault(step(cell.share), []).append(f'<path d="{path}"><title>{title}</title></path>')
    for name, paths in by_step.items():
        yield f'<g class="{name}">{"".join(paths)}</g>'


def _numbers(heat: HeatMap) -> str:
    size = heat.cell_px
    data = (
        f'<text class="on-{name}" x="{column * size + size // 2}" y="{row * size + size // 2 + 4}">{words}</text>'
        for cell in heat.cells
        if (name := step(cell.share)) != NORMAL
        for words in (_number(cell.share),)
        for row, column in cell.places
    )
    return f'<g class="numbers{" small" if size < 20 else ""}">{"".join(data)}</g>'


def _number(share: float | None) -> str:
    return "×" if share is None else f"{min(share * 100, 999):.0f}"


def _lines(heat: HeatMap, across: int, down: int) -> str:
    """Between groups, both ways."""
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
        yield f'<text class="group" x="{x:.0f}" y="{y:.0f}">{escape(_shortened(heat.groups[start]))}</text>'


def _marked(line: Line) -> str:
    return " marked" if line.is_marked else ""


def _name(line: Line) -> str:
    return f"{MARK if line.is_marked else ''}{escape(_shortened(line.name))}"


def _longest(lines: Sequence[Line]) -> float:
    return max((len(_shortened(line.name)) + 2 * line.is_marked for line in lines), default=0) * _WIDTH_OF_CHAR


def _shortened(name: str) -> str:
    """The end of a long name: there names differ."""
    return name if len(name) <= MAX_LABEL else f"…{name[1 - MAX_LABEL :]}"
