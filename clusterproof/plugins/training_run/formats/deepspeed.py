"""DeepSpeed's own output: a line every `steps_per_print`, and timers with `wall_clock_breakdown`.

A line stands for all steps since the previous line, and they took the time between both. Timers are printed for every
step, those of the last step after its line; the mean of those in between is used.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.files import integer, seconds
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
_PARTS = {  # timers that are not part of another, and our names
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
    """The state of parsing its lines."""

    before: tuple[int, float] | None = None  # step and time of the previous line
    clock: WallClock = field(default_factory=WallClock)
    held: tuple[int, int, float] | None = None  # an incomplete step: the number of steps and their seconds
    timers: list[dict[str, float]] = field(default_factory=list)  # of these steps
    behind: list[dict[str, float]] = field(default_factory=list)  # of later ones
    awaits_last: bool = False  # whether the next timers belong to the step just read
    rank: int = 0
    timed: int = 0  # steps since its process began
    has_other: bool = False  # whether something other than steps happened since the previous line
    skipped: tuple[int, int] = (0, 0)  # in the previous line: steps, skipped steps

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step completed by this line, and whether all since the previous one were skipped.

        Raises RunError, ValueError.
        """
        if match := STEP.search(line):
            yield from self.rest()
            year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
            time_s = timegm((year, month, day, hour, minute, second)) + int(match[7]) * MS
            step, self.rank = integer(match[9], "step", where), integer(match[8], "rank", where)
            last, last_time = self.before or (step, time_s)
            if step > last and time_s >= last_time and not self.has_other:
                self.held = step, step - last, self.clock.lasted(last_time, time_s, step - last) / (step - last)
            self.before, self.has_other = (step, time_s), False
            yield from self._skips(step, match[10])
            self.timers, self.behind, self.awaits_last = self.behind, [], True
        elif match := _TIMED.search(line):
            if integer(match[1], "global_step", where) < self.timed:
                self.held = None  # another process began it
            self.timed = int(match[1])
        elif _BEGINS in line:
            yield from self.rest()
            self.before, self.timed = None, 0
        elif _HEAD in line:
            printed = _TIMER.findall(line.partition(_HEAD)[2][:MAX_TIMERS])
            timers = {_PARTS[name]: seconds(lasted, name, where) * MS for name, lasted in printed if name in _PARTS}
            if "forward" in timers:  # of a complete step: others are of one pass
                (self.timers if self.awaits_last else self.behind).append(timers)
                self.awaits_last = False

    def _skips(self, step: int, text: str | None) -> Iterator[Loss]:
        """The skipped steps in it, counted from the first step."""
        if text is None:
            return
        steps, skipped = self.skipped
        self.skipped = step, int(text)
        if int(text) - skipped >= 0 and step > steps:
            yield Loss(self.rank, step, None, None, is_skipped=int(text) - skipped >= step - steps)

    def rest(self) -> Iterator[Step]:
        """The step whose timers may still have followed."""
        if self.held:
            step, times, lasted = self.held
            parts: dict[str, float] = {}
            for timers in self.timers:
                for part, seconds_of_it in timers.items():
                    parts[part] = parts.get(part, 0.0) + seconds_of_it / len(self.timers)
            yield Step(Position(self.rank), step, lasted, parts, times)
        self.held = None

    def forget(self) -> None:
        """Drop the current step: Megatron-LM, which uses DeepSpeed, reports the same one."""
        self.held, self.timers = None, []


OVERFLOW = "OVERFLOW! Rank "  # of a skipped step, whose gradients are inf or nan because of loss scaling


@dataclass
class Overflows:
    """Skipped steps, each reported in a line, next to a bar of Trainer's that counts all steps."""

    done: int = 0  # steps in the bar before the first of consecutive skipped ones
    skipped: int = 0
    total: int = 0  # distinguishes their bar from an evaluation's

    def take(self, bar: Bar) -> Iterator[Loss]:
        """Another skipped step at this position of the bar; first report that others in between were not skipped."""
        yield from self.rest(bar)
        if not self.skipped:
            self.done, self.total = bar.n, bar.total
        self.skipped += 1
        yield Loss(0, bar.n + 1, None, None, is_skipped=True)

    def rest(self, bar: Bar) -> Iterator[Loss]:
        """Report that not all steps since were skipped, if the bar shows more."""
        if self.skipped and bar.total == self.total and bar.n > self.done + self.skipped:
            self.skipped = 0
            yield Loss(0, bar.n, None, None, is_skipped=False)
