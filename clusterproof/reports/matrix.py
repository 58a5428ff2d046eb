"""Nodes × checks as SVG: colours, with letters or heights so that it is readable without colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict

MAX_WITH_LETTERS = 128  # nodes; above this, a cell is too narrow for a letter, and a title for each would be megabytes
CELL = 14  # units of the drawing, pixels if there is room
WIDEST = 1120  # for all cells together
NARROWEST = 2.5  # for anything but a pass: one node of 1000 must be visible
MAX_TITLE = 120  # characters of a cell's tooltip
MAX_LABEL = 28
LABELS = 16  # maximum number of node names along the edge, if there is no room for all

# After Okabe and Ito: distinguishable with all common kinds of colour vision, and in grey.
COLOURS = {
    Verdict.PASS: "#dbe9f2",
    Verdict.NOT_APPLICABLE: "#f4f4f4",
    Verdict.CONCERN: "#f0e442",
    Verdict.INCOMPLETE: "#cc79a7",
    Verdict.FAIL: "#d55e00",
}
_HEIGHTS = {Verdict.FAIL: 1.0, Verdict.INCOMPLETE: 0.75, Verdict.CONCERN: 0.5}  # of a narrow cell

Cells = Mapping[tuple[str, str], Result]  # by check and node


def matrix(results: Iterable[Result], nodes: Sequence[str]) -> str:
    """The matrix of a run; `nodes` in inventory order. Empty if there is no result.

    Only checks of nodes are shown: a row without a cell would read as not evaluated.
    """
    cells: dict[tuple[str, str], Result] = {}
    for result in results:
        if not result.is_of_node:
            continue
        before = cells.get((result.check, result.node))
        if before is None or result.verdict.rank < before.verdict.rank:
            cells[result.check, result.node] = result
    checks = list(dict.fromkeys(check for check, _ in cells))
    if not cells:
        return ""
    width = CELL if len(nodes) * CELL <= WIDEST else max(WIDEST / len(nodes), 0.5)
    has_letters = len(nodes) <= MAX_WITH_LETTERS
    head = _head_height(nodes) if has_letters else CELL
    left = 7 * min(MAX_LABEL, max(map(len, checks))) + 8
    total, height = left + width * len(nodes) + head / 2, head + CELL * len(checks) + 4
    size = f'viewBox="0 0 {total:g} {height:g}" width="{total:g}" height="{height:g}"'
    parts = [
        f'<svg class="matrix" role="img" aria-label="{len(checks)} checks on {len(nodes)} nodes" {size}>',
        *_node_labels(nodes, left, head, width, has_letters),
        *_check_labels(checks, left, head),
        f'<g transform="translate({left:g} {head:g})">',
        *(_lettered(cells, checks, nodes, width) if has_letters else _striped(cells, checks, nodes, width)),
        "</g></svg>",
    ]
    return "".join(parts)


def legend() -> str:
    """The legend of colours and letters."""
    swatches = (
        f'<span class="swatch" style="background:{colour}">{escape(verdict.letter)}</span> {escape(verdict.value)}'
        for verdict, colour in COLOURS.items()
    )
    return f'<p class="legend">{" ".join(swatches)}</p>'


def _lettered(cells: Cells, checks: Sequence[str], nodes: Sequence[str], width: float) -> Iterator[str]:
    """Passes as each row's background; every other cell individually, with its letter and tooltip."""
    yield from _backgrounds(cells, checks, nodes, width)
    for column, node in enumerate(nodes):
        yield _area(column * width, 0, width, CELL * len(checks), "none", node, 'pointer-events="all"')
    for row, check in enumerate(checks):
        for column, node in enumerate(nodes):
            result = cells.get((check, node))
            if result is not None and result.verdict is not Verdict.PASS:
                yield _cell(result, column * width, row * CELL, width)


def _cell(result: Result, x: float, y: float, width: float) -> str:
    text = f"{result.node} · {result.check}: {result.verdict.value}. {result.message}"
    title = text if len(text) <= MAX_TITLE else f"{text[:MAX_TITLE]}…"
    letter = f'<text x="{x + width / 2:g}" y="{y + CELL - 4:g}">{result.verdict.letter}</text>'
    return f"<g>{_area(x, y, width - 1, CELL - 1, COLOURS[result.verdict])}{letter}<title>{escape(title)}</title></g>"


def _striped(cells: Cells, checks: Sequence[str], nodes: Sequence[str], width: float) -> Iterator[str]:
    """One path per verdict, with equal neighbours merged; the worst last, on top."""
    yield from _backgrounds(cells, checks, nodes, width)
    for verdict in (Verdict.NOT_APPLICABLE, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.FAIL):
        high = _HEIGHTS.get(verdict, 1.0) * (CELL - 1)
        steps = "".join(
            f"M{first * width:.6g} {(row + 1) * CELL - 1 - high:g}h{max(count * width, NARROWEST):.6g}v{high:g}"
            f"h-{max(count * width, NARROWEST):.6g}z"
            for row, check in enumerate(checks)
            for first, count in _runs(cells, check, nodes, {verdict})
        )
        if steps:
            yield f'<path fill="{COLOURS[verdict]}" d="{steps}"><title>{escape(verdict.value)}</title></path>'


def _backgrounds(cells: Cells, checks: Sequence[str], nodes: Sequence[str], width: float) -> Iterator[str]:
    """A background where a check was evaluated, so that unevaluated ones stay white."""
    steps = "".join(
        f"M{first * width:.6g} {row * CELL}h{count * width:.6g}v{CELL - 1}h-{count * width:.6g}z"
        for row, check in enumerate(checks)
        for first, count in _runs(cells, check, nodes, set(Verdict))
    )
    yield f'<path fill="{COLOURS[Verdict.PASS]}" d="{steps}"/>'


def _runs(cells: Cells, check: str, nodes: Sequence[str], of: set[Verdict]) -> Iterator[tuple[int, int]]:
    """Consecutive nodes with one of these verdicts: first index and count."""
    at = 0
    for is_one, run in groupby(nodes, key=lambda node: (result := cells.get((check, node))) and result.verdict in of):
        count = len(list(run))
        if is_one:
            yield at, count
        at += count


def _head_height(nodes: Sequence[str]) -> float:
    return 5.2 * min(MAX_LABEL, max(map(len, nodes))) + 12


def _node_labels(nodes: Sequence[str], left: float, head: float, width: float, are_steep: bool) -> Iterator[str]:
    """Names of nodes along the upper edge: all if there is room, else the first of each of a few stretches."""
    fit_all = width >= 10 if are_steep else False
    step = 1 if fit_all else -(-len(nodes) // LABELS)
    for number in range(0, len(nodes), step):
        x = left + (number + 0.5) * width
        turn = f' transform="rotate(-60 {x:g} {head - 4:g})"' if are_steep else ""
        yield f'<text class="node" x="{x:g}" y="{head - 4:g}"{turn}>{escape(_shortened(nodes[number]))}</text>'


def _check_labels(checks: Sequence[str], left: float, head: float) -> Iterator[str]:
    for row, check in enumerate(checks):
        y = head + row * CELL + CELL - 4
        yield f'<text class="check" x="{left - 6:g}" y="{y:g}">{escape(_shortened(check))}</text>'


def _shortened(name: str) -> str:
    """The end of a long name, where names differ."""
    return name if len(name) <= MAX_LABEL else f"…{name[1 - MAX_LABEL :]}"


def _area(x: float, y: float, width: float, height: float, fill: str, title: str = "", more: str = "") -> str:
    title_tag = f"<title>{escape(title)}</title>" if title else ""
    space = " " if more else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{space}{more}>{title_tag}</rect>'
    )
