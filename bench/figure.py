"""One measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio or a count, its goal where there is one, and what it was made of."""

    name: str
    value: float | None
    goal: str
    detail: str

    def words(self) -> str:
        """One line for people."""
        value = "not measured" if self.value is None else f"{self.value:g}"
        return f"{self.name:<36} {value:<14} goal {self.goal:<8} {self.detail}"
