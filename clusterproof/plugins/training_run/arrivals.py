"""Who comes last to collectives: a collective ends for all at once, so its kernel is shortest where it began last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run.collective_kinds import TOGETHER, ends_together

MAX_KEPT = 200_000  # collectives; of more every second is kept, then every fourth, the same ones of each rank
LEAST_RANKS = 3  # of a communicator: of two either one comes last
LATE = 0.1  # of the time of the one before it, by which the last one's must be shorter
BY_GPU = "kernel_gpu"  # what a CPU has timed began when it was enqueued, or when a thread looked
LEAST_CALLS = 100  # of NCCL's Inspector
LEAST_TRACED = 20  # of traces, which are of at least five steps
NO_LATENESS = "no collective says who comes last"
NO_CALLS = (
    f"{NOT_RECORDED} how long collectives of three ranks or more take; give traces of PyTorch's profiler of all ranks, "
    "or run with NCCL's Inspector (NCCL_PROFILER_PLUGIN, NCCL_INSPECTOR_ENABLE=1)"
)
MAX_OTHERS = 20  # names of what says nothing of who came last


@record
class Call:
    """A collective as one rank of a communicator saw it. Each kind is numbered by itself."""

    communicator: str
    ranks: int
    rank: int  # in the communicator
    host: str
    number: int
    seconds: float
    kind: str = "AllReduce"
    source: str = BY_GPU  # what it was timed by
    of: int = 0  # how many of its kind this rank has, where they are numbered by their order
    unfit: str = ""  # why it says nothing of who came last, though its kind does


@record
class Last:
    """Who comes last to a communicator's collectives: of how many, to how many, and how long others wait for it."""

    communicator: str
    ranks: int
    rank: int
    host: str
    calls: int
    times: int
    seconds: float

    @property
    def percent(self) -> float:
        """Of its collectives those to which it comes last."""
        return 100 * self.times / self.calls

    def is_certain(self, errors: float) -> bool:
        """Whether it is so many standard errors more often than by chance, by which each rank comes last as often."""
        chance = 1 / self.ranks
        return self.times - self.calls * chance > errors * sqrt(self.calls * chance * (1 - chance))


@dataclass(slots=True)
class _Seen:
    """Of one collective: how many ranks recorded it, and the two shortest."""

    ranks: int
    count: int = 0
    rank: int = -1
    first: float = float("inf")
    second: float = float("inf")


@dataclass
class Arrivals:
    """All collectives of a run."""

    seen: dict[tuple[str, str, int, int], _Seen] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)  # by kind: what does not say who came last
    hosts: dict[str, dict[int, str]] = field(default_factory=dict)  # by communicator and rank
    stride: int = 1

    def add(self, call: Call) -> None:
        """Take in what a rank saw."""
        is_fit = ends_together(call.kind)
        unfit = call.unfit or ("" if call.source == BY_GPU else " that a CPU timed")
        if not is_fit or unfit:
            kind = f"{call.kind}{unfit if is_fit else ''}"
            if kind in self.others or len(self.others) < MAX_OTHERS:
                self.others[kind] = self.others.get(kind, 0) + 1
            return
        if call.ranks < LEAST_RANKS or call.number % self.stride:
            return
        self.hosts.setdefault(call.communicator, {}).setdefault(call.rank, call.host)
        seen = self.seen.setdefault((call.communicator, call.kind, call.of, call.number), _Seen(call.ranks))
        seen.count += 1
        if call.seconds < seen.first:
            seen.rank, seen.first, seen.second = call.rank, call.seconds, seen.first
        else:
            seen.second = min(seen.second, call.seconds)
        while len(self.seen) > MAX_KEPT:
            self.stride *= 2
            self.seen = {key: one for key, one in self.seen.items() if key[-1] % self.stride == 0}

    def complete(self) -> dict[str, list[_Seen]]:
        """Of each communicator the collectives that every rank recorded, and none twice."""
        calls: dict[str, list[_Seen]] = {}
        for (communicator, _, _, _), one in self.seen.items():
            if one.count == one.ranks == len(self.hosts[communicator]):
                calls.setdefault(communicator, []).append(one)
        return calls

    def last(self, least: int) -> Iterator[Last]:
        """Of each communicator of enough collectives who comes last most often; none where nobody ever comes late."""
        for communicator, every in sorted(self.complete().items()):
            if len(every) < least:
                continue
            late: dict[int, list[float]] = {}
            for one in every:
                if one.first < (1 - LATE) * one.second:
                    late.setdefault(one.rank, []).append(one.second - one.first)
            if late:
                rank = max(late, key=lambda rank: len(late[rank]))
                host = self.hosts[communicator][rank]
                waits = late[rank]
                yield Last(communicator, every[0].ranks, rank, host, len(every), len(waits), sum(waits))


def last_to_come(recorded: Sequence[tuple[Arrivals, int]], errors: float) -> Last | None:
    """Who comes last to the largest share of a communicator's collectives, of records of which each needs so many.

    One that is certain by so many standard errors comes first. None if nobody does. Raises Incomplete.
    """
    seen = [(arrivals, least) for arrivals, least in recorded if arrivals.seen]
    if not seen:
        others = [f"{n:,} of {kind}" for arrivals, _ in recorded for kind, n in sorted(arrivals.others.items())]
        said = f"{NO_LATENESS}: {', '.join(others)}; expected {TOGETHER} of three ranks or more, timed by the GPU"
        raise Incomplete(said if others else NO_CALLS, cause=NO_LATENESS if others else NO_CALLS)
    counts = [(max(map(len, arrivals.complete().values()), default=0), least) for arrivals, least in seen]
    if all(calls < least for calls, least in counts):
        calls, least = max(counts)
        few = f"{calls} collectives that every rank recorded; expected at least {least}: give more, of all ranks"
        raise Incomplete(few, cause=few)
    found = [one for arrivals, least in seen for one in arrivals.last(least)]
    return max(found, key=lambda one: (one.is_certain(errors), one.percent, one.calls), default=None)
