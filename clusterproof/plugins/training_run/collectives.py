"""Collectives recorded by ranks: which of them end on all ranks at once, and how long each rank was in one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from clusterproof.plugins.core.record import record, replace

ALL_TO_ALL = "AllToAll"
TOGETHER = "AllReduce, AllGather, ReduceScatter or AllToAll"
_TOGETHER = re.compile("allreduce|allgather|reducescatter|alltoall|barrier")
_APART = re.compile("broadcast|reduce(?!scatter)|gather|scatter|send|recv")
_NO_LETTER = re.compile("[^a-z]+")
_ROOTED = re.compile(r"_(Broadcast|Reduce|Gather|Scatter)_")  # in kernel names
_OF_PAIR = re.compile(r"send_?recv", re.IGNORECASE)
_KIND = re.compile(r"_(AllReduce|AllGather|ReduceScatter|AllToAll|AlltoAll)_")


@lru_cache(maxsize=1024)
def is_synchronizing(name: str) -> bool:
    """Whether a collective with this NCCL or PyTorch name ends on all ranks at once."""
    return bool(_TOGETHER.match(_letters(name)))


@lru_cache(maxsize=1024)
def has_root_or_peer(name: str) -> bool:
    """Whether it is known to have a root, or two ranks: it may end on one while others still wait."""
    return bool(_APART.match(_letters(name)))


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name.lower()).removeprefix("nccl")


@lru_cache(maxsize=1024)
def kind_of_kernel(kernel: str, collective: str) -> str:
    """What an NCCL kernel does, preferring the collective's name; empty if neither shows it.

    An all-to-all uses kernels called SendRecv; an uneven gather those of broadcasts.
    """
    if rooted := _ROOTED.search(kernel):
        return rooted[1]
    match = _KIND.search(kernel)
    return collective or (match[1] if match else "")


def is_of_pair(kernel: str) -> bool:
    """Whether a kernel sends to single ranks, rather than to all of them as an all-to-all does."""
    return bool(_OF_PAIR.search(kernel))


MAX_KEPT = 200_000  # collectives; above this every second is kept, then every fourth, the same on each rank
MIN_STEPS = 5  # of a trace whose collectives are evaluated for who arrives last
MIN_RANKS = 3  # of a communicator: with two, one is always last
BY_GPU = "kernel_gpu"  # CPU timings begin when it is enqueued, or when a thread polls
MAX_OTHERS = 20  # names of kinds that do not show who arrived last


@record
class CollectiveCall:
    """A collective as one rank of a communicator recorded it. Each kind is numbered separately."""

    communicator: str
    ranks: int
    rank: int  # in the communicator
    host: str
    number: int
    seconds: float
    kind: str = "AllReduce"
    source: str = BY_GPU  # the source of its timing
    of: int = 0  # how many of its kind this rank has, if numbered by order
    unfit: str = ""  # why it does not show who arrived last, though its kind does


@record
class Traced:
    """A collective in one rank's trace."""

    call: CollectiveCall


@dataclass(slots=True)
class CollectiveRecord:
    """A collective: how many ranks recorded it, and the two shortest durations."""

    ranks: int
    count: int = 0
    rank: int = -1
    first: float = float("inf")
    second: float = float("inf")


@dataclass
class Arrivals:
    """All recorded collectives of a run."""

    seen: dict[tuple[str, str, int, int], CollectiveRecord] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)  # by kind: those that do not show who arrived last
    hosts: dict[str, dict[int, str]] = field(default_factory=dict)  # by communicator and rank
    stride: int = 1
    unfit: Arrivals | None = None  # those that individually do not show who arrived last

    def add(self, call: CollectiveCall) -> None:
        """Add a rank's record."""
        is_fit = is_synchronizing(call.kind)
        unfit = call.unfit or ("" if call.source == BY_GPU else " that a CPU timed")
        if not is_fit or unfit:
            kind = f"{call.kind}{unfit if is_fit else ''}"
            if kind in self.others or len(self.others) < MAX_OTHERS:
                self.others[kind] = self.others.get(kind, 0) + 1
            if is_fit and call.unfit:
                self.unfit = self.unfit or Arrivals()
                self.unfit.add(replace(call, unfit=""))
            return
        if call.ranks < MIN_RANKS or call.number % self.stride:
            return
        self.hosts.setdefault(call.communicator, {}).setdefault(call.rank, call.host)
        seen = self.seen.setdefault((call.communicator, call.kind, call.of, call.number), CollectiveRecord(call.ranks))
        seen.count += 1
        if call.seconds < seen.first:
            seen.rank, seen.first, seen.second = call.rank, call.seconds, seen.first
        else:
            seen.second = min(seen.second, call.seconds)
        while len(self.seen) > MAX_KEPT:
            self.stride *= 2
            self.seen = {key: collective for key, collective in self.seen.items() if key[-1] % self.stride == 0}

    def complete(self) -> dict[str, list[CollectiveRecord]]:
        """For each communicator, the collectives that every rank recorded exactly once."""
        calls: dict[str, list[CollectiveRecord]] = {}
        for (communicator, _, _, _), collective in self.seen.items():
            if collective.count == collective.ranks == len(self.hosts[communicator]):
                calls.setdefault(communicator, []).append(collective)
        return calls

    def lacking_ranks(self, least: int) -> dict[str, tuple[int, int]]:
        """The communicators with so many collectives that not every rank recorded: how many did, and of how many."""
        sizes: dict[str, list[int]] = {}
        for (communicator, _, _, _), collective in self.seen.items():
            sizes.setdefault(communicator, []).append(collective.ranks)
        of_each = ((name, len(self.hosts[name]), max(ranks)) for name, ranks in sizes.items() if len(ranks) >= least)
        return {name: (seen, ranks) for name, seen, ranks in of_each if seen < ranks}
