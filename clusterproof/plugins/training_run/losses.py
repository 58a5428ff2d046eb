"""Losses and norms of gradients that a log has: where they are no numbers any more, and where they leap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite

from clusterproof.plugins.core.record import record

NORM_LINES = 3  # at the end of a log: by a scale of losses that adapts single steps are skipped
WINDOW = 100  # lines before one, with which it is compared: as LLM Foundry and Megatron-LM have it
LASTING = 5  # lines one behind the other


@record
class Loss:
    """The loss of a step, and the norm of its gradients, as far as its line has them."""

    rank: int
    step: int
    loss: float | None
    norm: float | None


@record
class Leap:
    """A line that is so many times as large as the largest, or the mean, of those before it."""

    step: int
    value: float
    times: float


@dataclass(slots=True)
class Series:
    """One of them, line by line: how many, how many were no numbers, and since when the last ones are none."""

    lines: int = 0
    wrong: int = 0
    first_wrong: int = 0  # a step
    since: int = 0  # a step
    at_end: int = 0  # lines
    word: str = ""  # nan, inf
    leap: Leap | None = None  # the highest over the largest of the lines before
    rise: Leap | None = None  # the last of the lines that stay highest over the mean of the lines before
    compared: int = 0  # lines that have enough before them
    _before: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=LASTING))  # the mean of the lines before

    def add(self, step: int, value: float) -> None:
        """Take in the next line."""
        self.lines += 1
        if isfinite(value):
            self.at_end = 0
            self._compare(step, value)
            return
        if not self.wrong:
            self.first_wrong = step
        if not self.at_end:
            self.since = step
        self.wrong += 1
        self.at_end += 1
        self.word = str(value)

    def _compare(self, step: int, value: float) -> None:
        """Beside the lines before it, where they are enough and all above 0."""
        if len(self._before) == WINDOW and min(self._before) > 0:
            self.compared += 1
            times = value / max(self._before)
            if self.leap is None or times > self.leap.times:
                self.leap = Leap(step, value, times)
            self._times.append(value / (sum(self._before) / WINDOW))
            lasting = min(self._times)
            if len(self._times) == LASTING and (self.rise is None or lasting > self.rise.times):
                self.rise = Leap(step, value, lasting)
        self._before.append(value)


@dataclass(slots=True)
class Losses:
    """Those of all ranks that log any, in the order of their lines."""

    losses: dict[int, Series] = field(default_factory=dict)
    norms: dict[int, Series] = field(default_factory=dict)

    def add(self, one: Loss) -> None:
        """Take in a line."""
        for series, value in ((self.losses, one.loss), (self.norms, one.norm)):
            if value is not None:
                series.setdefault(one.rank, Series()).add(one.step, value)

    @property
    def never_again(self) -> Iterator[tuple[int, Series]]:
        """The ranks whose loss is no number at the end."""
        return ((rank, one) for rank, one in sorted(self.losses.items()) if one.at_end)

    @property
    def for_a_while(self) -> Iterator[tuple[int, Series]]:
        """Those whose loss was none before, and is one again."""
        return ((rank, one) for rank, one in sorted(self.losses.items()) if one.wrong and not one.at_end)

    @property
    def without_norm(self) -> Iterator[tuple[int, Series]]:
        """Those of whose gradients the norm is none in the last lines."""
        return ((rank, one) for rank, one in sorted(self.norms.items()) if one.at_end >= NORM_LINES)
