"""Meshes of any size: no innocent node is accused, rails have the same number on all nodes, and what is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from bench.clusters import campaign
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, mesh_of
from clusterproof.plugins.benchmarks.pairwise.mesh_rounds import MIN_PARTNERS
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.benchmarks.rdma.ports import rails
from clusterproof.plugins.evidence.exchanges import Exchange, MeshFinding, MeshKind
from clusterproof.plugins.evidence.pairs import Measurement, Pair, Reading
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import (
    DEAD,
    LIMITS,
    NODE_KINDS,
    Device,
    Wiring,
    concluded,
    findings_of,
    measured,
    of_node,
    planned,
)

MESHES = 40


@dataclass
class Faults:
    """The faults of a mesh."""

    devices: list[Device] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    rails: list[int] = field(default_factory=list)
    paths: list[tuple[Pair, int]] = field(default_factory=list)
    sides: list[tuple[str, ...]] = field(default_factory=list)

    def put(self, kind: str, random: Random, known: tuple[str, ...], pairs: list[Pair]) -> None:
        """Add one more of a kind."""
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
        """The wiring with all faults."""
        devices = [*self.devices, *(device for node in self.nodes for device in of_node(node))]
        return Wiring(devices, self.rails, self.paths, self.sides)

    def accounts_for(self, finding: MeshFinding) -> bool:
        """Whether a finding that fails a node is about one with a fault."""
        if finding.kind is MeshKind.NODE:
            return finding.nodes[0] in self.nodes
        return finding.kind is not MeshKind.DEVICE or (finding.nodes[0], finding.rails[0]) in self.devices


@pytest.mark.long
@pytest.mark.parametrize("rack", [0, 4])
@pytest.mark.parametrize("count", [8, 16, 48])
def test_up_to_three_faults_at_once_blame_no_innocent_node_and_each_device_is_named(count: int, rack: int) -> None:
    random = Random(f"{count} {rack}")
    for seed in range(MESHES if count < 48 else MESHES // 4):
        made, faults = planned(count, rack, seed), Faults()
        for kind in random.choices(["device", "node", "rail", "path", "cut"], k=random.randint(1, 3)):
            faults.put(kind, random, names(count), [pair for pairs in made.first for pair in pairs])
        mesh = concluded(made, faults.wiring())
        assert [finding.words for finding in mesh.findings if not faults.accounts_for(finding)] == []
        named = {(node, rail) for finding in mesh.findings for node in finding.nodes for rail in finding.rails}
        assert {*faults.devices, *(device for node in faults.nodes for device in of_node(node))} <= named


@pytest.mark.long
@pytest.mark.parametrize("rails", [1, 4])
@pytest.mark.parametrize(("count", "own"), [(8, 2), (12, 2), (16, 3), (32, 4), (64, 8), (64, 16)])
def test_nodes_on_a_fabric_of_their_own_are_never_taken_for_dead(count: int, own: int, rails: int) -> None:
    for seed in range(20):
        findings = concluded(planned(count, seed=seed), Wiring(sides=[names(count)[:own]]), rails).findings
        assert [finding.words for finding in findings if finding.kind in NODE_KINDS] == []
        assert MeshKind.CUT in {finding.kind for finding in findings}


NODES = names(16)
BUSES, OTHER = range(0x10, 0x18), range(0x40, 0x48)
Nodes = Mapping[str, Collection[int]]  # bus numbers of each node's devices
Dead = Collection[tuple[str, int]]  # node and bus


def read(ends: Pair, nodes: Nodes, dead: Dead) -> Reading:
    """The result of one visit, with rails matched as the two nodes do it."""
    sides = [
        [{"place": f"0000:{bus:02x}:00.0/1", "label": f"d{bus:x}", "bus": bus} for bus in nodes[end]] for end in ends
    ]
    exchanges = []
    for rail, *two in rails(*sides):
        is_dead = all(two) and any((node, port["bus"]) in dead for node, port in zip(ends, two, strict=True) if port)
        a, b = ((port["label"], port["place"]) if port else ("", "") for port in two)
        exchanges.append(Exchange(rail, a[0], b[0], DEAD if is_dead else "", places=(a[1], b[1])))
    return Reading(exchanges=tuple(exchanges))


def after_all_rounds(nodes: Nodes, dead: Dead = (), seed: int = 3) -> Mesh:
    """The conclusion after all rounds."""
    made: PairPlan = planned(len(nodes), seed=seed)
    measurements = campaign(
        made,
        lambda pairs, number: [Measurement(pair, number, len(pairs), read(pair, nodes, dead)) for pair in pairs],
    )
    return mesh_of(measurements, made.places, LIMITS)


def without(count: int) -> dict[str, Collection[int]]:
    """This many nodes lack the first device."""
    return {node: BUSES[1:] if number < count else BUSES for number, node in enumerate(NODES)}


@pytest.mark.long
def test_a_dead_device_is_one_finding_though_half_of_the_nodes_lack_another() -> None:
    for seed in range(8):
        mesh = after_all_rounds(without(8), [("n002", BUSES[5])], seed)
        findings = {finding for finding in findings_of(mesh) if finding[0] is not MeshKind.GAP}
        assert findings == {(MeshKind.DEVICE, "n002 on 5")}


def test_nodes_that_all_lack_what_one_has_have_the_numbers_of_that_one() -> None:
    mesh = after_all_rounds(without(15))
    assert [rail.number for rail in mesh.rails] == [1, 2, 3, 4, 5, 6, 7]
    assert (MeshKind.GAP, "n015 on 0") in findings_of(mesh)


def test_nodes_that_lack_devices_of_different_rails_are_well_on_the_others() -> None:
    mesh = after_all_rounds({**without(1), "n001": BUSES[:7]})
    assert findings_of(mesh) == {(MeshKind.GAP, "n000 on 0"), (MeshKind.GAP, "n001 on 7")}


def test_two_models_are_one_rail_by_the_order_of_their_devices() -> None:
    models = {node: OTHER if number % 2 else BUSES for number, node in enumerate(NODES)}
    assert after_all_rounds(models).findings == ()
    assert findings_of(after_all_rounds(models, [("n003", OTHER[5])])) == {(MeshKind.DEVICE, "n003 on 5")}


@pytest.mark.long
def test_a_model_one_of_whose_nodes_lacks_a_device_accuses_no_other() -> None:
    models: dict[str, Collection[int]] = {node: OTHER if number % 2 else BUSES for number, node in enumerate(NODES)}
    for seed in range(8):
        mesh = after_all_rounds({**models, "n003": OTHER[1:]}, [("n004", BUSES[5])], seed)
        assert {finding.nodes for finding in mesh.findings if finding.kind is not MeshKind.GAP} == {("n004",)}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 15, 16, 33])
@pytest.mark.parametrize("rack", [0, 4])
def test_each_node_has_three_partners_or_all_there_are(count: int, rack: int) -> None:
    for seed in range(6):
        made = planned(count, rack, seed)
        measurements = measured(made, Wiring())
        partners = Counter(node for pair in {measurement.pair for measurement in measurements} for node in pair)
        assert min(partners.values()) >= min(MIN_PARTNERS, count - 1)
        assert max(measurement.round for measurement in measurements) < 8


def test_a_dead_rail_is_not_measured_again_and_a_path_once() -> None:
    of_rail = Counter(measurement.pair for measurement in measured(planned(16), Wiring(rails=[3])))
    assert max(of_rail.values()) == 1
    ends = planned(16).first[0][0]
    of_path = Counter(measurement.pair for measurement in measured(planned(16), Wiring(paths=[(ends, 2)])))
    assert of_path.pop(ends) == 2
    assert max(of_path.values()) == 1


def test_a_node_that_two_partners_do_not_reach_is_not_measured_further() -> None:
    dead = [(node, rail) for node in names(16)[3:4] for rail in range(8)]
    assert len(measured(planned(16), Wiring(dead))) == len(measured(planned(16), Wiring()))
