"""Losses and gradient norms in logs: where they become invalid, and where they leap."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import PurePath

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.loss_curve import LossCurve
from clusterproof.plugins.training_run.loss_window import LossWindow

MAX_SERIES = 100_000  # ranks, or files of them, with losses
PARTS_OF_A_PATH, MAX_PATH = 3, 100  # by which files with equal names are distinguished; characters
NORM_LINES = 3  # at the end of a log: loss scaling only skips single steps
UNCLEAR_LINES = 3  # the same for losses of 0
SKIPPED_LINES = 3  # the same for lines with only skipped steps
SETTLED_BY = 40  # steps: a loss scale is halved 32 times from Megatron-LM's 2**32 to 1, after some of hysteresis
NEAR_SHARE = 0.2  # of all steps, that a resumed job repeats
_NUMBER = re.compile(r"([0-9]{1,18})")


@record
class Loss:
    """A step's loss and gradient norm, as far as its line has them; None is a step without one.

    `kept_in` is the checkpoint file with it: each contains all from the first step on.
    """

    rank: int
    step: int | None
    loss: float | None
    norm: float | None
    epoch: float | None = None
    begins: bool = False  # whether a training begins with it
    kept_in: str = ""
    is_unclear: bool = False  # whether its loss may be invalid: some trainers write 0 for that, or nothing
    is_skipped: bool | None = None  # whether the optimizer skipped all its steps; None: unknown
    was_nan: bool = False  # whether the loss of some of its steps was invalid
    is_again: bool = False  # whether it repeats an earlier line of its step
    may_grow: bool = False  # whether it is from reinforcement learning: near 0, and no measure of progress
    printed_by: str = ""  # the printer, if the rank is unknown: `task 1, local rank 5`
    time: str = ""  # `2025-07-21 15:15:00`, if in its line

    @property
    def at(self) -> str:
        """`step 60`, `epoch 0.31`."""
        return f"epoch {self.epoch:g}" if self.step is None else f"step {self.step}"

    @property
    def position(self) -> tuple[bool, float]:
        """Whether it has a step, and that or its epoch."""
        return (False, self.epoch or 0.0) if self.step is None else (True, float(self.step))


@dataclass(slots=True)
class LossSeries:
    """A series, line by line: counts, invalid numbers, and since when the last ones are invalid."""

    lines: int = 0
    wrong: int = 0
    first_wrong: str = ""  # `step 60`
    since: str = ""
    at_end: int = 0  # lines
    unclear_at_end: int = 0
    before_number: tuple[str, int] = ("", 0)  # both, before the last number
    missing_at_end: int = 0  # of the unclear ones those without any value
    first: tuple[bool, float] | None = None  # the position of the first line
    last: tuple[bool, float] | None = None  # and of the last
    began: str = ""  # the time of the first line that has one
    ended: str = ""  # and of the last
    word: str = ""  # nan, inf
    window: LossWindow = field(default_factory=LossWindow)
    may_grow: bool = False  # then it is not compared

    def add(self, at: str, value: float, *, was_nan: bool = False, is_again: bool = False) -> None:
        """Add the next line, and whether its loss was invalid in some of its steps.

        `is_again`: it repeats a step, so its number does not count as a recovery.
        """
        self.lines += 1
        if isfinite(value):
            self.before_number, self.at_end = (self.since, self.at_end), 0
            if not self.may_grow:
                self.window.add(at, self.last[1] if self.last else 0.0, value)
            if was_nan:
                self._wrong(at, nan)
            return
        if is_again and not self.at_end:
            self.since, self.at_end = self.before_number
        if not self.at_end:
            self.since = at
        self.at_end += 1
        self._wrong(at, value)

    @property
    def is_settling(self) -> bool:
        """Whether all steps of a run are skipped so far, and no more than its loss scale may take."""
        if not (self.first and self.last and self.last[0]) or self.at_end < self.lines:
            return False
        begins, ends = self.first[1], self.last[1]
        return ends <= SETTLED_BY and (begins <= 1 or begins * self.lines == ends)

    def _wrong(self, at: str, value: float) -> None:
        self.first_wrong = self.first_wrong or at
        self.wrong += 1
        self.word = str(value)

    def follow(self, line: Loss) -> None:
        """Record where the next line is, and whether it may be invalid. Repeated steps continue from earlier ones."""
        if line.begins:
            self.window.begin()
        elif self.last is not None and self.last[0] == line.position[0] and line.position < self.last:
            self.window.go_on(self.window, line.position[1])
        self.first = self.first or line.position
        self.last = line.position
        self.began, self.ended = self.began or line.time, line.time or self.ended
        self.unclear_at_end = self.unclear_at_end + 1 if line.is_unclear else 0
        self.missing_at_end = self.missing_at_end + 1 if line.is_unclear and line.loss is None else 0

    def follows_on(self, other: LossSeries) -> bool:
        """Whether it begins after the other's first line, and ends after its last."""
        if not (self.first and self.last and other.first and other.last):
            return False
        has_same_axis = self.first[0] == other.first[0]  # both by step, or by epoch
        return has_same_axis and self.first > other.first and self.last > other.last

    def may_continue_at(self, position: tuple[bool, float]) -> bool:
        """Whether another log that begins there may continue it: from its end, or from an earlier checkpoint."""
        if not self.last or self.last[0] != position[0]:
            return False
        return abs(self.last[1] - position[1]) <= NEAR_SHARE * self.last[1]

    def covers(self, other: LossSeries) -> bool:
        """Whether it has reached that position."""
        return bool(self.last and other.last and self.last[0] == other.last[0] and self.last >= other.last)

    def is_later(self, other: LossSeries) -> bool | None:
        """Whether it begins after the other has ended; None if their lines do not show that."""
        if not (self.began and other.ended) or self.began == self.ended == other.began == other.ended:
            return None
        return self.began >= other.ended


# The rank; and 0, -1, … for separate logs, or 1, 2, … for attempts in checkpoints, which may also be in logs.
Key = tuple[int, int]
LOG = 0
LOSS, NORM = "loss", "norm of the gradients"
MIN_EPOCH = 2.0**-20  # minimum distance of two lines


@dataclass(slots=True)
class Losses:
    """The losses of all ranks, in the order of their lines; `skips` has nan for a line of skipped steps."""

    losses: dict[Key, LossSeries] = field(default_factory=dict)
    norms: dict[Key, LossSeries] = field(default_factory=dict)
    skips: dict[Key, LossSeries] = field(default_factory=dict)
    curves: dict[tuple[str, bool], LossCurve] = field(default_factory=dict)  # LOSS or NORM, and whether by step
    _kept: dict[Key, dict[int, str]] = field(default_factory=dict)  # the value of each step
    _at: dict[int, tuple[str, int]] = field(default_factory=dict)  # by rank the file and its attempt
    _logs: dict[int, dict[tuple[str, str], Key]] = field(default_factory=dict)  # by rank, and file and printer
    _printed: dict[Key, tuple[str, str]] = field(default_factory=dict)  # the inverse
    _files: set[str] = field(default_factory=set)

    def add(self, line: Loss, where: str = "") -> None:
        """Add a line of a file. Raises RunError."""
        attempt = self._attempt(line) if line.kept_in else None
        if line.kept_in and attempt is None:
            return
        key = self._log(line, where) if attempt is None else (line.rank, attempt)
        skipped = None if line.is_skipped is None else (nan if line.is_skipped else 1.0)
        values = (LOSS, self.losses, line.loss), (NORM, self.norms, line.norm), ("", self.skips, skipped)
        for name, kind, value in values:
            is_unsaid = kind is self.losses and line.is_unclear and key in kind  # it had a loss before
            if value is None and not is_unsaid:
                continue
            series = kind.get(key) or self._new(kind, key, line)
            series.follow(line)
            series.may_grow |= line.may_grow and kind is self.losses
            if value is not None:
                was_nan = line.was_nan and kind is self.losses
                series.add(line.at, value, was_nan=was_nan, is_again=line.is_again)
                if name:
                    is_step, position = line.position
                    curve = self.curves.setdefault((name, is_step), LossCurve(1.0 if is_step else MIN_EPOCH))
                    curve.add(position, value, is_wrong=was_nan)

    def _new(self, kind: dict[Key, LossSeries], key: Key, line: Loss) -> LossSeries:
        """A series that continues the same printer's log from the previous job."""
        series = kind[key] = LossSeries()
        logs = self._logs.get(line.rank, {}).items() if key in self._printed else ()
        before = [kind[of] for (_, by), of in logs if by == line.printed_by and of != key and of in kind]
        if before and before[-1].may_continue_at(line.position) and not line.begins:
            series.window.go_on(before[-1].window, line.position[1])
        return series

    def _log(self, line: Loss, where: str) -> Key:
        logs, of = self._logs.setdefault(line.rank, {}), (where, line.printed_by)
        if of not in logs:
            key = logs[of] = line.rank, -len(logs)
            self._printed[key] = of
            self._files.add(where)
            if len(self._printed) > MAX_SERIES:
                raise RunError(f"{where}: more than {MAX_SERIES:,} ranks log a loss; expected fewer")
        return logs[of]

    def _attempt(self, loss: Loss) -> int | None:
        """The attempt of a checkpoint's entry; None if another checkpoint has the same.

        Checkpoints with different values for a step are of two attempts.
        """
        values, step = f"{loss.loss} {loss.norm}", loss.step or 0
        file, attempt = self._at.get(loss.rank, ("", 1))
        attempt = attempt if file == loss.kept_in else 1
        while True:
            kept = self._kept.setdefault((loss.rank, attempt), {})
            self._at[loss.rank] = loss.kept_in, attempt
            if kept.get(step) == values:
                return None
            if step not in kept and step > next(reversed(kept), -1):
                kept[step] = values
                return attempt
            attempt += 1

    def named(self, kind: Mapping[Key, LossSeries]) -> list[tuple[str, LossSeries]]:
        """Each series of a kind with its name, by rank: `rank 3`, or `rank 3 (slurm-7.out)` for several files."""
        parts = 1 if len({PurePath(file).name for file in self._files}) == len(self._files) else PARTS_OF_A_PATH
        names = []
        for key in sorted(kind, key=lambda key: key[0]):
            file, printed_by = self._printed.get(key, ("", ""))
            shown = printable("/".join(PurePath(file).parts[-parts:]).replace("\n", "\\n"), MAX_PATH)
            among = f" ({shown})" if len(self._files) > 1 and file else ""
            names.append((f"{printed_by or f'rank {key[0]}'}{among}", kind[key]))
        return names

    def _is_over(self, key: Key) -> bool:
        """Whether a loss is invalid at the end, and no other log of the rank continues from there with valid ones."""
        ended = self.losses[key]
        logs = self._logs.get(key[0], {}).values() if key in self._printed else ()
        return ended.at_end > 0 and not any(self._goes_on(other, key) for other in logs if other in self.losses)

    def _goes_on(self, key: Key, ended: Key) -> bool:
        """Whether a log ends with valid numbers after the end of another, or in a later job that restarted."""
        log, before = self.losses[key], self.losses[ended]
        if log.at_end or log is before:
            return False
        is_later = log.is_later(before)
        if is_later is None:
            is_later = _is_named_later(self._printed[key][0], self._printed[ended][0])
        return log.follows_on(before) or (is_later and log.covers(before))

    @property
    def never_again(self) -> Iterator[tuple[str, LossSeries]]:
        """Those whose loss is invalid at the end."""
        return iter(self.named({key: series for key, series in self.losses.items() if self._is_over(key)}))

    @property
    def for_a_while(self) -> Iterator[tuple[str, LossSeries]]:
        """Those whose loss was invalid, and is valid again."""
        wrong = {key: series for key, series in self.losses.items() if series.wrong and not self._is_over(key)}
        return iter(self.named(wrong))

    @property
    def without_norm(self) -> Iterator[tuple[str, LossSeries]]:
        """Those whose gradient norm is invalid in the last lines."""
        return ((name, series) for name, series in self.named(self.norms) if series.at_end >= NORM_LINES)

    @property
    def skipping(self) -> Iterator[tuple[str, LossSeries]]:
        """Those whose steps are all skipped in the last lines."""
        return ((name, series) for name, series in self.named(self.skips) if series.at_end >= SKIPPED_LINES)

    @property
    def unclear(self) -> Iterator[tuple[str, LossSeries]]:
        """Those whose loss may be invalid in the last lines, undecidably."""
        return (
            (name, series)
            for name, series in self.named(self.losses)
            if series.missing_at_end or series.unclear_at_end >= UNCLEAR_LINES
        )


def _is_named_later(file: str, other: str) -> bool:
    """Whether their names differ only in numbers, and its own are higher: `slurm-1000.out` and `slurm-999.out`."""
    parts, other_parts = (_NUMBER.split(name) for name in (file, other))
    return parts[::2] == other_parts[::2] and [*map(int, parts[1::2])] > [*map(int, other_parts[1::2])]


def are_compared(series: Mapping[Key, LossSeries]) -> bool:
    """Whether each rank has enough lines for comparisons."""
    return {rank for rank, _ in series} == {rank for (rank, _), losses in series.items() if losses.window.compared}
