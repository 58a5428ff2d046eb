"""Step times whose column does not say whether each is a duration or the time since the start.

A time that only ever rises is that since a beginning: no step takes longer than each before it, twenty times together.
One that is a date is the time since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import Step

NAMES = ("time", "elapsed", "elapsed_time")
EPOCH_S = 1e9  # from which on seconds are a time since 1970, and no duration, of 31 years
LAST_EPOCH_S = 1e10  # in the year 2286: more are a time in another unit
ENOUGH = 20  # steps of a rank, by which it is told
FEW = 3  # of a file that has no more
MAX_HELD = 10_000  # of all ranks


def since_1970_s(value: object) -> float | None:
    """The seconds of a date that is written out, of UTC where it does not say; None for anything else."""
    try:
        moment = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


@dataclass
class Elapsed:
    """The steps of a file, kept until it is known what their times mean."""

    is_unclear: bool  # whether their name does not say
    rises: bool = False
    held: dict[int, list[Step]] = field(default_factory=dict)  # by rank
    count: int = 0
    before: dict[int, Step] = field(default_factory=dict)  # by rank the line before

    def take(self, step: Step) -> Iterator[Step]:
        """The steps that are known by this one."""
        if not self.is_unclear:
            yield from self._made(step)
            return
        held = self.held.setdefault(step.position.rank, [])
        held.append(step)
        self.count += 1
        if len(held) >= ENOUGH or self.count >= MAX_HELD:
            yield from self.rest()

    def rest(self) -> Iterator[Step]:
        """Those that are held."""
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
        """The step, as long as the time since the line before it, by as many steps as that is."""
        if not self.rises:
            yield step
            return
        last = self.before.get(step.position.rank)
        self.before[step.position.rank] = step
        if last and step.step > last.step and step.seconds >= last.seconds:
            count = step.step - last.step
            yield replace(step, seconds=(step.seconds - last.seconds) / count, times=count)
