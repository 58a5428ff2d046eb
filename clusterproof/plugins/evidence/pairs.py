"""Measurements between nodes: single results of pairs and groups, overall findings, and those on one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from enum import Enum
from math import exp
from typing import Protocol

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.exchanges import Exchange, MeshOfNode

RDMA_MESH = "rdma_mesh"  # the meter that measures no bandwidth


class Failure(str, Enum):
    """A kind of failure that says nothing about the network; other failures have no kind."""

    NO_PROGRAM = "no program"  # a node does not have the meter's
    NO_RDMA = "no RDMA"  # neither node has any RDMA hardware
    NOT_AT_FAULT = "not at fault"  # a node was not to be had just then
    APART = "apart"  # the ranks of one job did not become one: what to do, the launcher knows


_PHRASES = {  # of versions before journals had kinds: these words never change
    "is not installed: looked": Failure.NO_PROGRAM,
    "is not a program here": Failure.NO_PROGRAM,
    "no RDMA device on either node": Failure.NO_RDMA,
    "by no fault of its own": Failure.NOT_AT_FAULT,
    "the ranks did not find each other": Failure.APART,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One run. `busbw_gb_per_s` (10^9 bytes a second) is None if it failed, with the reason in `problem`.

    `size_bytes` is the message's; `is_correct` is None where results were not compared with the right ones. `network`
    is what the run itself proves of the network that it used ("efa, 32 devices", "Socket", "eth0"), empty where it
    proves nothing. `failure` is the kind of one, and `culprit` the node responsible for it, where the run says so.
    """

    busbw_gb_per_s: float | None = None
    algbw_gb_per_s: float | None = None
    time_us: float | None = None
    size_bytes: int = 0
    is_correct: bool | None = None
    network: str = ""
    problem: str = ""
    culprit: str = ""
    seconds: float = 0.0  # that the run took, its start included
    ranks: int = 0  # that took part, 0 where the run does not say
    hosts: tuple[
        str, ...
    ] = ()  # the names by which the run calls the nodes that took part; empty where it does not say
    command: str = ""  # with which a person measures this pair in the same way; empty in older recordings
    exchanges: tuple[
        Exchange, ...
    ] = ()  # of RDMA devices, by rail, where the meter makes these and measures no bandwidth
    failure: Failure | None = None

    @property
    def has_succeeded(self) -> bool:
        """Whether it brought what it was made for."""
        return self.busbw_gb_per_s is not None or bool(self.exchanges)

    @staticmethod
    def failure_in(record: Mapping[str, str]) -> Failure | None:
        """The kind of a failure in a journal; older journals have only words. Raises ValueError."""
        if "failure" in record:
            return Failure(record["failure"]) if record["failure"] else None
        return next((kind for phrase, kind in _PHRASES.items() if phrase in record.get("problem", "")), None)


MIN_GB_PER_S, MAX_GB_PER_S = 1e-9, 100_000.0  # a byte a second; no network and no NVLink domain comes near the other


def is_believable(gb_per_s: float | None) -> bool:
    """Whether it can be a bandwidth at all."""
    return gb_per_s is not None and MIN_GB_PER_S <= gb_per_s <= MAX_GB_PER_S


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two nodes, ordered by name: use `pair`."""

    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.a}~{self.b}"

    def __iter__(self) -> Iterator[str]:
        """Both ends, one after the other."""
        return iter((self.a, self.b))

    @property
    def nodes(self) -> tuple[str, str]:
        """Both ends."""
        return self.a, self.b

    def other(self, node: str) -> str:
        """The other end."""
        return self.b if node == self.a else self.a


def pair(node: str, other: str) -> Pair:
    """The pair of two nodes, whichever is named first."""
    return Pair(*sorted((node, other)))


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """At least three nodes, in the order of their ranks."""

    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return fold(self.nodes)

    def __iter__(self) -> Iterator[str]:
        """One after the other."""
        return iter(self.nodes)


@dataclass(frozen=True, slots=True)
class GroupMeasurement:
    """One measurement of one group; `at_once` groups were measured at the same time."""

    group: NodeGroup
    at_once: int
    reading: Reading


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one pair; `at_once` pairs were measured at the same time, in this round."""

    pair: Pair
    round: int
    at_once: int
    reading: Reading


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """A measured group, and the bandwidths (10^9 bytes a second) that it is compared with.

    `others_gb_per_s` is usual for the other groups of its size, `smallest` are the smallest groups' size and what is
    usual for them, `floor_gb_per_s` is known of so many nodes; None where there is nothing to compare with.
    `pairs_gb_per_s` is normal for pairs, 0 where that is unknown. `slow_inside` is what pairs found of its nodes.
    """

    group: NodeGroup
    readings: tuple[Reading, ...]
    others_gb_per_s: float | None = None
    smallest: tuple[int, float] | None = None
    floor_gb_per_s: float | None = None
    pairs_gb_per_s: float = 0.0
    slow_inside: PairFault | None = None


class Kind(str, Enum):
    """The kind of a fault: of a node, a link, a place, …"""

    SLOW_NODE = "slow node"
    FAILING_NODE = "failing node"
    SLOW_LINK = "slow link"
    FAILING_LINK = "failing link"
    SLOW_GROUP = "slow group"
    CONTENTION = "contention"
    CONFIGURATION = "configuration"
    INTERMITTENT = "intermittent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Estimate:
    """How much slower than normal (0.07 is 7 %), and the number of measurements.

    `low` and `high` hold the truth 19 times in 20; `confidence` is the chance that no healthy node of the run looks so.
    """

    slower: float
    low: float
    high: float
    measurements: int
    partners: int = 0
    confidence: float = 0.0


def estimated(middle: float, error: float, count: int, partners: int = 0, confidence: float = 0.0) -> Estimate:
    """The estimate that a difference of logarithms and its standard error make."""
    low, high = (1 - exp(middle + sign * 1.96 * error) for sign in (1, -1))
    return Estimate(1 - exp(middle), low, high, count, partners, confidence)


@dataclass(frozen=True, slots=True)
class PairFault:
    """One fault. `nodes` are those it is about; `pairs` the measured pairs that it explains."""

    kind: Kind
    nodes: tuple[str, ...] = ()
    place: str = ""
    estimate: Estimate | None = None
    failures: int = 0  # of how many measurements there were
    attempts: int = 0
    words: str = ""
    pairs: tuple[Pair, ...] = ()


class Between(Protocol):
    """All measurements between the nodes of a run."""

    def pairs_of_node(self, node: str) -> PairsOfNode:
        """What was measured of a node. Raises Incomplete, and NotApplicable for a node that belongs to no job."""


@dataclass(frozen=True)
class PairsOfNode:
    """The measurements of one node with all its partners."""

    measured: tuple[Measurement, ...]
    if_none: Incomplete | NotApplicable  # why nothing was
    estimate: Estimate | None  # how slow it is, None where no measurement of it succeeded
    finding: PairFault | None  # what the analysis says of this node by itself
    shared: tuple[PairFault, ...]  # and of a place or of all nodes, this one among them
    failing: frozenset[str]  # the nodes with which measurements fail, whoever the partner is
    unclear: str  # why the nodes that were measured cannot be told apart; empty where they can
    is_one_of_two: bool  # whether there is but one other node to measure it with
    meter: str  # the program that measured
    by_hand: str  # how a person measures it with a good one; empty where that is unknown
    in_groups: tuple[MeasuredGroup, ...] = ()  # those that it was in
    groups_left_out: str = ""  # which of them were not measured, and why
    if_no_group: Incomplete | NotApplicable | None = None  # why it was in none
    mesh: MeshOfNode | None = None  # where its RDMA devices exchanged a few bytes, and no bandwidth was measured

    @property
    def groups(self) -> tuple[MeasuredGroup, ...]:
        """The groups that it was measured in, at least one. Raises Incomplete, NotApplicable."""
        if self.if_no_group:
            raise copy(self.if_no_group)
        return self.in_groups

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements that it took part in, at least one. Raises Incomplete, NotApplicable."""
        if not self.measured:
            raise copy(self.if_none)
        return self.measured

    @property
    def partners(self) -> int:
        """With how many nodes it was measured. Raises Incomplete, NotApplicable."""
        return len({measurement.pair for measurement in self.measurements})

    @property
    def succeeded_with(self) -> int:
        """With how many nodes a measurement of it succeeded. Raises Incomplete, NotApplicable."""
        return len({measurement.pair for measurement in self.measurements if measurement.reading.busbw_gb_per_s})
