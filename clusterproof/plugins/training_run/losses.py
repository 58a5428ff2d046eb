"""Losses and norms of gradients that a log has: where they are no numbers any more, and where they leap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from clusterproof.plugins.core.record import record

NORM_LINES = 3  # at the end of a log: by a scale of losses that adapts single steps are skipped
UNCLEAR_LINES = 3  # the same of losses of 0
WINDOW = 100  # lines before one, with which it is compared: as LLM Foundry and Megatron-LM have it
LASTING = 5  # lines one behind the other


@record
class Loss:
    """The loss of a step, and the norm of its gradients, as far as its line has them; None is a step that it has not.

    `kept_in` is the file of a checkpoint that keeps it: each keeps all from the first step on.
    """

    rank: int
    step: int | None
    loss: float | None
    norm: float | None
    epoch: float | None = None
    begins: bool = False  # whether a training begins with it, or goes on from a checkpoint
    kept_in: str = ""
    is_unclear: bool = False  # whether its loss may be none: some trainers write 0 for that

    @property
    def at(self) -> str:
        """`step 60`, `epoch 0.31`."""
        return f"epoch {self.epoch:g}" if self.step is None else f"step {self.step}"


@record
class Leap:
    """A line that is so many times as large as the largest, or the mean, of those before it; `at` as its loss says."""

    at: str
    value: float
    times: float


@dataclass(slots=True)
class LossSeries:
    """One of them, line by line: how many, how many were no numbers, and since when the last ones are none."""

    lines: int = 0
    wrong: int = 0
    first_wrong: str = ""  # `step 60`
    since: str = ""
    at_end: int = 0  # lines
    unclear_at_end: int = 0
    word: str = ""  # nan, inf
    leap: Leap | None = None  # the highest over the largest of the lines before
    rise: Leap | None = None  # the last of the lines that stay highest over the mean of the lines before
    compared: int = 0  # lines that have enough before them
    _before: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=LASTING))  # the mean of the lines before

    def begin(self) -> None:
        """Compare what comes with nothing before it."""
        self._before.clear()
        self._times.clear()

    def add(self, at: str, value: float) -> None:
        """Take in the next line."""
        self.lines += 1
        if isfinite(value):
            self.at_end = 0
            self._compare(at, value)
            return
        if not self.wrong:
            self.first_wrong = at
        if not self.at_end:
            self.since = at
        self.wrong += 1
        self.at_end += 1
        self.word = str(value)

    def _compare(self, at: str, value: float) -> None:
        """Beside the lines before it, where they are enough and all above 0."""
        if len(self._before) == WINDOW and min(self._before) > 0:
            self.compared += 1
            times = value / max(self._before)
            if self.leap is None or times > self.leap.times:
                self.leap = Leap(at, value, times)
            self._times.append(value / (sum(self._before) / WINDOW))
            lasting = min(self._times)
            if len(self._times) == LASTING and (self.rise is None or lasting > self.rise.times):
                self.rise = Leap(at, value, lasting)
        self._before.append(value)


Key = tuple[int, int]  # the rank; and 0 for a log, or which of the attempts that checkpoints keep: a log has them too
LOG = 0


@dataclass(slots=True)
class Losses:
    """Those of all ranks that log any, in the order of their lines."""

    losses: dict[Key, LossSeries] = field(default_factory=dict)
    norms: dict[Key, LossSeries] = field(default_factory=dict)
    _kept: dict[Key, dict[int, str]] = field(default_factory=dict)  # what was said of each step
    _at: dict[int, tuple[str, int]] = field(default_factory=dict)  # by rank the file and its attempt

    def add(self, line: Loss) -> None:
        """Take in a line."""
        attempt = self._attempt(line) if line.kept_in else LOG
        for kind, value in ((self.losses, line.loss), (self.norms, line.norm)):
            if value is None or attempt is None:
                continue
            series = kind.setdefault((line.rank, attempt), LossSeries())
            if line.begins:
                series.begin()
            series.unclear_at_end = series.unclear_at_end + 1 if line.is_unclear else 0
            series.add(line.at, value)

    def _attempt(self, loss: Loss) -> int | None:
        """Which attempt an entry of a checkpoint is of; None where another checkpoint keeps the same.

        Checkpoints that say something else of a step are of two attempts.
        """
        said, step = f"{loss.loss} {loss.norm}", loss.step or 0
        file, attempt = self._at.get(loss.rank, ("", 1))
        attempt = attempt if file == loss.kept_in else 1
        while True:
            kept = self._kept.setdefault((loss.rank, attempt), {})
            self._at[loss.rank] = loss.kept_in, attempt
            if kept.get(step) == said:
                return None
            if step not in kept and step > next(reversed(kept), -1):
                kept[step] = said
                return attempt
            attempt += 1

    @property
    def never_again(self) -> Iterator[tuple[int, LossSeries]]:
        """The ranks whose loss is no number at the end."""
        return ((rank, series) for rank, series in each(self.losses) if series.at_end)

    @property
    def for_a_while(self) -> Iterator[tuple[int, LossSeries]]:
        """Those whose loss was none before, and is one again."""
        return ((rank, series) for rank, series in each(self.losses) if series.wrong and not series.at_end)

    @property
    def without_norm(self) -> Iterator[tuple[int, LossSeries]]:
        """Those of whose gradients the norm is none in the last lines."""
        return ((rank, series) for rank, series in each(self.norms) if series.at_end >= NORM_LINES)

    @property
    def unclear(self) -> Iterator[tuple[int, LossSeries]]:
        """Those whose loss may be none in the last lines, and nothing tells."""
        return ((rank, series) for rank, series in each(self.losses) if series.unclear_at_end >= UNCLEAR_LINES)


def each(series: Mapping[Key, LossSeries]) -> list[tuple[int, LossSeries]]:
    """Them with their ranks, in order."""
    return [(rank, series[rank, attempt]) for rank, attempt in sorted(series)]


def are_compared(series: Mapping[Key, LossSeries]) -> bool:
    """Whether of each rank enough lines are there that some were compared with those before."""
    return {rank for rank, _ in series} == {rank for (rank, _), losses in series.items() if losses.compared}
