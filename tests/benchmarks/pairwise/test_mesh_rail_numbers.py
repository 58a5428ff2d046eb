"""Rails have the same number on all nodes, whichever devices some of them lack and whatever models there are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from clusterproof.plugins.benchmarks.pairwise.campaign import PairPlan, next_round
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, mesh_of
from clusterproof.plugins.benchmarks.rdma.ports import rails
from clusterproof.plugins.evidence.exchanges import Exchange, MeshKind
from clusterproof.plugins.evidence.pairs import Measurement, Pair, Reading
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import DEAD, LIMITS, planned, said

NODES = names(16)
BUSES, OTHER = range(0x10, 0x18), range(0x40, 0x48)
Nodes = Mapping[str, Collection[int]]  # the buses of each node's devices
Dead = Collection[tuple[str, int]]  # a node, and the bus


def read(ends: Pair, nodes: Nodes, dead: Dead) -> Reading:
    """What one visit brings: rails are matched as the two nodes do it."""
    sides = [
        [{"place": f"0000:{bus:02x}:00.0/1", "label": f"d{bus:x}", "bus": bus} for bus in nodes[one]] for one in ends
    ]
    exchanges = []
    for rail, *two in rails(*sides):
        is_dead = all(two) and any((node, port["bus"]) in dead for node, port in zip(ends, two, strict=True) if port)
        a, b = ((port["label"], port["place"]) if port else ("", "") for port in two)
        exchanges.append(Exchange(rail, a[0], b[0], DEAD if is_dead else "", places=(a[1], b[1])))
    return Reading(exchanges=tuple(exchanges))


def concluded(nodes: Nodes, dead: Dead = (), seed: int = 3) -> Mesh:
    """What all rounds come to."""
    made: PairPlan = planned(len(nodes), seed=seed)
    data: list[Measurement] = []
    while True:
        number, pairs = next_round(made, data)
        if not pairs:
            return mesh_of(data, made.places, LIMITS)
        data += [Measurement(one, number, len(pairs), read(one, nodes, dead)) for one in pairs]


def without(count: int) -> dict[str, Collection[int]]:
    """So many nodes lack the first device."""
    return {node: BUSES[1:] if number < count else BUSES for number, node in enumerate(NODES)}


@pytest.mark.long
def test_a_dead_device_is_one_finding_though_half_of_the_nodes_lack_another() -> None:
    for seed in range(8):
        mesh = concluded(without(8), [("n002", BUSES[5])], seed)
        found = {one for one in said(mesh) if one[0] is not MeshKind.GAP}
        assert found == {(MeshKind.DEVICE, "n002 on 5")}


def test_nodes_that_all_lack_what_one_has_have_the_numbers_of_that_one() -> None:
    mesh = concluded(without(15))
    assert [rail.number for rail in mesh.rails] == [1, 2, 3, 4, 5, 6, 7]
    assert (MeshKind.GAP, "n015 on 0") in said(mesh)


def test_nodes_that_lack_devices_of_different_rails_are_well_on_the_others() -> None:
    mesh = concluded({**without(1), "n001": BUSES[:7]})
    assert said(mesh) == {(MeshKind.GAP, "n000 on 0"), (MeshKind.GAP, "n001 on 7")}


def test_two_models_are_one_rail_by_the_order_of_their_devices() -> None:
    models = {node: OTHER if number % 2 else BUSES for number, node in enumerate(NODES)}
    assert concluded(models).findings == ()
    assert said(concluded(models, [("n003", OTHER[5])])) == {(MeshKind.DEVICE, "n003 on 5")}


@pytest.mark.long
def test_a_model_one_of_whose_nodes_lacks_a_device_accuses_no_other() -> None:
    models: dict[str, Collection[int]] = {node: OTHER if number % 2 else BUSES for number, node in enumerate(NODES)}
    for seed in range(8):
        mesh = concluded({**models, "n003": OTHER[1:]}, [("n004", BUSES[5])], seed)
        assert {one.nodes for one in mesh.findings if one.kind is not MeshKind.GAP} == {("n004",)}
