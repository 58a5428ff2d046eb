"""What `clusterproof watch` saw of ranks' processes: their main thread's activity, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record

SOURCE = "ranks"  # key of such events in a recording
MAX_RANKS = 128  # of a node
MAX_JOBS = 64
LATE_S = 45.0  # since a process was last seen, until it counts as ended: four looks
MAX_RANK = 10**9
MAX_WORD = 80  # characters
COMPUTING = "computing"
COMPUTING_SHARE = 0.05  # of a CPU used by the main thread: one that waits uses almost none
STATES = {"D": "blocked in the kernel", "T": "stopped by a signal", "t": "stopped by a debugger", "Z": "ended"}
ASLEEP = "asleep"


@record
class RankLook:
    """One look at a rank's process: its job, its main thread's state, what it waits in, and its CPU seconds."""

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
    """Parse a row of a sampler, or of a recording. Raises TypeError, ValueError."""
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
    """A look at a rank, with the node and time (s since 1970)."""

    node: str
    time_s: float
    look: RankLook


@dataclass(slots=True)
class Activity:
    """A rank's activity or wait, since when, and when it was last seen."""

    node: str
    name: str
    began_s: float
    seen_s: float
    cpu_s: float
    there_s: float  # since when its rank was seen on this node

    @property
    def seconds(self) -> float:
        """How long it was observed."""
        return self.seen_s - self.began_s


@dataclass
class RankProcesses:
    """The last activity of each rank, by job; memory does not grow with the duration.

    An activity counts when it is seen twice: a waiting rank wakes up now and then, and a look may happen while a job is
    killed. A rank that has used CPU since the previous look changes its activity at once.
    """

    jobs: dict[str, dict[int, Activity]] = field(default_factory=dict)
    once: dict[tuple[str, int], Activity] = field(default_factory=dict)  # seen at the last look, but not before
    sizes: dict[str, tuple[float, int]] = field(default_factory=dict)  # when last seen, and the number of ranks

    def add(self, seen: RankSeen) -> None:
        """Add a look at a rank; those of one node must be in order of time.

        A job that began again under its name may have had this rank on another node before. Kubeflow gives a torchrun
        the number of its pod as RANK, and its ranks their own: then the larger job, and the busier process, is meant.
        """
        look = seen.look
        if look.job not in self.jobs and len(self.jobs) >= MAX_JOBS:
            oldest = min(self.jobs, key=self.ended_s)
            self.once = {key: activity for key, activity in self.once.items() if key[0] != oldest}
            del self.jobs[oldest], self.sizes[oldest]
        last_s, size = self.sizes.get(look.job, (0.0, 0))
        if look.size < size and seen.time_s - last_s <= LATE_S:
            return
        ranks = self.jobs.setdefault(look.job, {})
        self.sizes[look.job] = max((last_s, size), (seen.time_s, look.size))
        before = ranks.get(look.rank)
        if before and before.node != seen.node:
            is_idler = look.cpu_s <= before.cpu_s and before.there_s <= seen.time_s <= before.seen_s + LATE_S
            if is_idler or seen.time_s < before.there_s:
                return
            before = None
        once = self.once.pop((look.job, look.rank), None)
        there_s = before.there_s if before and seen.time_s - before.seen_s <= LATE_S else seen.time_s
        last = before and (once or before)
        has_computed = last is not None and look.cpu_s - last.cpu_s >= COMPUTING_SHARE * max(
            1.0, seen.time_s - last.seen_s
        )
        name = COMPUTING if has_computed else activity_of(look)
        same = next(
            (
                activity
                for activity in (before, before and once)
                if activity and (activity.name, activity.node) == (name, seen.node)
            ),
            None,
        )
        if same:
            same.seen_s, same.cpu_s, same.there_s = seen.time_s, look.cpu_s, there_s
            ranks[look.rank] = same
            return
        began_s = last.seen_s if last and has_computed else seen.time_s
        new = Activity(seen.node, name, began_s, seen.time_s, look.cpu_s, there_s)
        if before and not has_computed:
            self.once[look.job, look.rank] = new
        else:
            ranks[look.rank] = new

    def ended_s(self, job: str) -> float:
        """When any rank of a job was last seen."""
        return max(activity.seen_s for activity in self.jobs[job].values())

    @property
    def latest(self) -> Mapping[int, Activity]:
        """The ranks of the largest of the last jobs; empty if there is none."""
        size = self.latest_size
        return {rank: activity for rank, activity in self.jobs[self._latest()].items() if rank < size} if size else {}

    @property
    def latest_size(self) -> int:
        """The number of that job's ranks."""
        return self.sizes[self._latest()][1] if self.jobs else 0

    def _latest(self) -> str:
        now = max(map(self.ended_s, self.jobs))
        last = [job for job in self.jobs if now - self.ended_s(job) <= LATE_S]
        return max(last, key=lambda job: (len(self.jobs[job]), self.ended_s(job)))


def activity_of(look: RankLook) -> str:
    """`computing` if its main thread would use a CPU, which it may not get on a busy machine; else what it waits in."""
    if look.state == "R":
        return COMPUTING
    word = STATES.get(look.state, ASLEEP)
    return look.wait or word if look.state in "SD" else word
