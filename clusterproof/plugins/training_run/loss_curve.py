"""Losses, or gradient norms, over the steps of a run: merged into as few stretches as can be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite

MAX_STRETCHES = 600  # of a curve; above this, neighbours are merged
LARGEST = 1e300  # maximum drawn, so that differences are finite
FARTHEST = 1e18  # maximum step or epoch


@dataclass(slots=True)
class Stretch:
    """Lines of neighbouring steps, from all logs: their range, and their lowest, mean and highest number."""

    begin: float
    end: float
    low: float = inf
    high: float = -inf
    mean: float = 0.0
    lines: int = 0  # with a number
    wrong: int = 0  # with nan or inf

    @property
    def middle(self) -> float:
        """The position of its mean."""
        return (self.begin + self.end) / 2

    def add(self, at: float, value: float, *, is_wrong: bool) -> None:
        """Add a line; `is_wrong` if its number stands for some invalid ones."""
        self.begin, self.end = (at if at < self.begin else self.begin), (at if at > self.end else self.end)
        if is_wrong or not isfinite(value):
            self.wrong += 1
        if isfinite(value):
            value = max(-LARGEST, min(LARGEST, value))
            self.low, self.high = (value if value < self.low else self.low), (value if value > self.high else self.high)
            self.lines += 1
            self.mean += (value - self.mean) / self.lines

    def join(self, other: Stretch) -> None:
        """Merge another."""
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.lines += other.lines
        self.wrong += other.wrong
        if other.lines:
            self.mean += (other.mean - self.mean) * other.lines / self.lines


@dataclass(slots=True)
class LossCurve:
    """All lines, in any order, in at most so many stretches of equal width."""

    width: float = 1.0
    _stretches: dict[float, Stretch] = field(default_factory=dict)

    def add(self, position: float, value: float, *, is_wrong: bool) -> None:
        """Add a line: its step or epoch, and its number; `is_wrong` as for a stretch."""
        at = max(-FARTHEST, min(FARTHEST, position))
        number = at // self.width
        stretch = self._stretches.get(number)
        if stretch is None:
            stretch = self._stretches[number] = Stretch(at, at)
        stretch.add(at, value, is_wrong=is_wrong)
        while len(self._stretches) > MAX_STRETCHES:
            self.width *= 2
            before, self._stretches = self._stretches, {}
            for other in before.values():
                self._join(other)

    def _join(self, stretch: Stretch) -> None:
        known = self._stretches.setdefault(stretch.begin // self.width, stretch)
        if known is not stretch:
            known.join(stretch)

    def __iter__(self) -> Iterator[Stretch]:
        """Its stretches in order."""
        return (stretch for _, stretch in sorted(self._stretches.items()))
