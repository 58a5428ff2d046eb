"""What Megatron-LM and torchtitan print as they train: how long iterations take, checkpoints, the start."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.training_run.lines import Lines
from clusterproof.plugins.training_run.records import Place, RunError, Step
from clusterproof.plugins.training_run.unpacked import RunFile, Unpacked
from clusterproof.plugins.training_run.values import seconds, whole

MS = 1e-3  # s
MAX_START = 256 << 20  # bytes before the first iteration
_LATE = (b"elapsed time per iteration (ms):", b" - INFO - step:", b" - INFO - \x1b[31mstep:")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"([0-9][0-9.eE+-]{0,30})"
_ITERATION = re.compile(
    rf"\biteration\s+([0-9]{{1,18}})\s*/(?:(?!\biteration\s+[0-9]).)*?elapsed time per iteration \(ms\):\s*{_NUMBER}"
)
_TIMER = re.compile(rf"([A-Za-z][\w/-]{{2,80}}) \.{{3,}}:\s*(?:\({_NUMBER},\s*{_NUMBER}\)|{_NUMBER})")
_START = re.compile(rf"time to initialize megatron \(seconds\):\s*{_NUMBER}")
_TITAN = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})[,.]([0-9]{1,6}) .*"
    r"\bstep:\s*([0-9]{1,18})\b.*\bloss:"
)
_SAVED = re.compile(rf"Finished saving the checkpoint(?:(?!Finished saving).)*?in {_NUMBER} seconds")
_RANK = re.compile(r"^\s*\[rank([0-9]{1,7})\]:")
_TIMERS = {  # of Megatron's timers those that are no part of another, and what they are called here
    "batch-generator": "data",
    "save-checkpoint": "checkpoint",
    "save-checkpoint-non-persistent": "checkpoint",
    "load-checkpoint": "init",
    "model-and-optimizer-setup": "init",
    "train/valid/test-data-iterators-setup": "init",
}
CHECKPOINT, INIT = "checkpoint", "init"


def is_log(head: bytes) -> bool:
    """Whether a file that begins so is such a log; the first iteration may come late."""
    text = _COLOUR.sub("", head.decode("utf-8", "replace"))
    return bool(_ITERATION.search(text) or _START.search(text) or _TITAN.search(text))


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


def read_log(path: RunFile) -> Iterator[Step]:
    """The iterations that it records. Raises RunError."""
    lines, log = Lines(path, "replace"), _Log()
    for line in lines:
        try:
            yield from log.take(_COLOUR.sub("", line), lines.where)
        except ValueError as wrong:
            if lines.is_cut:
                break
            said = str(wrong) if isinstance(wrong, RunError) else f"{lines.where}: {wrong}; expected a date"
            raise RunError(said) from None
    yield from log.rest()


@dataclass
class _Log:
    """What the lines have said so far."""

    step: Step | None = None  # of Megatron: its timers come behind it
    parts: dict[str, float] = field(default_factory=dict)
    before: dict[int, tuple[int, float]] = field(default_factory=dict)  # of torchtitan, by rank: the step and its time

    def take(self, line: str, where: str) -> Iterator[Step]:
        """The step that is complete by this line, if one is. Raises RunError, ValueError."""
        if found := _ITERATION.search(line):
            yield from self.rest()
            number, lasted = whole(found[1], "iteration", where), seconds(found[2], "elapsed time", where) * MS
            self.step = Step(Place(0), number, lasted)
        elif found := _START.search(line):
            self._add(INIT, seconds(found[1], "time to initialize megatron", where))
        elif (found := _TIMER.search(line)) and found[1] in _TIMERS:
            self._add(_TIMERS[found[1]], seconds(found[3] or found[4], found[1], where) * MS)
        elif found := _SAVED.search(line):
            self._add(CHECKPOINT, seconds(found[1], "the checkpoint", where))
        elif found := _TITAN.search(line):
            yield from self._of_titan(found, line, where)

    def rest(self) -> Iterator[Step]:
        """The last step of Megatron's. A checkpoint is saved behind it, and counts to the time that it takes."""
        if self.step:
            yield Step(self.step.place, self.step.step, self.step.seconds + self.parts.get(CHECKPOINT, 0.0), self.parts)
            self.step, self.parts = None, {}

    def _add(self, part: str, lasted: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + lasted

    def _of_titan(self, found: re.Match[str], line: str, where: str) -> Iterator[Step]:
        """A step is as long as the time since the line before, by as many steps as that is."""
        year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
        time_s = timegm((year, month, day, hour, minute, second)) + float(f"0.{found[7]}")
        step = whole(found[8], "step", where)
        named = _RANK.search(line)
        rank = int(named[1]) if named else 0
        last_step, last_time = self.before.get(rank, (step, time_s))
        if step == last_step and rank in self.before:  # another rank's, where lines do not say whose they are
            return
        self.before[rank] = (step, time_s)
        count = step - last_step
        if count > 0 and time_s >= last_time:
            parts = {part: lasted / count for part, lasted in self.parts.items()}
            self.parts = {}
            yield Step(Place(rank), step, (time_s - last_time) / count, parts)
