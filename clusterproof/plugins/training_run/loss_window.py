"""Compares each value of a log with the previous hundred: how far it leaps, and how long it stays high."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from clusterproof.plugins.core.record import record

WINDOW = 100  # lines before it, as in LLM Foundry and Megatron-LM
LASTING = 5  # consecutive lines
KEPT = 1_000  # lines remembered in case steps are repeated
MAX_LEAPS, MIN_LEAP = 8, 2.0  # that are kept, and the minimum ratio to the previous largest


@record
class Leap:
    """A line with so many times the largest, or the mean, of those before; `at` as in its loss."""

    at: str
    value: float
    times: float


@dataclass(slots=True)
class LossWindow:
    """The last values of a log, each with its step or epoch, and the highest ratios so far."""

    leap: Leap | None = None  # the highest ratio to the largest of the previous lines
    leaps: list[Leap] = field(default_factory=list)  # the highest, in the order of their lines
    rise: Leap | None = None  # the last of the lines that stay highest over the mean of the previous ones
    compared: int = 0  # lines with enough before them
    positions: array[float] = field(default_factory=lambda: array("d"))  # of the last lines: their steps, or epochs
    values: array[float] = field(default_factory=lambda: array("d"))
    _before: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=LASTING))  # the mean of the previous lines

    def begin(self) -> None:
        """Restart: compare with nothing earlier."""
        self.go_on(LossWindow(), 0.0)

    def go_on(self, other: LossWindow, position: float) -> None:
        """Continue after another log's lines, or its own, before that step or epoch."""
        before = bisect_left(other.positions, position)
        self.positions, self.values = other.positions[:before], other.values[:before]
        self._before.clear()
        self._before.extend(self.values[-WINDOW:])
        self._times.clear()

    def add(self, at: str, position: float, value: float) -> None:
        """Compare a value with the previous ones, if there are enough and all are positive."""
        if len(self._before) == WINDOW and min(self._before) > 0:
            self.compared += 1
            times = value / max(self._before)
            if self.leap is None or times > self.leap.times:
                self.leap = Leap(at, value, times)
            if times >= MIN_LEAP:
                self.leaps.append(Leap(at, value, times))
                if len(self.leaps) > MAX_LEAPS:
                    self.leaps.remove(min(self.leaps, key=lambda leap: leap.times))
            self._times.append(value / (sum(self._before) / WINDOW))
            lasting = min(self._times)
            if len(self._times) == LASTING and (self.rise is None or lasting > self.rise.times):
                self.rise = Leap(at, value, lasting)
        self._before.append(value)
        self.positions.append(position)
        self.values.append(value)
        if len(self.values) >= 2 * KEPT:
            del self.positions[:-KEPT], self.values[:-KEPT]
