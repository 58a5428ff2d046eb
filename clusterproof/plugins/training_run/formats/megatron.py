"""Reads the output of Megatron-LM, and of GPT-NeoX and others derived from it: iterations, timers, losses.

A line stands for all iterations since the previous one (`--log-interval`). Times and most timers are means per
iteration; a checkpoint, timed once, is divided among them. Timers are the maximum over ranks, or the last rank's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite, nan

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.files import integer, real, seconds
from clusterproof.plugins.training_run.formats.printed import NUMBER, Repeated, loss_and_norm
from clusterproof.plugins.training_run.losses import Loss

MS = 1e-3  # s
LATE = b"elapsed time per iteration ("  # in a line that may come late
ITERATION = re.compile(
    r"\biteration\s+([0-9]{1,18})\s*/(?:(?!\biteration\s+[0-9]).)*?"
    r"elapsed time per iteration \((m?s)\):\s*([-+]?(?:nan|inf|[0-9][0-9.eE+-]{0,30}))"  # s: Megatron-DeepSpeed's
)
START = re.compile(rf"time to initialize megatron \(seconds\):\s*{NUMBER}")
_TIMER = re.compile(rf"([A-Za-z][\w/-]{{2,80}}) \.{{3,}}:\s*(?:\({NUMBER},\s*{NUMBER}\)|{NUMBER})")
_OLD_TIMERS = "time (ms) |"  # of versions before 3, and of GPT-NeoX: all of them on one line
MAX_TIMERS = 2_000  # characters
_LOADED = re.compile(
    r"\bload(?:ing|ed) (?:[a-z]{1,20} )?checkpoint from (?:(?! checkpoint from ).)*?"
    r" at iteration\s{1,20}([0-9]{1,18})\b"
)
_SKIPPED = re.compile(r"\bnumber of skipped iterations:\s{0,20}([0-9]{1,12})\b")
_NAN = re.compile(r"\bnumber of nan iterations:\s{0,20}([0-9]{1,12})\b")
_WORK = re.compile(r"\b(?:global batch size|actual seqlen):\s{0,20}([0-9]{1,12})\b")
_TIMERS = {  # those that are not part of another, and our names
    "batch-generator": "data",
    "save-checkpoint": "checkpoint",
    "save-checkpoint-non-persistent": "checkpoint",
    "load-checkpoint": "init",
    "model-and-optimizer-setup": "init",  # including loading a checkpoint
    "train/valid/test-data-iterators-setup": "init",
}
CHECKPOINT, INIT = "checkpoint", "init"
ONCE = (CHECKPOINT, INIT)  # timed separately, not once per iteration
LOAD, SETUP = "load-checkpoint", "model-and-optimizer-setup"


@dataclass
class Megatron:
    """The state of parsing the lines."""

    rank: int = 0  # of the file
    step: Step | None = None  # its timers follow; `times` is 0 if not yet known
    parts: dict[str, float] = field(default_factory=dict)
    saves: int = 0
    last: int | None = None  # the previous iteration
    interval: int = 0  # between its lines
    load: float = 0.0  # s of a setup in progress
    is_again: bool = False  # whether the last line repeats the one before it
    had_loss: bool = False
    repeated: Repeated = field(default_factory=Repeated)

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step completed by this line, if any, and its loss. Raises RunError."""
        if match := ITERATION.search(line):
            yield from self._iteration(match, line, where)
        elif match := START.search(line):
            yield from self.rest()
            self.is_again, self.last = False, 0  # unless it says that it resumes from a checkpoint
            self._add(INIT, seconds(match[1], "time to initialize megatron", where))
        elif match := _LOADED.search(line):
            yield from self.rest()
            self.last = integer(match[1], "iteration", where)
        elif (match := _TIMER.search(line)) and match[1] in _TIMERS:
            self._timer(match[1], seconds(match[3] or match[4], match[1], where) * MS)
        elif _OLD_TIMERS in line:
            for timer in line.partition(_OLD_TIMERS)[2][:MAX_TIMERS].split("|"):
                name, _, lasted = timer.partition(":")
                if (name := name.strip().replace(" ", "-")) in _TIMERS:
                    self._timer(name, seconds(lasted.strip(), name, where) * MS)

    def _iteration(self, match: re.Match[str], line: str, where: str) -> Iterator[Step | Loss]:
        number = integer(match[1], "iteration", where)
        self.is_again = bool(self.step and number == self.step.step)  # printed twice, with its timers
        if self.step and self.is_again:
            yield from self.repeated.losses(self._loss(line, number, self.step.times), is_again=True)
            return
        times = self._stands_for(number)
        yield from self.rest(times if self.step and number > self.step.step else 0)
        self.last = number
        lasted = _lasted(match[3], where)
        if lasted is not None:
            work = "x".join(size.lstrip("0") for size in _WORK.findall(line))
            unit = MS if match[2] == "ms" else 1.0
            self.step = Step(Position(self.rank), number, lasted * unit, times=times, work=work, is_of_run=True)
        yield from self.repeated.losses(self._loss(line, number, times), is_again=False)

    def _loss(self, line: str, number: int, times: int) -> Iterator[Loss]:
        """The loss, which is only printed if above 0: a line that ends without it has nan."""
        loss, norm = loss_and_norm(line)
        skipped, nans = (int(match[1]) if (match := form.search(line)) else None for form in (_SKIPPED, _NAN))
        is_whole = skipped is not None or nans is not None
        is_skipped = None if skipped is None else not loss and skipped >= max(1, times or self.interval)
        if is_skipped:
            loss = None  # printed for 0
        was_missing = loss is None and self.had_loss and is_whole
        self.had_loss |= loss is not None
        is_of_nan = is_whole and not is_skipped and norm is not None and not isfinite(norm)
        if loss is None and (nans or is_of_nan):
            loss = nan
        if is_whole or loss is not None or norm is not None:
            yield Loss(
                self.rank,
                number,
                loss,
                norm,
                is_unclear=was_missing and loss is None and not is_skipped,
                is_skipped=is_skipped,
                was_nan=bool(nans),
            )

    def _stands_for(self, number: int) -> int:
        """How many iterations a line stands for; 0 if the previous line is unknown."""
        if self.last is None or number <= self.last:
            return 0
        if self.step:
            self.interval = number - self.last
        return number - self.last

    def rest(self, following: int = 0) -> Iterator[Step]:
        """The last step. A checkpoint is saved after it, and included in its time.

        The first line, before which nothing is known, is assumed to stand for as many as the `following` one.
        """
        if not self.step:
            return
        step, parts, saves = self.step, self.parts, self.saves
        self.step, self.parts, self.saves = None, {}, 0
        times = step.times or max(1, min(following or self.interval, step.step))
        parts = {part: lasted / times if part in ONCE else lasted for part, lasted in parts.items()}
        lasted = step.seconds + parts.get(CHECKPOINT, 0.0)
        yield replace(step, seconds=lasted, parts=parts, times=times, saves=saves)

    def _timer(self, name: str, lasted: float) -> None:
        if name == LOAD:
            self.load = lasted
        elif name == SETUP:
            lasted, self.load = max(0.0, lasted - self.load), 0.0
        self._add(_TIMERS[name], lasted)

    def _add(self, part: str, lasted: float) -> None:
        if self.is_again and part in self.parts:
            self.parts[part] = max(self.parts[part], lasted)
            return
        self.parts[part] = self.parts.get(part, 0.0) + lasted
        if part == CHECKPOINT:
            self.saves += 1


def _lasted(text: str, where: str) -> float | None:
    """The number; None if setting a clock back has made it invalid. Raises RunError."""
    if "n" in text:
        return None
    lasted = real(text, "elapsed time", where)
    return lasted if lasted >= 0 else None
