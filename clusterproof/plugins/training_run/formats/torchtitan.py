"""The logs of torchtitan: each rank's own lines, with their time and loss.

A step takes the time since the previous line, divided by the steps in between. The clock restarts after a validation,
and when a run resumes from a checkpoint.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.files import integer, seconds
from clusterproof.plugins.training_run.formats.printed import NUMBER, Repeated, WallClock, loss_and_norm
from clusterproof.plugins.training_run.formats.printer import Printer, printer
from clusterproof.plugins.training_run.losses import Loss

LATE = (b" - INFO - step:", b" - INFO - \x1b[31mstep:")  # in a line that may come late
STEP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})[,.]([0-9]{1,6}) "
    r"(?:(?![0-9]{4}-[0-9]{2}-[0-9]{2} ).)*?\b(validate )?step:\s{0,20}([0-9]{1,18})\b(?:(?!\bstep:).)*?\bloss:"
)
_SAVED = re.compile(rf"Finished saving the checkpoint(?:(?!Finished saving).)*?in {NUMBER} seconds")
_BEGINS = "Training starts at step "
CHECKPOINT = "checkpoint"
LATE_STEPS = 20  # by which one rank's lines may lag another's
NOT_HERE = -1.0  # printed on ranks without the last pipeline stage


@dataclass
class Torchtitan:
    """The data of the lines read so far, by who printed them."""

    rank: int = 0  # of the file
    bar: int = 0  # after names of containers
    before: dict[Printer, tuple[int, float]] = field(default_factory=dict)  # step and time
    saving_s: dict[Printer, float] = field(default_factory=dict)  # since then
    saves: dict[Printer, int] = field(default_factory=dict)
    clocks: dict[Printer, WallClock] = field(default_factory=dict)
    repeated: Repeated = field(default_factory=Repeated)

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step in this line, if any, and its loss. Raises RunError, ValueError."""
        if "step:" in line and (match := STEP.search(line)):
            source = printer(line, self.rank, self.bar)
            if match[8]:
                self.before[source] = integer(match[9], "step", where), _time_s(match)
            else:
                yield from self._step(match, line, source, where)
        elif "Finished saving" in line and (match := _SAVED.search(line)):
            source = printer(line, self.rank, self.bar)
            self.saving_s[source] = self.saving_s.get(source, 0.0) + seconds(match[1], "the checkpoint", where)
            self.saves[source] = self.saves.get(source, 0) + 1
        elif _BEGINS in line:
            source = printer(line, self.rank, self.bar)
            for by_source in (self.before, self.saving_s, self.saves):
                by_source.pop(source, None)

    def _step(self, match: re.Match[str], line: str, source: Printer, where: str) -> Iterator[Step | Loss]:
        time_s, step = _time_s(match), integer(match[9], "step", where)
        last_step, last_time = self.before.get(source, (step, time_s))
        is_again = source in self.before and 0 <= last_step - step <= LATE_STEPS  # another rank's
        yield from self.repeated.losses(_losses(line, step, source), is_again=is_again)
        if is_again:
            return
        self.before[source] = (step, time_s)
        count = step - last_step
        if count > 0 and time_s >= last_time:
            lasted = self.clocks.setdefault(source, WallClock()).lasted(last_time, time_s, count)
            saving, saves = self.saving_s.pop(source, None), self.saves.pop(source, 0)
            parts = {} if saving is None else {CHECKPOINT: saving / count}
            is_unnamed = source.is_unnamed
            yield Step(Position(source.rank), step, lasted / count, parts, count, saves, is_unnamed=is_unnamed)


def _losses(line: str, step: int, source: Printer) -> Iterator[Loss]:
    loss, norm = loss_and_norm(line)
    loss = None if loss == NOT_HERE else loss
    if loss is not None or norm is not None:
        yield Loss(source.rank, step, loss, norm, printed_by=source.words)


def _time_s(match: re.Match[str]) -> float:
    """When a line was printed, in seconds. Raises ValueError."""
    year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
    return timegm((year, month, day, hour, minute, second)) + float(f"0.{match[7]}")
