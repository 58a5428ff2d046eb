"""Aligned columns for people and for `sort`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NUMBER = re.compile(r"(\d+)")
MAX_CELL = 100  # characters of one cell; the last column of a row has no end


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def sorted_by(self, column: str) -> Table:
        """The same rows by one column, numbers by their size; as they are where there is no such column."""
        if column not in self.columns:
            return self
        place = self.columns.index(column)
        return Table(self.columns, tuple(sorted(self.rows, key=lambda row: _natural(row[place]))))

    def lines(self, most: int = 0) -> Iterator[str]:
        """The table as text, of at most so many rows where `most` is given."""
        shown = self.rows[:most] if most else self.rows
        widths = [
            max(len(_cut(row[place])) for row in (self.columns, *shown)) for place in range(len(self.columns) - 1)
        ]
        for row in (self.columns, *shown):
            yield "  ".join([*(_cut(cell).ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip()  # noqa: B905
        if len(shown) < len(self.rows):
            yield f"… and {len(self.rows) - len(shown)} more; --all shows them"


def _cut(cell: str) -> str:
    return cell if len(cell) <= MAX_CELL else f"{cell[: MAX_CELL - 1]}…"


def _natural(text: str) -> list[tuple[int, float, str]]:
    """A key that puts gpu2 before gpu10, and -8 % before 3 %."""
    try:
        return [(0, float(text.split(" ")[0].rstrip("%")), "")]
    except (ValueError, IndexError):
        return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in _NUMBER.split(text)]
