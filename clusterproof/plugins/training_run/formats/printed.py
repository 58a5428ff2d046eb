"""Common parsing of log lines: numbers, losses and gradient norms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from time import gmtime

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run.losses import Loss

NUMBER = r"([0-9][0-9.eE+-]{0,30})"
# Lightning's bar pads `nan` to `nan.0`, and OLMo writes 1,234 for high norms.
VALUE = r" *([-+]?(?:(?:nan|inf)(?:\.0)?|[0-9](?:,(?=[0-9]{3})|[0-9.eE+-]){0,30}))(?![\w.])"
_LOSS = re.compile(rf"(?<!mtp_[0-9] )(?<!mtp_[0-9][0-9] )\b(?:lm_|reduced_train_)?loss:{VALUE}", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad[_ ]norm:{VALUE}", re.IGNORECASE)


@dataclass(slots=True)
class LossGap:
    """Lines of a rank without a loss: more than ever occurred between two losses may mean nan."""

    longest: int | None = None  # None: no line had a loss
    lines: int = 0  # since the last loss

    def is_unclear(self, *, has_loss: bool) -> bool:
        """Whether the next line lacks an expected loss."""
        if has_loss:
            self.longest, self.lines = max(self.longest or 0, self.lines), 0
            return False
        self.lines += 1
        return self.longest is not None and self.lines > self.longest


@dataclass(slots=True)
class Repeated:
    """Further lines of a step: redrawn, or another rank's if lines do not name ranks."""

    told: dict[tuple[int, str], str] = field(default_factory=dict)  # by printer: the last invalid number

    def losses(self, every: Iterable[Loss], *, is_again: bool) -> Iterator[Loss]:
        """The losses in a line; for a line that repeats a step only invalid numbers, once."""
        for loss in every:
            wrong = _without_numbers(loss)
            who, what = (loss.rank, loss.printed_by), f"{wrong}"
            if wrong and self.told.get(who) != what:
                self.told[who] = what
                yield wrong if is_again else loss
            elif not is_again:
                yield loss


def _without_numbers(line: Loss) -> Loss | None:
    """The invalid numbers in a line, or in some of its steps; None if all are valid."""
    loss = None if line.loss is None or (isfinite(line.loss) and not line.was_nan) else line.loss
    norm = None if line.norm is None or isfinite(line.norm) else line.norm
    return None if loss is norm is None else replace(line, loss=loss, norm=norm, is_skipped=None, is_again=True)


def loss_and_norm(line: str) -> tuple[float | None, float | None]:
    """The loss and the gradient norm in a line; None if missing."""
    loss, norm = (value_of(match[1]) if (match := form.search(line)) else None for form in (_LOSS, _NORM))
    return loss, norm


def losses(line: str, rank: int, step: int) -> Iterator[Loss]:
    """The same for a step, if it has any."""
    loss, norm = loss_and_norm(line)
    if loss is not None or norm is not None:
        yield Loss(rank, step, loss, norm)


def value_of(text: str) -> float | None:
    """A number, valid or not; None for a truncated one."""
    try:
        return float(text.replace(",", "").removesuffix(".0"))
    except ValueError:
        return None


def number_or_none(value: object) -> float | None:
    """A number in JSON or printed form; None for anything else."""
    try:
        return float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None


HOUR_S, DAY_S = 3600, 86_400
SET_IN, SUNDAY, SET_AT = (3, 4, 9, 10, 11), 6, (1, 2, 3)  # months, north and south; the day; the hours that are skipped
AS_USUAL_S = 5.0  # more or less


@dataclass
class WallClock:
    """The timestamps of one rank or launcher."""

    step_s: float | None = None

    def lasted(self, last_time: float, time_s: float, count: int) -> float:
        """The duration of so many steps; an hour less if the clock was set forward meanwhile."""
        seconds = time_s - last_time
        is_as_before = self.step_s is not None and abs(seconds - HOUR_S - self.step_s * count) <= AS_USUAL_S
        if is_as_before and _may_be_set(last_time, time_s):
            return seconds - HOUR_S
        self.step_s = seconds / count
        return seconds


def _may_be_set(last_time: float, time_s: float) -> bool:
    """Whether clocks may have been set forward for summer between these two."""
    day = gmtime(time_s)
    midnight = time_s // DAY_S * DAY_S
    hours = (midnight + HOUR_S * hour for hour in SET_AT)
    return day.tm_mon in SET_IN and day.tm_wday == SUNDAY and any(last_time < at <= time_s - HOUR_S for at in hours)
