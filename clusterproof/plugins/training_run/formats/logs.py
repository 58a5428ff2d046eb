"""What Megatron-LM, NeMo, torchtitan, DeepSpeed and Trainer print as they train: how long steps take, and their loss.

A line stands for all iterations since the one before it (`--log-interval`). Times and most timers are means of one;
what is timed once, as a checkpoint, is shared out among them.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.training_run import Place, RunError, Step
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, Unpacked, seconds, whole
from clusterproof.plugins.training_run.formats.deepspeed import LATE, STEP, DeepSpeed
from clusterproof.plugins.training_run.formats.trainer import LATE as LATE_OF_TRAINER
from clusterproof.plugins.training_run.formats.trainer import Trainer, is_logged, says
from clusterproof.plugins.training_run.losses import Loss

MS = 1e-3  # s
MAX_START = 256 << 20  # bytes before the first iteration
_LATE = (
    b"elapsed time per iteration (ms):",
    b" - INFO - step:",
    b" - INFO - \x1b[31mstep:",
    b"| train_step_timing in s: ",
    LATE,
    LATE_OF_TRAINER,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"([0-9][0-9.eE+-]{0,30})"
_ITERATION = re.compile(
    rf"\biteration\s+([0-9]{{1,18}})\s*/(?:(?!\biteration\s+[0-9]).)*?elapsed time per iteration \(ms\):\s*{_NUMBER}"
)
_TIMER = re.compile(rf"([A-Za-z][\w/-]{{2,80}}) \.{{3,}}:\s*(?:\({_NUMBER},\s*{_NUMBER}\)|{_NUMBER})")
_START = re.compile(rf"time to initialize megatron \(seconds\):\s*{_NUMBER}")
_LOADED = re.compile(
    r"\bload(?:ing|ed) (?:[a-z]{1,20} )?checkpoint from (?:(?! checkpoint from ).)*?"
    r" at iteration\s{1,20}([0-9]{1,18})\b"
)
_TITAN = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})[,.]([0-9]{1,6}) "
    r"(?:(?![0-9]{4}-[0-9]{2}-[0-9]{2} ).)*?\bstep:\s{0,20}([0-9]{1,18})\b(?:(?!\bstep:).)*?\bloss:"
)
_VALUE = r" *([-+]?(?:nan|inf|[0-9][0-9.eE+-]{0,30}))(?![\w.])"
_LOSS = re.compile(rf"\b(?:loss|reduced_train_loss):{_VALUE}", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad[_ ]norm:{_VALUE}", re.IGNORECASE)
_NEMO = re.compile(  # a line of a step, with the time of that one
    r"\bTraining epoch [0-9]{1,18}, iteration [0-9]{1,18}/[0-9]{1,18} \|(?:(?!\bTraining epoch ).)*?"
    r"\bglobal_step: ([0-9]{1,18}) \|(?:(?!\bTraining epoch |\bglobal_step: ).)*?"
    rf"\btrain_step_timing in s: {_NUMBER}"
)
_SAVED = re.compile(rf"Finished saving the checkpoint(?:(?!Finished saving).)*?in {_NUMBER} seconds")
_RANK = re.compile(r"^\s*\[rank([0-9]{1,7})\]:")
_TIMERS = {  # of Megatron's timers those that are no part of another, and what they are called here
    "batch-generator": "data",
    "save-checkpoint": "checkpoint",
    "save-checkpoint-non-persistent": "checkpoint",
    "load-checkpoint": "init",
    "model-and-optimizer-setup": "init",  # with the load of a checkpoint
    "train/valid/test-data-iterators-setup": "init",
}
CHECKPOINT, INIT = "checkpoint", "init"
ONCE = (CHECKPOINT, INIT)  # timed besides the iterations, and not once for each
LOAD, SETUP = "load-checkpoint", "model-and-optimizer-setup"


def is_log(head: bytes) -> bool:
    """Whether a file that begins so is such a log; the first iteration may come late."""
    text = _COLOUR.sub("", head.decode("utf-8", "replace"))
    return any(form.search(text) for form in (_ITERATION, _START, _TITAN, _NEMO, STEP)) or is_logged(text)


def comes_to_iterate(path: RunFile) -> bool:
    """Whether a file of text is such a log whose first iteration comes late, behind what NCCL says of itself."""
    before, size = b"", 0
    for piece in Unpacked(path):
        if b"\0" in piece:
            return False
        if any(word in before + piece for word in _LATE):
            return True
        before, size = piece[-len(max(_LATE, key=len)) :], size + len(piece)
        if size > MAX_START:
            return False
    return False


def read_log(path: RunFile) -> Iterator[Step | Loss]:
    """The iterations that it records, and their losses. Raises RunError."""
    lines, log, deepspeed, trainer = Lines(path, "replace", has_bars=True), _Log(), DeepSpeed(), Trainer()
    for line in lines:
        text = _COLOUR.sub("", line)
        try:
            yield from log.take(text, lines.where)
            if log.step:
                deepspeed.forget()
            else:
                yield from deepspeed.take(text, lines.where)
            for drawn in text.split("\r") if says(text) else ():
                for fact in trainer.take(drawn, lines.where):
                    if isinstance(fact, Loss) or not (log.step or deepspeed.before):  # who say more of a step
                        yield fact
        except ValueError as wrong:
            if lines.is_cut:
                break
            said = str(wrong) if isinstance(wrong, RunError) else f"{lines.where}: {wrong}; expected a date"
            raise RunError(said) from None
    yield from log.rest()
    yield from deepspeed.rest()


@dataclass
class _Log:
    """What the lines have said so far."""

    step: Step | None = None  # of Megatron: its timers come behind it; `times` is 0 where it is not known yet
    parts: dict[int, dict[str, float]] = field(default_factory=dict)  # by rank
    saves: dict[int, int] = field(default_factory=dict)  # by rank
    last: int | None = None  # the iteration of Megatron's that was done before
    interval: int = 0  # between its lines
    load: float = 0.0  # s of a setup that goes on
    is_again: bool = False  # whether the last line of Megatron's repeats the one before it
    before: dict[int, tuple[int, float]] = field(default_factory=dict)  # of torchtitan, by rank: the step and its time

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step that is complete by this line, if one is, and the loss on it. Raises RunError, ValueError."""
        if match := _ITERATION.search(line):
            number, lasted = whole(match[1], "iteration", where), seconds(match[2], "elapsed time", where) * MS
            self.is_again = bool(self.step and number == self.step.step)  # printed twice, with its timers
            if self.is_again:
                return
            times = self._stands_for(number)
            yield from self.rest(times if self.step and number > self.step.step else 0)
            self.step, self.last = Step(Place(0), number, lasted, times=times), number
            yield from _loss(line, 0, number)
        elif match := _START.search(line):
            yield from self.rest()
            self.is_again, self.last = False, 0  # unless it says that it goes on from a checkpoint
            self._add(INIT, seconds(match[1], "time to initialize megatron", where))
        elif match := _LOADED.search(line):
            yield from self.rest()
            self.last = whole(match[1], "iteration", where)
        elif (match := _TIMER.search(line)) and match[1] in _TIMERS:
            self._timer(match[1], seconds(match[3] or match[4], match[1], where) * MS)
        elif match := _SAVED.search(line):
            self._add(CHECKPOINT, seconds(match[1], "the checkpoint", where), _rank(line))
        elif match := _NEMO.search(line):
            step, lasted = whole(match[1], "global_step", where), seconds(match[2], "train_step_timing", where)
            yield from _loss(line, 0, step)
            yield Step(Place(0), step, lasted)
        elif match := _TITAN.search(line):
            yield from self._of_titan(match, line, where)

    def _stands_for(self, number: int) -> int:
        """How many iterations a line of Megatron's stands for; 0 where the line before it is not known."""
        if self.last is None or number <= self.last:
            return 0
        if self.step:
            self.interval = number - self.last
        return number - self.last

    def rest(self, following: int = 0) -> Iterator[Step]:
        """The last step of Megatron's. A checkpoint is saved behind it, and counts to the time that it takes.

        Of its first line, before which nothing is known, it is taken that it stands for as many as the `following` one.
        """
        if not self.step:
            return
        step, parts, saves = self.step, self.parts.pop(0, {}), self.saves.pop(0, 0)
        self.step = None
        times = step.times or max(1, min(following or self.interval, step.step))
        parts = {part: lasted / times if part in ONCE else lasted for part, lasted in parts.items()}
        yield Step(step.place, step.step, step.seconds + parts.get(CHECKPOINT, 0.0), parts, times, saves)

    def _timer(self, name: str, lasted: float) -> None:
        if name == LOAD:
            self.load = lasted
        elif name == SETUP:
            lasted, self.load = max(0.0, lasted - self.load), 0.0
        self._add(_TIMERS[name], lasted)

    def _add(self, part: str, lasted: float, rank: int = 0) -> None:
        parts = self.parts.setdefault(rank, {})
        if self.is_again and part in parts:
            parts[part] = max(parts[part], lasted)
            return
        parts[part] = parts.get(part, 0.0) + lasted
        if part == CHECKPOINT:
            self.saves[rank] = self.saves.get(rank, 0) + 1

    def _of_titan(self, match: re.Match[str], line: str, where: str) -> Iterator[Step | Loss]:
        """A step is as long as the time since the line before, by as many steps as that is."""
        year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
        time_s = timegm((year, month, day, hour, minute, second)) + float(f"0.{match[7]}")
        step = whole(match[8], "step", where)
        rank = _rank(line)
        last_step, last_time = self.before.get(rank, (step, time_s))
        if step == last_step and rank in self.before:  # another rank's, where lines do not say whose they are
            return
        self.before[rank] = (step, time_s)
        yield from _loss(line, rank, step)
        count = step - last_step
        if count > 0 and time_s >= last_time:
            parts = {part: lasted / count for part, lasted in self.parts.pop(rank, {}).items()}
            saves = self.saves.pop(rank, 0)
            yield Step(Place(rank), step, (time_s - last_time) / count, parts, count, saves)


def _loss(line: str, rank: int, step: int) -> Iterator[Loss]:
    loss, norm = (_value(match[1]) if (match := form.search(line)) else None for form in (_LOSS, _NORM))
    if loss is not None or norm is not None:
        yield Loss(rank, step, loss, norm)


def _value(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # a number that was cut


def _rank(line: str) -> int:
    named = _RANK.search(line)
    return int(named[1]) if named else 0


FORMATS = (
    Format(
        "a log of Megatron-LM, NeMo, torchtitan, DeepSpeed or Hugging Face's Trainer",
        is_log,
        read_log,
        is_tried_last=True,
        begins_late=comes_to_iterate,
    ),
)
