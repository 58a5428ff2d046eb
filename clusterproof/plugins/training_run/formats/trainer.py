"""The output of Hugging Face's Trainer: lines, progress bar, and the history in a checkpoint.

The bar (tqdm's) shows steps and whole seconds, so steps are reported as the mean over half a minute. Evaluations are
excluded, and checkpoints if the log shows them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.training_run import CutFile, Position, RunError, Step
from clusterproof.plugins.training_run.files import Format, RunFile, integer
from clusterproof.plugins.training_run.formats.json_items import Events
from clusterproof.plugins.training_run.formats.printed import number_or_none
from clusterproof.plugins.training_run.formats.printer import labels
from clusterproof.plugins.training_run.losses import Loss

LATE = b"{'loss': "  # in a line that may come late
STATE = "trainer_state.json of Hugging Face's Trainer"
MIN_S = 30  # of which one second is 3 %
MAX_HELD = 10_000  # times MIN_S of a bar that is not yet known to be of training
LOGGED = re.compile(r"\{'loss': [^{}]{0,20000}\}")
TO_DO = "Total optimization steps = "
TOTAL = re.compile(rf"{TO_DO}([0-9][0-9,]{{0,19}})")
_VALUE = r"'?([-+]?(?:nan|inf|[0-9][0-9.eE+-]{0,30}))(?=[',}])"
_PAIR = re.compile(rf"'(loss|grad_norm|learning_rate|epoch)': {_VALUE}")
_REWARD = re.compile(r"'(?:kl|reward)': ")  # of GRPO, whose loss begins at 0 (huggingface/open-r1#239)
_KEYS = {"loss", "learning_rate", "epoch"}  # in each training line
_STEP = re.compile(r"'global_step/max_steps': '([0-9]{1,12})/")  # of ms-swift, whose bar is called Train
_BAR = re.compile(
    r"(?:\[[\w. |:-]{1,60}\]:? ?)?"  # of a custom launcher
    r"(?:Train: )?\s{0,4}(?:[0-9]{1,3}%(?:\|[^|]{0,1000}\|)?\s{1,2})?([0-9]{1,12})/([0-9]{1,12}) "
    r"\[(?:([0-9]{1,6}):)?([0-9]{1,3}):([0-9]{2})<[0-9:?]{1,15}, {1,4}[0-9.?]{1,12}(?:it/s|s/it)\](\x1b\[A)?"
)
_RATES = ("it/s]", "s/it]")
OTHER = ("{'eval_", "Saving model checkpoint to ")  # Trainer's messages about other work
_ENDED = "{'train_runtime': "
_SAID = ("{'", *_RATES, TO_DO, OTHER[1])
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')


def is_trainer_line(line: str) -> bool:
    """Whether a line may be Trainer's: most lines of other logs are not."""
    return any(word in line for word in _SAID)


def is_logged(text: str) -> bool:
    """Whether a text has a line of Trainer's, or its total number of steps."""
    return any(_pairs(match[0]) for match in LOGGED.finditer(text)) or bool(TOTAL.search(text))


@dataclass
class Bar:
    """A progress bar, and the steps that it has shown since they were last returned."""

    total: int
    n: int = 0
    elapsed_s: int = 0  # when it first showed that step: it is redrawn later, too
    is_of_training: bool = False
    has_other: bool = False  # whether something other than steps happened since
    count: int = 0
    seconds: int = 0
    intervals: int = 1  # each may be a second too long or too short
    held: deque[Step] = field(default_factory=lambda: deque(maxlen=MAX_HELD))

    def take(self, n: int, elapsed_s: int) -> Iterator[Step]:
        """The steps completed by this drawing. The first number is where the bar begins, or resumes."""
        if n > self.n:
            if self.n and not self.has_other:
                self.count += n - self.n
                self.seconds += elapsed_s - self.elapsed_s
            elif self.count:
                self.intervals += 1
            self.n, self.elapsed_s, self.has_other = n, elapsed_s, False
            if self.seconds >= MIN_S * self.intervals:
                self.held.append(Step(Position(0), n, self.seconds / self.count, times=self.count))
                self.count, self.seconds, self.intervals = 0, 0, 1
        if self.is_of_training:
            yield from self.held
            self.held.clear()


@dataclass
class Trainer:
    """The data of the lines read so far.

    A bar is of training if a loss is printed between two drawings of it, or if its total is the number of steps.
    """

    log_bar: int = 0  # after names of containers
    bar: Bar | None = None
    total: int = 0  # number of steps, if known
    lines: int = 0  # of Trainer's since the bar was drawn
    losses: int = 0
    last: str = ""
    epoch: float | None = None  # None: training begins with the next line

    def take(self, text: str, where: str) -> Iterator[Step | Loss]:
        """Parse a line, or a drawing of a bar. Raises RunError."""
        if "{'" in text:
            yield from self._line(text, where)
        if any(rate in text for rate in _RATES) and (drawn := _BAR.match(text, labels(text, self.log_bar)[1])):
            yield from self._drawn(drawn, where)
        elif TO_DO in text and (match := TOTAL.search(text)):
            self.total = integer(match[1].replace(",", ""), "Total optimization steps", where)
        if self.bar and any(word in text for word in OTHER):
            self.bar.has_other = True

    def _line(self, text: str, where: str) -> Iterator[Loss]:
        match = LOGGED.search(text)
        is_same = match is not None and match[0] == self.last
        self.lines += not is_same
        if _ENDED in text:
            self.bar, self.epoch = None, None
        pairs = _pairs(match[0]) if match else {}
        if not match or not pairs:
            return
        self.losses += not is_same
        loss, norm, epoch = (number_or_none(pairs.get(key)) for key in ("loss", "grad_norm", "epoch"))
        is_unclear = may_be_none(loss, norm)
        is_again = is_same and not is_unclear and "nan" not in self.last and "inf" not in self.last
        if is_again or epoch is None:  # the first process of each node may print it
            return
        begins = self.epoch is None
        self.last, self.epoch = match[0], epoch
        global_step, may_grow = _STEP.search(match[0]), bool(_REWARD.search(match[0]))
        step = integer(global_step[1], "global_step", where) if global_step else None
        yield Loss(0, step, loss, norm, epoch=epoch, begins=begins, is_unclear=is_unclear, may_grow=may_grow)

    def _drawn(self, match: re.Match[str], where: str) -> Iterator[Step]:
        n, total = (integer(match[at], "a step", where) for at in (1, 2))
        elapsed_s = 3600 * int(match[3] or 0) + 60 * int(match[4]) + int(match[5])
        is_confirmed = self.lines == self.losses == 1
        self.lines = self.losses = 0
        bar = self.bar
        if match[6]:  # drawn below another: an evaluation
            if bar:
                bar.has_other = True
            return
        if not bar or total != bar.total or n < bar.n or elapsed_s < bar.elapsed_s:
            bar = self.bar = Bar(total)
            is_confirmed = False
        bar.is_of_training |= is_confirmed or total == self.total
        yield from bar.take(n, elapsed_s)


def _pairs(line: str) -> Mapping[str, str]:
    """The values in a training line; empty for others."""
    pairs = dict(_PAIR.findall(line))
    return pairs if pairs.keys() >= _KEYS else {}


def may_be_none(loss: float | None, norm: float | None) -> bool:
    """Whether a loss may be invalid: Trainer writes 0 for that (logging_nan_inf_filter)."""
    return loss == 0 and norm is None


def is_state(head: bytes) -> bool:
    """Whether a file that begins like this is a checkpoint's state of the run."""
    first, _, rest = head.strip().partition(b"\n")
    is_of_lines = bool(rest) and first.rstrip().endswith(b"}")  # of ms-swift, whose last line contains a history too
    return first.startswith(b"{") and not is_of_lines and b'"global_step"' in head and b'"log_history"' in head


def read_state(path: RunFile) -> Iterator[Loss | CutFile]:
    """The losses that it keeps. Raises RunError."""
    events = Events(path, _HISTORY, STATE)
    for entry in events:
        if not isinstance(entry, dict):
            raise RunError(f"{events.where}: {entry!r:.60} is no entry of its history; expected {STATE}")
        if "loss" in entry:
            yield _kept(entry, str(path), events.where)
    if not events.is_whole:
        yield CutFile()


def _kept(entry: Mapping[str, Any], file: str, where: str) -> Loss:
    loss, norm = number_or_none(entry["loss"]), number_or_none(entry.get("grad_norm"))
    step = integer(entry.get("step"), "step", where)
    return Loss(0, step, loss, norm, kept_in=file, is_unclear=may_be_none(loss, norm))


FORMATS = (Format(STATE, is_state, read_state),)
