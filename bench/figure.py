"""One measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio or a count, its goal if it has one, and the measurements behind it."""

    name: str
    value: float | None
    goal: str
    detail: str

    def words(self) -> str:
        """One line of text."""
        value = "not measured" if self.value is None else f"{self.value:g}"
        return f"{self.name:<36} {value:<14} goal {self.goal:<8} {self.detail}"
