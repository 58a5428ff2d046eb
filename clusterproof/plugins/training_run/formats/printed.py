"""What lines of logs have in common: numbers, the loss and the norm of gradients on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clusterproof.plugins.training_run.losses import Loss

NUMBER = r"([0-9][0-9.eE+-]{0,30})"
VALUE = r" *([-+]?(?:nan|inf|[0-9][0-9.eE+-]{0,30}))(?![\w.])"
_LOSS = re.compile(rf"(?<!mtp_[0-9] )(?<!mtp_[0-9][0-9] )\b(?:lm_|reduced_train_)?loss:{VALUE}", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad[_ ]norm:{VALUE}", re.IGNORECASE)


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
