"""Ranks' processes as `clusterproof watch` sampled them: since when each main thread does what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record

SOURCE = "ranks"  # of the events of a recording that have them
MAX_RANKS = 128  # of a node
MAX_JOBS = 64
LATE_S = 45.0  # since a process was seen last, until it counts as ended: four looks
MAX_RANK = 10**9
MAX_WORD = 80  # characters
COMPUTING = "computing"
COMPUTING_SHARE = 0.05  # of a CPU that the main thread takes: one that waits takes next to nothing
STATES = {"D": "blocked in the kernel", "T": "stopped by a signal", "t": "stopped by a debugger", "Z": "ended"}
ASLEEP = "asleep"


@record
class RankLook:
    """A sample of a rank's process: its job, its main thread's state and wait function, and its CPU seconds."""

    rank: int
    size: int
    job: str
    state: str
    wait: str
    cpu_s: float

    def to_json(self) -> list[object]:
        """As a row of a recording."""
        return [self.rank, self.size, self.job, self.state, self.wait, self.cpu_s]


def look_of(row: object) -> RankLook:
    """A row of a sampler's, or of a recording's. Raises TypeError, ValueError."""
    if not isinstance(row, list) or len(row) != 6:
        raise ValueError(f"{str(row)!r:.60} is no look at a rank")
    rank, size, job, state, wait, cpu_s = row
    if not all(type(number) is int and 0 <= number <= MAX_RANK for number in (rank, size)):
        raise ValueError(f"{rank!r:.20} of {size!r:.20} is not a rank")
    if not all(isinstance(word, str) for word in (job, state, wait)):
        raise TypeError(f"{str(row)!r:.60} has no words")
    if type(cpu_s) not in (int, float) or not isfinite(cpu_s) or cpu_s < 0:
        raise ValueError(f"{cpu_s!r:.20} is not a time")
    job, state, wait = (printable(word[:MAX_WORD], MAX_WORD) for word in (job, state[:1], wait))
    return RankLook(rank, size, job, state, wait, float(cpu_s))


@record
class RankSeen:
    """A sample of a rank with its node and time (seconds since 1970)."""

    node: str
    time_s: float
    look: RankLook


@dataclass(slots=True)
class Activity:
    """What a rank does or waits in, since when, and when it was last sampled."""

    node: str
    name: str
    began_s: float
    seen_s: float
    cpu_s: float

    @property
    def seconds(self) -> float:
        """For how long it was seen so."""
        return self.seen_s - self.began_s


@dataclass
class RankProcesses:
    """The last activity of each rank, by job; its size does not grow with time.

    What is seen once counts when it is seen again: a rank that waits wakes up now and then, and one look may come while
    a job is killed. A rank that has used a CPU since the look before does something else at once.
    """

    jobs: dict[str, dict[int, Activity]] = field(default_factory=dict)
    once: dict[tuple[str, int], Activity] = field(default_factory=dict)  # seen at the last look, and not before
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, seen: RankSeen) -> None:
        """Take in a look at a rank; looks come in the order of their time."""
        look = seen.look
        if look.job not in self.jobs and len(self.jobs) >= MAX_JOBS:
            oldest = min(self.jobs, key=self.ended_s)
            self.once = {key: activity for key, activity in self.once.items() if key[0] != oldest}
            del self.jobs[oldest], self.sizes[oldest]
        ranks = self.jobs.setdefault(look.job, {})
        self.sizes[look.job] = look.size
        before, once = ranks.get(look.rank), self.once.pop((look.job, look.rank), None)
        last = once or before
        has_computed = last is not None and look.cpu_s - last.cpu_s >= COMPUTING_SHARE * max(
            1.0, seen.time_s - last.seen_s
        )
        name = COMPUTING if has_computed else activity_of(look)
        same = next(
            (
                activity
                for activity in (before, once)
                if activity and (activity.name, activity.node) == (name, seen.node)
            ),
            None,
        )
        if same:
            same.seen_s, same.cpu_s = seen.time_s, look.cpu_s
            ranks[look.rank] = same
            return
        began_s = last.seen_s if last and has_computed else seen.time_s
        new = Activity(seen.node, name, began_s, seen.time_s, look.cpu_s)
        if before and not has_computed and before.node == seen.node:
            self.once[look.job, look.rank] = new
        else:
            ranks[look.rank] = new

    def ended_s(self, job: str) -> float:
        """When any rank of a job was seen last."""
        return max(activity.seen_s for activity in self.jobs[job].values())

    @property
    def latest(self) -> Mapping[int, Activity]:
        """The ranks of the largest of those jobs that were seen last; none where none was."""
        return self.jobs[self._latest()] if self.jobs else {}

    @property
    def latest_size(self) -> int:
        """Of how many ranks that job is."""
        return self.sizes[self._latest()] if self.jobs else 0

    def _latest(self) -> str:
        now = max(map(self.ended_s, self.jobs))
        last = [job for job in self.jobs if now - self.ended_s(job) <= LATE_S]
        return max(last, key=lambda job: (len(self.jobs[job]), self.ended_s(job)))


def activity_of(look: RankLook) -> str:
    """`computing`, where its main thread would use a CPU, which it may not get on a busy machine; else its wait."""
    if look.state == "R":
        return COMPUTING
    word = STATES.get(look.state, ASLEEP)
    return look.wait or word if look.state in "SD" else word
