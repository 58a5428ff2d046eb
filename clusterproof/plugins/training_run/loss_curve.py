"""Loss, or gradient norm, over the steps of a run: reduced to as few stretches as can be drawn, with their extremes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite

MAX_STRETCHES = 600  # of a curve; of more, neighbours are joined
LARGEST = 1e300  # that is drawn: differences of such are numbers, too
FARTHEST = 1e18  # of steps and epochs


@dataclass(slots=True)
class Stretch:
    """Neighbouring steps of all logs: the first and last, and their lowest, mean and highest value."""

    begin: float
    end: float
    low: float = inf
    high: float = -inf
    mean: float = 0.0
    lines: int = 0  # that have a number
    wrong: int = 0  # that have nan or inf

    @property
    def middle(self) -> float:
        """Where its mean is drawn."""
        return (self.begin + self.end) / 2

    def add(self, at: float, value: float, *, is_wrong: bool) -> None:
        """Take in a line; `is_wrong` if its number stands for some that are none."""
        self.begin, self.end = (at if at < self.begin else self.begin), (at if at > self.end else self.end)
        if is_wrong or not isfinite(value):
            self.wrong += 1
        if isfinite(value):
            value = max(-LARGEST, min(LARGEST, value))
            self.low, self.high = (value if value < self.low else self.low), (value if value > self.high else self.high)
            self.lines += 1
            self.mean += (value - self.mean) / self.lines

    def join(self, other: Stretch) -> None:
        """Take in another."""
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.lines += other.lines
        self.wrong += other.wrong
        if other.lines:
            self.mean += (other.mean - self.mean) * other.lines / self.lines


@dataclass(slots=True)
class LossCurve:
    """All values, added in any order, in a limited number of stretches of equal width."""

    width: float = 1.0
    _stretches: dict[float, Stretch] = field(default_factory=dict)

    def add(self, position: float, value: float, *, is_wrong: bool) -> None:
        """Take in a line: its step or epoch, and its number; `is_wrong` as for a stretch."""
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
