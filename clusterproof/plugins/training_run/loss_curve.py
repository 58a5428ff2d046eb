"""Losses, or gradient norms, over the steps of a run: merged into as few intervals as can be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite

MAX_INTERVALS = 600  # of a curve; above this, neighbours are merged
LARGEST = 1e300  # maximum drawn, so that differences are finite
FARTHEST = 1e18  # maximum step or epoch


@dataclass(slots=True)
class Interval:
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

    def join(self, other: Interval) -> None:
        """Merge another."""
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.lines += other.lines
        self.wrong += other.wrong
        if other.lines:
            self.mean += (other.mean - self.mean) * other.lines / self.lines


@dataclass(slots=True)
class LossCurve:
    """All lines, in any order, in at most so many intervals of equal width."""

    width: float = 1.0
    _intervals: dict[float, Interval] = field(default_factory=dict)

    def add(self, position: float, value: float, *, is_wrong: bool) -> None:
        """Add a line: its step or epoch, and its number; `is_wrong` as for an interval."""
        at = max(-FARTHEST, min(FARTHEST, position))
        number = at // self.width
        interval = self._intervals.get(number)
        if interval is None:
            interval = self._intervals[number] = Interval(at, at)
        interval.add(at, value, is_wrong=is_wrong)
        while len(self._intervals) > MAX_INTERVALS:
            self.width *= 2
            before, self._intervals = self._intervals, {}
            for other in before.values():
                self._join(other)

    def _join(self, interval: Interval) -> None:
        known = self._intervals.setdefault(interval.begin // self.width, interval)
        if known is not interval:
            known.join(interval)

    def __iter__(self) -> Iterator[Interval]:
        """Its intervals in order."""
        return (interval for _, interval in sorted(self._intervals.items()))
