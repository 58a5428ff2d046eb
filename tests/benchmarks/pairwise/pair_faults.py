"""Faults between nodes that the checks of pairs are tested with, each in an otherwise healthy simulated cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, log
from pathlib import Path
from random import Random
from typing import Any

from bench.clusters import NOMINAL_GB_PER_S, Simulated, campaign, names, racks_of
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.groups import GroupLimits, next_groups, plan_groups
from clusterproof.plugins.benchmarks.pairwise.journal import Journal, write
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import (
    Failure,
    GroupMeasurement,
    Measurement,
    NodeGroup,
    Pair,
    Reading,
    pair,
)

NODES = 32
TYPE, EFA, SIZE_BYTES = "p5.48xlarge", 32, 8 * 2**30
KEY = {
    "instance_type": TYPE,
    "efa": EFA,
    "nodes": 2,
    "ranks_per_node": 8,
    "collective": "all_reduce",
    "size_bytes": SIZE_BYTES,
}
WELL = "efa, 32 devices"

Change = Callable[[Simulated], None]
Touch = Callable[[Measurement], Measurement]
GroupTouch = Callable[[NodeGroup, int], Reading]  # second argument: how often it was measured before


@dataclass(frozen=True, eq=False)
class PairFault:
    """One fault. `expect` is the verdict of a check on a node or pair of the cluster (`network.x@n0003`)."""

    name: str
    put: Change = lambda _cluster: None
    touch: Touch = lambda measurement: measurement
    expect: Mapping[str, Verdict] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    nodes: int = NODES
    first_rounds_only: bool = False
    key: Mapping[str, object] = field(default_factory=lambda: KEY)
    touch_group: GroupTouch | None = None  # groups are measured if this is set


@cache
def run_of(fault: PairFault) -> PairwiseRun:
    """The campaign over a cluster with the fault."""
    nodes = names(fault.nodes)
    cluster = Simulated(
        nodes, Random(11), noise=0.015, racks=racks_of(nodes) if fault.nodes >= 16 else {}, outliers=0.0
    )
    fault.put(cluster)
    made = plan(nodes, cluster.racks, -log(0.95), seed=7)
    made = replace(made, absent=frozenset(fault.absent))

    def measured(pairs: Sequence[Pair], number: int) -> Iterable[Measurement]:
        return (fault.touch(_as_nccl(measurement)) for measurement in cluster.measure(pairs, number))

    measurements = campaign(made, measured, len(made.first) if fault.first_rounds_only else inf)
    about = {"meter": "nccl-tests", "key": dict(fault.key), "groups": "doubling" if fault.touch_group else ""}
    of_pairs = Campaign(Journal(made, about, fault.absent, tuple(measurements), ""))
    return PairwiseRun((replace(of_pairs, journal=replace(of_pairs.journal, **_of_groups(fault, of_pairs))),))


def _of_groups(fault: PairFault, pairs: Campaign) -> dict[str, Any]:
    """Plan and measure groups."""
    plan = plan_groups("doubling", pairs.nodes_for_groups, pairs.journal.plan.places)
    limits = GroupLimits(0.05, 0.7, 0.33, pairs.pairs_gb_per_s)
    measured: list[GroupMeasurement] = []
    while fault.touch_group and (groups := next_groups(plan, limits, measured)):
        times = Counter(measurement.group for measurement in measured)
        measured += [GroupMeasurement(group, len(groups), fault.touch_group(group, times[group])) for group in groups]
    return {"group_plan": plan, "groups": tuple(measured)} if fault.touch_group else {}


def _well(group: NodeGroup, _times: int = 0) -> Reading:
    busbw = NOMINAL_GB_PER_S * (0.9 + Random(str(group)).uniform(-0.01, 0.01))
    return Reading(busbw, size_bytes=SIZE_BYTES, is_correct=True, seconds=20.0)


def write_recording(fault: PairFault, folder: Path, names_there: Sequence[str]) -> None:
    """Record the campaign with the nodes of a recording, in the same order."""
    file = folder / "pairwise.jsonl"
    write(file, run_of(fault).campaigns[0].journal)
    text = file.read_text(encoding="utf-8")
    for ours, theirs in zip(names(fault.nodes), names_there, strict=True):
        text = text.replace(f'"{ours}"', f'"{theirs}"')
    file.write_text(text, encoding="utf-8")


def _as_nccl(measurement: Measurement) -> Measurement:
    if measurement.reading.busbw_gb_per_s is None:
        return replace(measurement, reading=replace(measurement.reading, problem="no answer", is_correct=None))
    return replace(
        measurement, reading=replace(measurement.reading, network=WELL, is_correct=True, size_bytes=SIZE_BYTES)
    )


def _slow(node: str, share: float) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.slow_nodes = {node: share}

    return put


def _link(link: Pair, share: float) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.slow_links = {link: share}

    return put


def _rack(name: str, share: float) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.slow_racks = {name: share}

    return put


def _dead(*nodes: str) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.dead = nodes

    return put


def _whole(share: float) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.whole = share

    return put


def _spine(share: float) -> Change:
    def put(cluster: Simulated) -> None:
        cluster.spine = share

    return put


def _network(of: str, node: str = "") -> Touch:
    def touch(measurement: Measurement) -> Measurement:
        is_hit = measurement.reading.busbw_gb_per_s and (not node or node in measurement.pair)
        return replace(measurement, reading=replace(measurement.reading, network=of)) if is_hit else measurement

    return touch


def _wrong(*of: str) -> Touch:
    def touch(measurement: Measurement) -> Measurement:
        if not set(of) <= set(measurement.pair):
            return measurement
        return replace(measurement, reading=Reading(is_correct=False, problem="3 values are wrong", network=WELL))

    return touch


def _without_program(node: str = "") -> Touch:
    def touch(measurement: Measurement) -> Measurement:
        if node and node not in measurement.pair:
            return measurement
        problem = f"clusterproof: {node or measurement.pair.a}: all_reduce_perf is not installed; install nccl-tests"
        return replace(measurement, reading=Reading(problem=problem, culprit=node, failure=Failure.NO_PROGRAM))

    return touch


def _taken(node: str) -> Touch:
    def touch(measurement: Measurement) -> Measurement:
        if node not in measurement.pair:
            return measurement
        why = "busy: taken: 8 of 8 nvidia.com/gpu by ml/train-0; expected all free"
        return replace(
            measurement, reading=Reading(problem=f"{node} did not answer: {why}", failure=Failure.NOT_AT_FAULT)
        )

    return touch


def _now_and_then(node: str, rounds: tuple[int, ...]) -> Touch:
    def touch(measurement: Measurement) -> Measurement:
        if node not in measurement.pair or measurement.round not in rounds:
            return measurement
        return replace(
            measurement,
            reading=replace(measurement.reading, busbw_gb_per_s=(measurement.reading.busbw_gb_per_s or 0.0) * 0.7),
        )

    return touch


def measured_first(fault: PairFault) -> Pair:
    """A pair that the first round measures."""
    return run_of(fault).pairs[0].pair


def _group(node: str, size: int, share: float = 1.0, only_once: bool = False, **reading: Any) -> GroupTouch:
    """Slow the group of this size that contains the node, or give it such a reading."""

    def touch(group: NodeGroup, times: int) -> Reading:
        well = _well(group)
        if node not in group.nodes or len(group.nodes) != size or (only_once and times):
            return well
        return Reading(**reading) if reading else replace(well, busbw_gb_per_s=share * (well.busbw_gb_per_s or 0.0))

    return touch


HEALTHY = PairFault("nothing", touch_group=_well)
LINK = measured_first(HEALTHY)
FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
STRAGGLER, BUSBW = "network.not_a_straggler", "network.pairwise_busbw"
TRANSPORT, CORRECT, GROUPS = "network.pairwise_transport", "network.pairwise_correct", "network.pairwise_groups"
CUDA = "n0006: Test CUDA failure common.cu:1292 'uncorrectable ECC error encountered'"

PAIR_FAULTS = (
    PairFault("a node that is 20 % slower", _slow("n0003", 0.8), expect={f"{STRAGGLER}@n0003": FAIL}),
    PairFault("a node that is 7 % slower", _slow("n0009", 0.93), expect={f"{STRAGGLER}@n0009": FAIL}),
    PairFault("a node with which every measurement fails", _dead("n0005"), expect={f"{STRAGGLER}@n0005": FAIL}),
    PairFault("two nodes that are slow together", _link(LINK, 0.7), expect={f"{BUSBW}@{LINK}": FAIL}),
    PairFault("a rack that is slow to others", _rack("rack1", 0.8), expect={STRAGGLER: CONCERN, BUSBW: FAIL}),
    PairFault("all pairs under the floor", _whole(0.3), expect={STRAGGLER: CONCERN, BUSBW: FAIL}),
    PairFault("pairs that slow one another", _spine(0.6), expect={STRAGGLER: CONCERN}, key={}),
    PairFault(
        "a node that is slow now and then",
        touch=_now_and_then("n0004", (0, 2, 4, 5)),
        expect={f"{STRAGGLER}@n0004": CONCERN},
    ),
    PairFault(
        "a slow node that was not measured again",
        _slow("n0003", 0.8),
        expect={f"{STRAGGLER}@n0003": INCOMPLETE},
        first_rounds_only=True,
    ),
    PairFault("a node that was not reached", absent={"n0002": "refused"}, expect={f"{STRAGGLER}@n0002": INCOMPLETE}),
    PairFault("two nodes only", nodes=2, key={}, expect={STRAGGLER: INCOMPLETE, BUSBW: INCOMPLETE}),
    PairFault(
        "three nodes that differ",
        _slow("n0001", 0.5),
        nodes=3,
        key={},
        expect={STRAGGLER: INCOMPLETE, BUSBW: INCOMPLETE},
    ),
    PairFault(
        "three nodes, one of which is dead",
        _dead("n0001"),
        nodes=3,
        key={},
        expect={f"{STRAGGLER}@n0001": FAIL, f"{STRAGGLER}@n0000": INCOMPLETE},
    ),
    PairFault("no node has the meter's program", touch=_without_program(), expect={STRAGGLER: INCOMPLETE}),
    PairFault("a node without it", touch=_without_program("n0008"), expect={f"{STRAGGLER}@n0008": INCOMPLETE}),
    PairFault("a node that a job takes", touch=_taken("n0008"), expect={f"{STRAGGLER}@n0008": INCOMPLETE}),
    PairFault("NCCL on TCP", touch=_network("Socket"), expect={TRANSPORT: FAIL}),
    PairFault("NCCL with half the EFA devices", touch=_network("efa, 16 devices"), expect={TRANSPORT: CONCERN}),
    PairFault("no word of the network", touch=_network(""), expect={TRANSPORT: INCOMPLETE}),
    PairFault("a node that reckons wrong", touch=_wrong("n0006"), expect={f"{CORRECT}@n0006": FAIL}),
    PairFault("two nodes that reckon wrong together", touch=_wrong(*LINK), expect={f"{CORRECT}@{LINK.a}": CONCERN}),
    PairFault(
        "a group that is slower than its like", expect={f"{GROUPS}@n0009": CONCERN}, touch_group=_group("n0009", 8, 0.9)
    ),
    PairFault("all nodes much slower than four", expect={GROUPS: CONCERN}, touch_group=_group("n0000", 32, 0.6)),
    PairFault(
        "a group that fails without a word of whom",
        expect={f"{GROUPS}@n0006": INCOMPLETE},
        touch_group=_group("n0006", 16, problem="it did not end in its time"),
    ),
    PairFault(
        "a node whose GPU fails in a group",
        expect={f"{GROUPS}@n0006": FAIL, f"{GROUPS}@n0005": INCOMPLETE},
        touch_group=_group("n0006", 16, problem=CUDA, culprit="n0006"),
    ),
    PairFault(
        "a group with wrong results",
        expect={f"{GROUPS}@n0006": INCOMPLETE},
        touch_group=_group("n0006", 4, busbw_gb_per_s=350.0, is_correct=False),
    ),
)

__all__ = ["HEALTHY", "NOMINAL_GB_PER_S", "PAIR_FAULTS", "PairFault", "pair", "run_of", "write_recording"]
