"""What `clusterproof watch` saw of the ranks' processes: since when each one's main thread does what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record

SOURCE = "ranks"  # of the events of a recording that have them
MAX_RANKS = 128  # of a node
MAX_JOBS = 64
MAX_RANK = 10**9
MAX_WORD = 80  # characters
COMPUTING = "computing"
COMPUTING_SHARE = 0.05  # of a CPU that the main thread takes: one that waits takes next to nothing
STATES = {"D": "blocked in the kernel", "T": "stopped by a signal", "t": "stopped by a debugger", "Z": "ended"}
ASLEEP = "asleep"


@record
class RankLook:
    """One look at a rank's process: of which job, its main thread's state, what it waits in, and its seconds of CPU."""

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
        raise ValueError(f"{rank!r:.20} of {size!r:.20} is no rank")
    if not all(isinstance(word, str) for word in (job, state, wait)):
        raise TypeError(f"{str(row)!r:.60} has no words")
    if type(cpu_s) not in (int, float) or not isfinite(cpu_s) or cpu_s < 0:
        raise ValueError(f"{cpu_s!r:.20} is no time")
    job, state, wait = (printable(word[:MAX_WORD], MAX_WORD) for word in (job, state[:1], wait))
    return RankLook(rank, size, job, state, wait, float(cpu_s))


@record
class RankSeen:
    """The look at a rank, on which node and when (s since 1970)."""

    node: str
    time_s: float
    look: RankLook


@dataclass(slots=True)
class Activity:
    """What a rank does or waits in, since when, and when it was seen last."""

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
    """The last activity of each rank, by job: however long a run was watched, no more is kept."""

    jobs: dict[str, dict[int, Activity]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, seen: RankSeen) -> None:
        """Take in a look at a rank; looks come in the order of their time."""
        look = seen.look
        if look.job not in self.jobs and len(self.jobs) >= MAX_JOBS:
            oldest = min(self.jobs, key=self.ended_s)
            del self.jobs[oldest], self.sizes[oldest]
        ranks = self.jobs.setdefault(look.job, {})
        self.sizes[look.job] = look.size
        before = ranks.get(look.rank)
        name = activity_of(look, before, seen.time_s)
        if before and before.name == name and before.node == seen.node:
            before.seen_s, before.cpu_s = seen.time_s, look.cpu_s
        else:
            began_s = before.seen_s if before and name == COMPUTING else seen.time_s
            ranks[look.rank] = Activity(seen.node, name, began_s, seen.time_s, look.cpu_s)

    def ended_s(self, job: str) -> float:
        """When any rank of a job was seen last."""
        return max(one.seen_s for one in self.jobs[job].values())

    @property
    def latest(self) -> Mapping[int, Activity]:
        """The ranks of the job that was seen last; none where none was."""
        return self.jobs[max(self.jobs, key=self.ended_s)] if self.jobs else {}

    @property
    def latest_size(self) -> int:
        """Of how many ranks that job is."""
        return self.sizes[max(self.jobs, key=self.ended_s)] if self.jobs else 0


def activity_of(look: RankLook, before: Activity | None, time_s: float) -> str:
    """`computing`, where its main thread has used a CPU since the look before, or would; else what it waits in."""
    passed = time_s - before.seen_s if before else 0.0
    has_computed = before and passed > 0 and look.cpu_s - before.cpu_s >= COMPUTING_SHARE * passed
    if has_computed or look.state == "R":  # on a busy machine it may get no CPU
        return COMPUTING
    word = STATES.get(look.state, ASLEEP)
    return look.wait or word if look.state in "SD" else word
