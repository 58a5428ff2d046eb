"""Simulated meshes of RDMA devices with known faults, measured as a run measures them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.clusters import campaign
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, MeshLimits, mesh_of
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, plan
from clusterproof.plugins.evidence.exchanges import Exchange, MeshKind
from clusterproof.plugins.evidence.pairs import RDMA_MESH, Failure, Measurement, Pair, Reading
from tests.benchmarks.pairwise.measured import names, racks

LIMITS = MeshLimits(rail_share=0.1, switch_share=0.1)
RAILS = 8
DEAD = "Failed status transport retry counter exceeded (12)"
REFUSED = "failed to connect: Connection refused"
NODE_KINDS = (MeshKind.NODE, MeshKind.DEVICE)
Device = tuple[str, int]  # node and rail


@dataclass(frozen=True)
class Wiring:
    """What carries no data: devices, whole rails, paths on a rail (-1: all), and sides that do not reach each other.

    `once`: pairs that fail the first time; `silent`: nodes that cannot exchange anything, with the reason.
    """

    devices: Collection[Device] = ()
    rails: Collection[int] = ()
    paths: Collection[tuple[Pair, int]] = ()
    sides: Sequence[Collection[str]] = ()
    once: Collection[Pair] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None  # the kind of failure
    lacking: Collection[Device] = ()
    apart: Collection[Pair] = ()  # pairs whose programs do not meet

    def read(self, pair: Pair, of_rails: int, tries: int) -> Reading:
        """The result of one visit to a pair."""
        why = next((self.silent[node] for node in pair if node in self.silent), "")
        if why:
            culprit = next(node for node in pair if node in self.silent)
            return Reading(problem=why, culprit=culprit, failure=self.failure)
        return Reading(exchanges=tuple(self._exchange(pair, rail, tries) for rail in range(of_rails)), seconds=2.0)

    def _exchange(self, pair: Pair, rail: int, tries: int) -> Exchange:
        a, b = ("" if (node, rail) in self.lacking else f"mlx5_{rail} port 1" for node in pair)
        is_apart = any(len(set(pair) & set(side)) == 1 for side in self.sides)
        is_dead = (
            rail in self.rails
            or any((node, rail) in self.devices for node in pair)
            or {(pair, rail), (pair, -1)} & set(self.paths)
            or is_apart
            or (pair in self.once and not tries)
        )
        if pair in self.apart:
            return Exchange(rail, a, b, apart=REFUSED)
        return Exchange(rail, a, b, DEAD if is_dead and a and b else "")


def planned(count: int, rack: int = 0, seed: int = 3) -> PairPlan:
    """The plan of a run over this many nodes, in racks of this size."""
    nodes = names(count)
    made = plan(nodes, racks(nodes, rack) if rack else {}, 0.05, seed=seed)
    return PairPlan(made.nodes, made.places, made.min_effect, seed=seed, mesh=LIMITS)


def measured(made: PairPlan, wiring: Wiring, rails: int = RAILS) -> list[Measurement]:
    """Run all its rounds."""
    tries: Counter[Pair] = Counter()

    def exchanged(pairs: Sequence[Pair], number: int) -> list[Measurement]:
        results = [Measurement(pair, number, len(pairs), wiring.read(pair, rails, tries[pair])) for pair in pairs]
        tries.update(pairs)
        return results

    return campaign(made, exchanged)


def concluded(made: PairPlan, wiring: Wiring, rails: int = RAILS) -> Mesh:
    """The conclusion."""
    return mesh_of(measured(made, wiring, rails), made.places, LIMITS)


def findings_of(mesh: Mesh) -> set[tuple[MeshKind, str]]:
    """Each finding with its subject: `n001`, `n001+2` with the rail, or a rail alone."""
    return {(finding.kind, _whom(finding.kind, finding.nodes, finding.rails)) for finding in mesh.findings}


def _whom(kind: MeshKind, nodes: Sequence[str], rails: Iterable[int]) -> str:
    on = ",".join(map(str, rails))
    if kind in (MeshKind.RAIL, MeshKind.ALL):
        return on
    return "~".join(nodes) if kind is MeshKind.NODE else f"{'~'.join(nodes)} on {on}"


def of_node(node: str, rails: int = RAILS) -> list[Device]:
    """All devices of a node."""
    return [(node, rail) for rail in range(rails)]


__all__ = [
    "DEAD",
    "NODE_KINDS",
    "RAILS",
    "RDMA_MESH",
    "Wiring",
    "concluded",
    "findings_of",
    "measured",
    "of_node",
    "planned",
]
