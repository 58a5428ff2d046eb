"""Where wrong elements of a matrix lie (a row, a column, a tile, a lane of each warp), and which bits differ."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import gcd
from typing import NamedTuple

TILES = (16, 32, 64, 128, 256)  # rows and columns computed by one thread block
LANES = 32  # threads of a warp
MAX_BITS = 8  # that are named


class WrongElement(NamedTuple):
    """One wrong element: the expected bits, and those that were computed."""

    row: int
    column: int
    expected: int
    got: int


def location_in_words(elements: list[WrongElement]) -> str:
    """The location of all of them in words: `row 5, column 9`, `column 9 (12 rows)`, `lane 9 of 32 (…)`, `tile …`."""
    rows, columns = sorted({element.row for element in elements}), sorted({element.column for element in elements})
    if len(elements) == 1:
        return f"row {rows[0]}, column {columns[0]}"
    for name, fixed, other, others in (("row", rows, columns, "columns"), ("column", columns, rows, "rows")):
        if len(fixed) == 1:
            return f"{name} {fixed[0]} ({len(other)} {others}{_spacing(other)})"
    for name, indices in (("column", columns), ("row", rows)):
        lanes = {index % LANES for index in indices}
        if len(lanes) == 1 and len(indices) > 1:
            return f"lane {lanes.pop()} of {LANES} ({len(indices)} {name}s)"
    for size in TILES:
        if len({(element.row // size, element.column // size) for element in elements}) == 1:
            return f"one tile of {size} x {size} at row {rows[0] // size * size}, column {columns[0] // size * size}"
    return f"{len(rows)} rows, {len(columns)} columns{_spacing(columns)}"


def _spacing(places: list[int]) -> str:
    """The common distance of the positions, if any but 1."""
    step = reduce(gcd, (after - before for before, after in zip(places, places[1:])), 0)
    return f", {step} apart" if step > 1 else ""


def bits(elements: Iterable[WrongElement]) -> list[int]:
    """The bits that differ in any of them, 0 the lowest: the first of them."""
    differing = reduce(lambda known, element: known | (element.expected ^ element.got), elements, 0)
    return [bit for bit in range(64) if differing >> bit & 1][:MAX_BITS]


def to_report(elements: list[WrongElement], otherwise: str) -> dict[str, object]:
    """All this as a node reports it; `otherwise` is what is wrong where no element is."""
    if not elements:
        return {"where": otherwise, "bits": []}
    return {
        "where": location_in_words(elements),
        "bits": bits(elements),
        "expected": hex(elements[0].expected),
        "got": hex(elements[0].got),
    }
