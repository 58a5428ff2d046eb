"""Faults between RDMA devices that network.rdma_mesh is tested with, each in an otherwise healthy simulated mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import RDMA_MESH, Failure
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import Wiring, measured, of_node, planned

MESH = "network.rdma_mesh"
CONCERN, INCOMPLETE = Verdict.CONCERN, Verdict.INCOMPLETE
COUNT = 16
RACK = names(COUNT)[4:8]
PATH = planned(COUNT).first[0][0]
MISSING = "clusterproof: n003: fi_pingpong is not installed; install libfabric-bin"


@dataclass(frozen=True, eq=False)
class MeshFault:
    """One fault. `expect` is the verdict on a node of the cluster (`network.rdma_mesh@n003`)."""

    name: str
    wiring: Wiring = field(default_factory=Wiring)
    expect: Mapping[str, Verdict] = field(default_factory=dict)
    count: int = COUNT
    rack: int = 0


@cache
def mesh_run_of(fault: MeshFault) -> PairwiseRun:
    """The exchanges over a cluster with the fault."""
    made = planned(fault.count, fault.rack)
    return PairwiseRun((Campaign(Journal(made, {"meter": RDMA_MESH}, {}, tuple(measured(made, fault.wiring)), "")),))


def at(node: str, verdict: Verdict) -> dict[str, Verdict]:
    return {f"{MESH}@{node}": verdict}


HEALTHY_MESH = MeshFault("nothing")
MESH_FAULTS = (
    MeshFault("a device that reaches nobody", Wiring([("n003", 5)]), at("n003", CONCERN)),
    MeshFault("a node none of whose devices reaches anybody", Wiring(of_node("n003")), at("n003", CONCERN)),
    MeshFault("a rail that carries nothing", Wiring(rails=[3]), at("n000", INCOMPLETE)),
    MeshFault("no rail that carries anything", Wiring(rails=range(8)), at("n000", INCOMPLETE)),
    MeshFault(
        "a rack whose switch of one rail is dead", Wiring([(node, 5) for node in RACK]), at(RACK[0], INCOMPLETE), rack=4
    ),
    MeshFault("two halves that do not reach each other", Wiring(sides=[names(16)[:8]]), at("n000", CONCERN), rack=8),
    MeshFault("a path between two devices", Wiring(paths=[(PATH, 2)]), at(PATH.a, CONCERN)),
    MeshFault("a path that fails once", Wiring(once=[PATH]), at(PATH.b, CONCERN)),
    MeshFault("two nodes whose programs do not meet", Wiring(apart=[PATH]), at(PATH.a, INCOMPLETE)),
    MeshFault("a node that lacks a device", Wiring(lacking=[("n003", 5)]), at("n003", INCOMPLETE)),
    MeshFault(
        "a node without the program",
        Wiring(silent={"n003": MISSING}, failure=Failure.NO_PROGRAM),
        at("n003", INCOMPLETE),
    ),
    MeshFault("two nodes only, one of whose devices is dead", Wiring([("n001", 5)]), at("n000", INCOMPLETE), 2),
)
