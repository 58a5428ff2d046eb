"""Ambiguous step times: the duration of each step, or the time since the run began.

If it only ever increases, it is the time since the beginning: no step takes longer than each previous one twenty times
in a row. If it is a date, it is the time since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import Step

NAMES = ("time", "elapsed", "elapsed_time")
EPOCH_S = 1e9  # larger values are a time since 1970: durations are below 31 years
LAST_EPOCH_S = 1e10  # in the year 2286: larger values have another unit
ENOUGH = 20  # steps of a rank needed to decide
FEW = 3  # of a file that has no more
MAX_HELD = 10_000  # of all ranks


def since_1970_s(value: object) -> float | None:
    """The seconds of a written date, in UTC by default; None for anything else."""
    try:
        moment = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


@dataclass
class Elapsed:
    """The steps of a file, held until the meaning of their times is known."""

    is_unclear: bool  # whether their name is ambiguous
    rises: bool = False
    held: dict[int, list[Step]] = field(default_factory=dict)  # by rank
    count: int = 0
    before: dict[int, Step] = field(default_factory=dict)  # by rank the previous line

    def take(self, step: Step) -> Iterator[Step]:
        """The steps that this one completes."""
        if not self.is_unclear:
            yield from self._made(step)
            return
        held = self.held.setdefault(step.position.rank, [])
        held.append(step)
        self.count += 1
        if len(held) >= ENOUGH or self.count >= MAX_HELD:
            yield from self.rest()

    def rest(self) -> Iterator[Step]:
        """Those that are still held."""
        if not self.is_unclear:
            return
        of_ranks = [[step.seconds for step in held] for held in self.held.values() if len(held) >= FEW]
        self.is_unclear = False
        are_dates = any(step.seconds > EPOCH_S for held in self.held.values() for step in held)
        only_rise = bool(of_ranks) and all(earlier < later for times in of_ranks for earlier, later in pairwise(times))
        self.rises = are_dates or only_rise
        for held in self.held.values():
            for step in held:
                yield from self._made(step)
        self.held.clear()

    def _made(self, step: Step) -> Iterator[Step]:
        """The step with the time since the previous line, divided by the number of steps."""
        if not self.rises:
            yield step
            return
        last = self.before.get(step.position.rank)
        self.before[step.position.rank] = step
        if last and step.step > last.step and step.seconds >= last.seconds:
            count = step.step - last.step
            yield replace(step, seconds=(step.seconds - last.seconds) / count, times=count)
