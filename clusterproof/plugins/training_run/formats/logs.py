"""Logs of training programs: step times and losses. Each program has a module of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import Position, RunError, Step
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, Unpacked, head_of, integer, seconds
from clusterproof.plugins.training_run.formats import deepspeed, frameworks, megatron, torchtitan, trainer
from clusterproof.plugins.training_run.formats.printed import NUMBER, losses
from clusterproof.plugins.training_run.formats.printer import bar_of, rank_of_file
from clusterproof.plugins.training_run.losses import Loss

MAX_START = 256 << 20  # bytes before the first iteration
_LATE = (megatron.LATE, *torchtitan.LATE, b"| train_step_timing in s: ", deepspeed.LATE, trainer.LATE, *frameworks.LATE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DATE = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})\b")
_NEMO = re.compile(  # a step line, with that step's time
    r"\bTraining epoch [0-9]{1,18}, iteration [0-9]{1,18}/[0-9]{1,18} \|(?:(?!\bTraining epoch ).)*?"
    r"\bglobal_step: ([0-9]{1,18}) \|(?:(?!\bTraining epoch |\bglobal_step: ).)*?"
    rf"\btrain_step_timing in s: {NUMBER}"
)
_FORMS = (megatron.ITERATION, megatron.START, torchtitan.STEP, _NEMO, deepspeed.STEP)


def is_log(head: bytes) -> bool:
    """Whether a file that begins like this is such a log; the first iteration may come late."""
    text = _COLOUR.sub("", head.decode("utf-8", "replace"))
    if any(form.search(text) for form in _FORMS) or trainer.is_logged(text):
        return True
    return any(map(frameworks.is_of_any, text.splitlines()))


def comes_to_iterate(path: RunFile) -> bool:
    """Whether a text file is such a log whose first iteration comes late, after NCCL's messages."""
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
    lines, rank = Lines(path, "replace", has_bars=True), rank_of_file(path.path) or 0
    log = _Log(rank, bar_of(_COLOUR.sub("", head_of(path).decode("utf-8", "replace"))))
    for line in lines:
        try:
            yield from _dated(log.take(_COLOUR.sub("", line), lines.where), line)
        except ValueError as wrong:
            if lines.is_cut:
                break
            message = str(wrong) if isinstance(wrong, RunError) else f"{lines.where}: {wrong}; expected a date"
            raise RunError(message) from None
    yield from log.rest()


def _dated(facts: Iterator[Step | Loss], line: str) -> Iterator[Step | Loss]:
    """The same with the date on their line, which may contain a thousand redraws of a bar: it is searched once."""
    date = None
    for number, fact in enumerate(facts):
        date = date if number else _DATE.search(line)
        yield replace(fact, time=f"{date[1]} {date[2]}") if date and isinstance(fact, Loss) else fact


class _Log:
    """The data of the lines read so far, by all programs."""

    def __init__(self, rank: int, bar: int) -> None:
        self.rank = rank  # that the file is of
        self.megatron, self.titan = megatron.Megatron(rank), torchtitan.Torchtitan(rank, bar)
        self.deepspeed, self.trainer = deepspeed.DeepSpeed(), trainer.Trainer(log_bar=bar)
        self.overflows = deepspeed.Overflows()
        self.frameworks = frameworks.Frameworks(rank, bar)

    def take(self, text: str, where: str) -> Iterator[Step | Loss]:
        """What this line completes. Raises RunError, ValueError."""
        yield from self.megatron.take(text, where)
        yield from self.titan.take(text, where)
        if match := _NEMO.search(text):
            step = integer(match[1], "global_step", where)
            yield from losses(text, self.rank, step)
            yield Step(Position(self.rank), step, seconds(match[2], "train_step_timing", where))
        if self.megatron.step:  # which has more details
            self.deepspeed.forget()
        else:
            for drawn in text.split("\r"):
                yield from self.frameworks.take(drawn, where)
            yield from self.deepspeed.take(text, where)
        for drawn in text.split("\r") if trainer.is_trainer_line(text) else ():
            self.deepspeed.has_other |= any(word in drawn for word in trainer.OTHER)
            bar = self.trainer.bar
            for fact in self.trainer.take(drawn, where):
                if isinstance(fact, Loss) or not (self.megatron.step or self.deepspeed.before):  # these have more
                    yield fact
            if bar and bar is not self.trainer.bar:
                yield from self.overflows.rest(bar)
        if deepspeed.OVERFLOW in text and self.trainer.bar and not self.deepspeed.before:
            yield from self.overflows.take(self.trainer.bar)

    def rest(self) -> Iterator[Step | Loss]:
        """What was waiting for more lines."""
        yield from self.megatron.rest()
        yield from self.deepspeed.rest()
        if self.trainer.bar:
            yield from self.overflows.rest(self.trainer.bar)


FORMATS = (
    Format(
        "a log of a training program",
        is_log,
        read_log,
        is_tried_last=True,
        begins_late=comes_to_iterate,
    ),
)
