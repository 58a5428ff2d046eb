"""Several faults at once, in meshes of any size and with racks known or not: no innocent node is accused."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind
from clusterproof.plugins.evidence.pairs import Pair
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import NODE_KINDS, Device, Wiring, concluded, of_node, planned

MESHES = 40


@dataclass
class Faults:
    """What was put into a mesh."""

    devices: list[Device] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    rails: list[int] = field(default_factory=list)
    paths: list[tuple[Pair, int]] = field(default_factory=list)
    sides: list[tuple[str, ...]] = field(default_factory=list)

    def put(self, kind: str, random: Random, known: tuple[str, ...], pairs: list[Pair]) -> None:
        """One more of a kind."""
        if kind == "device":
            self.devices.append((random.choice(known), random.randrange(8)))
        elif kind == "node":
            self.nodes.add(random.choice(known))
        elif kind == "rail":
            self.rails.append(random.randrange(8))
        elif kind == "path":
            self.paths.append((random.choice(pairs), random.choice([-1, random.randrange(8)])))
        else:
            self.sides = [known[: len(known) // 2]]

    def wiring(self) -> Wiring:
        """All of them."""
        devices = [*self.devices, *(device for node in self.nodes for device in of_node(node))]
        return Wiring(devices, self.rails, self.paths, self.sides)

    def accounts_for(self, found: MeshFinding) -> bool:
        """Whether a finding that fails a node is of one at fault."""
        if found.kind is MeshKind.NODE:
            return found.nodes[0] in self.nodes
        return found.kind is not MeshKind.DEVICE or (found.nodes[0], found.rails[0]) in self.devices


@pytest.mark.long
@pytest.mark.parametrize("rack", [0, 4])
@pytest.mark.parametrize("count", [8, 16, 48])
def test_of_up_to_three_faults_at_once_none_accuses_an_innocent_node_and_each_device_is_said(
    count: int, rack: int
) -> None:
    random = Random(f"{count} {rack}")
    for seed in range(MESHES if count < 48 else MESHES // 4):
        made, faults = planned(count, rack, seed), Faults()
        for kind in random.choices(["device", "node", "rail", "path", "cut"], k=random.randint(1, 3)):
            faults.put(kind, random, names(count), [one for pairs in made.first for one in pairs])
        mesh = concluded(made, faults.wiring())
        assert [found.words for found in mesh.findings if not faults.accounts_for(found)] == []
        said = {(node, rail) for found in mesh.findings for node in found.nodes for rail in found.rails}
        assert {*faults.devices, *(one for node in faults.nodes for one in of_node(node))} <= said


@pytest.mark.long
@pytest.mark.parametrize("rails", [1, 4])
@pytest.mark.parametrize(("count", "own"), [(8, 2), (12, 2), (16, 3), (32, 4), (64, 8), (64, 16)])
def test_nodes_on_a_fabric_of_their_own_are_never_taken_for_dead(count: int, own: int, rails: int) -> None:
    for seed in range(20):
        found = concluded(planned(count, seed=seed), Wiring(sides=[names(count)[:own]]), rails).findings
        assert [one.words for one in found if one.kind in NODE_KINDS] == []
        assert MeshKind.CUT in {one.kind for one in found}
