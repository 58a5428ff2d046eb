"""DeepSpeed's log lines: one each `steps_per_print`, and timers with `wall_clock_breakdown`.

A line stands for all steps since the one before it, and they are as long as the time between both. Timers are printed
for every step, those of its last step behind its line; the mean of those in between is taken.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.files import seconds, whole
from clusterproof.plugins.training_run.formats.printed import WallClock
from clusterproof.plugins.training_run.formats.trainer import Bar
from clusterproof.plugins.training_run.losses import Loss

MS = 1e-3  # s
STEP = re.compile(
    r"\[([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}),([0-9]{3})\] \[INFO\] \[\S{1,60}\] "
    r"\[Rank ([0-9]{1,7})\] step=([0-9]{1,18}), skipped=([0-9]{1,18})?"
)
_HEAD = "time (ms) |"
MAX_TIMERS = 2_000  # characters
_TIMER = re.compile(r"\b([a-z_]{2,40}): ([0-9][0-9.]{0,30})")
_PARTS = {  # the timers that are no part of another, and what they are called here
    "fwd": "forward",
    "forward": "forward",
    "bwd_inner": "backward",
    "backward_inner": "backward",
    "bwd_allreduce": "allreduce",
    "backward_allreduce": "allreduce",
    "step": "optimizer",
}
_TIMED = re.compile(r"/global_step=([0-9]{1,18}), RunningAvgSamplesPerSec=")  # since its process began
_BEGINS = "DeepSpeed info: version="
LATE = b"[Rank 0] step="  # in a line that may come late


@dataclass
class DeepSpeed:
    """The data of the lines read so far."""

    before: tuple[int, float] | None = None  # the step of the line before, and its time
    clock: WallClock = field(default_factory=WallClock)
    held: tuple[int, int, float] | None = (
        None  # a step without its last timers: for how many it stands, and its seconds
    )
    timers: list[dict[str, float]] = field(default_factory=list)  # of the steps that it stands for
    behind: list[dict[str, float]] = field(default_factory=list)  # of those behind it
    awaits_last: bool = False  # whether the next timers are those of the step whose line was read
    rank: int = 0
    timed: int = 0  # steps since its process began
    has_other: bool = False  # whether something else than steps was done since the line before
    skipped: tuple[int, int] = (0, 0)  # by the line before: of so many steps so many

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step that is complete by this line, and whether all since the one before were skipped.

        Raises RunError, ValueError.
        """
        if match := STEP.search(line):
            yield from self.rest()
            year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
            time_s = timegm((year, month, day, hour, minute, second)) + int(match[7]) * MS
            step, self.rank = whole(match[9], "step", where), whole(match[8], "rank", where)
            last, last_time = self.before or (step, time_s)
            if step > last and time_s >= last_time and not self.has_other:
                self.held = step, step - last, self.clock.lasted(last_time, time_s, step - last) / (step - last)
            self.before, self.has_other = (step, time_s), False
            yield from self._skips(step, match[10])
            self.timers, self.behind, self.awaits_last = self.behind, [], True
        elif match := _TIMED.search(line):
            if whole(match[1], "global_step", where) < self.timed:
                self.held = None  # which another process has begun
            self.timed = int(match[1])
        elif _BEGINS in line:
            yield from self.rest()
            self.before, self.timed = None, 0
        elif _HEAD in line:
            printed = _TIMER.findall(line.partition(_HEAD)[2][:MAX_TIMERS])
            timers = {_PARTS[name]: seconds(lasted, name, where) * MS for name, lasted in printed if name in _PARTS}
            if "forward" in timers:  # of a whole step: others are of one pass
                (self.timers if self.awaits_last else self.behind).append(timers)
                self.awaits_last = False

    def _skips(self, step: int, text: str | None) -> Iterator[Loss]:
        """What it says of skipped steps, which it counts from the first one on."""
        if text is None:
            return
        steps, skipped = self.skipped
        self.skipped = step, int(text)
        if int(text) - skipped >= 0 and step > steps:
            yield Loss(self.rank, step, None, None, is_skipped=int(text) - skipped >= step - steps)

    def rest(self) -> Iterator[Step]:
        """The step whose timers may still have come."""
        if self.held:
            step, times, lasted = self.held
            parts: dict[str, float] = {}
            for timers in self.timers:
                for part, seconds_of_it in timers.items():
                    parts[part] = parts.get(part, 0.0) + seconds_of_it / len(self.timers)
            yield Step(Position(self.rank), step, lasted, parts, times)
        self.held = None

    def forget(self) -> None:
        """Leave the step out that is held: Megatron-LM, which runs by DeepSpeed, says the same of it."""
        self.held, self.timers = None, []


OVERFLOW = "OVERFLOW! Rank "  # of a step that is skipped, as its gradients are inf or nan by the scale of the loss


@dataclass
class Overflows:
    """Steps skipped for overflow, each with a line, beside a progress bar of Trainer's that counts all steps."""

    done: int = 0  # steps, by the bar, before the first of those that were skipped one behind the other
    skipped: int = 0
    total: int = 0  # by which their bar is told from one of an evaluation

    def take(self, bar: Bar) -> Iterator[Loss]:
        """One more behind what the bar shows, and first that others in between were none."""
        yield from self.rest(bar)
        if not self.skipped:
            self.done, self.total = bar.n, bar.total
        self.skipped += 1
        yield Loss(0, bar.n + 1, None, None, is_skipped=True)

    def rest(self, bar: Bar) -> Iterator[Loss]:
        """That not all steps were skipped since, where the bar shows so many."""
        if self.skipped and bar.total == self.total and bar.n > self.done + self.skipped:
            self.skipped = 0
            yield Loss(0, bar.n, None, None, is_skipped=False)
