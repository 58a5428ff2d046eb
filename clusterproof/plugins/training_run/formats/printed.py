"""What lines of logs have in common: numbers, the loss and the norm of gradients on them, and who printed them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.losses import Loss

NUMBER = r"([0-9][0-9.eE+-]{0,30})"
VALUE = r" *([-+]?(?:nan|inf|[0-9][0-9.eE+-]{0,30}))(?![\w.])"
_LOSS = re.compile(rf"(?<!mtp_[0-9] )(?<!mtp_[0-9][0-9] )\b(?:lm_|reduced_train_)?loss:{VALUE}", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad[_ ]norm:{VALUE}", re.IGNORECASE)
_LABELS = re.compile(
    r"\s{0,4}(?:([0-9]{1,7}):(?=[ \[])\s{0,4})?(?:\[(rank|default)([0-9]{1,7})\]:)?"
)  # of srun -l, of torchrun
_OF_FILE = re.compile(r"rank[-_ ]?([0-9]{1,7})(?![0-9])")  # rank7.log, rank_7/out.log
_ATTEMPT = "attempt_"  # the folder of torchrun's --log-dir in which each rank has one of its own


@record
class Printer:
    """Who printed a line: its rank, as far as that is said, and in words where the line says something else."""

    rank: int
    words: str = ""


def printer(line: str, of_file: int) -> Printer:
    """Who printed a line, by its labels; else the rank that the file is of.

    Tasks of srun and local ranks of torchrun are ranks where a node has one task, or a run one node: nothing says so.
    """
    labels = _LABELS.match(line)
    task, kind, number = labels.groups() if labels else (None, None, None)
    words = [f"task {int(task)}"] if task else []
    if number and (task or kind == "default"):
        words.append(f"{'local ' * (kind == 'default')}rank {int(number)}")
    return Printer(int(number or task or of_file), ", ".join(words))


def rank_of_file(path: Path) -> int | None:
    """The rank that a file is of, by its name or its folder's; None where neither says it."""
    for name in (path.name, path.parent.name):
        if named := _OF_FILE.match(name):
            return int(named[1])
    number = path.parent.name
    is_of_torchrun = path.parent.parent.name.startswith(_ATTEMPT) and number.isascii() and number.isdecimal()
    return int(number[:7]) if is_of_torchrun else None


@dataclass(slots=True)
class LossGap:
    """The lines of a rank without a loss: behind more of them than ever stood between two losses it may be nan."""

    longest: int | None = None  # None: no line has had a loss
    lines: int = 0  # since the last loss

    def is_unclear(self, *, has_loss: bool) -> bool:
        """Whether the next line lacks a loss that it is expected to have."""
        if has_loss:
            self.longest, self.lines = max(self.longest or 0, self.lines), 0
            return False
        self.lines += 1
        return self.longest is not None and self.lines > self.longest


def loss_and_norm(line: str) -> tuple[float | None, float | None]:
    """The loss and the norm of the gradients on a line; None for what it has not."""
    loss, norm = (value_of(match[1]) if (match := form.search(line)) else None for form in (_LOSS, _NORM))
    return loss, norm


def losses(line: str, rank: int, step: int) -> Iterator[Loss]:
    """The same of a step, if it has one of them."""
    loss, norm = loss_and_norm(line)
    if loss is not None or norm is not None:
        yield Loss(rank, step, loss, norm)


def value_of(text: str) -> float | None:
    """A number, or one that is none; None for a number that was cut."""
    try:
        return float(text)
    except ValueError:
        return None


def number_or_none(value: object) -> float | None:
    """A number as JSON has it, or a program prints it; None for anything else."""
    try:
        return float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
