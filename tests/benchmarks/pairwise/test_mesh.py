"""Conclusions from exchanges of a few bytes, in simulated meshes of 2 to 128 nodes with known faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from clusterproof.plugins.benchmarks.pairwise.mesh import mesh_of
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.evidence.exchanges import MeshKind
from clusterproof.plugins.evidence.pairs import Pair
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import (
    DEAD,
    LIMITS,
    NODE_KINDS,
    RAILS,
    Wiring,
    concluded,
    findings_of,
    measured,
    of_node,
    planned,
)

ALL = ",".join(map(str, range(RAILS)))
DEVICE, NODE, RAIL, SWITCH, CUT = MeshKind.DEVICE, MeshKind.NODE, MeshKind.RAIL, MeshKind.SWITCH, MeshKind.CUT
PATH, PARTLY, ONCE, OPEN, GAP = MeshKind.PATH, MeshKind.PARTLY, MeshKind.ONCE, MeshKind.OPEN, MeshKind.GAP
APART = MeshKind.APART
HALF = tuple(names(16)[:8])
EVERYBODY = "~".join(names(16))
RACK = "~".join(names(16)[4:8])


@dataclass(frozen=True)
class Case:
    """Nodes in racks of this size with this wiring, and the expected findings."""

    count: int
    wiring: Wiring = field(default_factory=Wiring)
    said: set[tuple[MeshKind, str]] = field(default_factory=set)
    rack: int = 0
    rails: int = RAILS


def met(count: int, rack: int = 0) -> Pair:
    """A pair in the first round."""
    return planned(count, rack).first[0][0]


def both(ends: Pair) -> str:
    return "~".join(ends)


CASES = {
    "of a healthy cluster nothing is said": Case(16),
    "nor of one with an odd number of nodes": Case(5),
    "nor of one in racks": Case(128, rack=16),
    "nor of one whose nodes have one device": Case(16, rails=1),
    "nor of two nodes that reach each other": Case(2),
    "a dead device is named and not its node": Case(16, Wiring([("n003", 5)]), {(DEVICE, "n003 on 5")}),
    "so is one of four nodes": Case(4, Wiring([("n003", 5)]), {(DEVICE, "n003 on 5")}),
    "so is one of three nodes": Case(3, Wiring([("n002", 5)]), {(DEVICE, "n002 on 5")}),
    "so is one of 128": Case(128, Wiring([("n077", 0)]), {(DEVICE, "n077 on 0")}, rack=16),
    "so are several on different rails": Case(
        16, Wiring([("n003", 5), ("n003", 6), ("n009", 1)]),
        {(DEVICE, "n003 on 5"), (DEVICE, "n003 on 6"), (DEVICE, "n009 on 1")},
    ),
    "so are two on one rail": Case(
        16, Wiring([("n003", 5), ("n009", 5)]), {(DEVICE, "n003 on 5"), (DEVICE, "n009 on 5")}
    ),
    "the only device of a node is named": Case(8, Wiring([("n003", 0)]), {(DEVICE, "n003 on 0")}, rails=1),
    "a node none of whose devices reaches anybody is named": Case(16, Wiring(of_node("n003")), {(NODE, "n003")}),
    "so is one of four": Case(4, Wiring(of_node("n001")), {(NODE, "n001")}),
    "so is one of three": Case(3, Wiring(of_node("n001")), {(NODE, "n001")}),
    "so are two of 128": Case(
        128, Wiring([*of_node("n001"), *of_node("n100")]), {(NODE, "n001"), (NODE, "n100")}, rack=16
    ),
    "three of 16 share what is at fault": Case(
        16, Wiring([device for node in ("n003", "n009", "n011") for device in of_node(node)]),
        {(SWITCH, f"n003~n009~n011 on {ALL}")},
    ),
    "a dead rail is named and no node": Case(16, Wiring(rails=[3]), {(RAIL, "3")}),
    "so is that of four nodes": Case(4, Wiring(rails=[0]), {(RAIL, "0")}),
    "so are two of 128 nodes": Case(128, Wiring(rails=[3, 4]), {(RAIL, "3"), (RAIL, "4")}, rack=16),
    "a dead rail and a dead device are told apart": Case(
        16, Wiring([("n003", 5)], rails=[3]), {(RAIL, "3"), (DEVICE, "n003 on 5")}
    ),
    "a dead rail and a dead node too": Case(16, Wiring(of_node("n003"), rails=[3]), {(RAIL, "3"), (NODE, "n003")}),
    "where nothing carries anything no node is named": Case(16, Wiring(rails=range(RAILS)), {(MeshKind.ALL, ALL)}),
    "nor where one rail is all there is": Case(16, Wiring(rails=[0]), {(MeshKind.ALL, "0")}, rails=1),
    "a path is named with both its ends": Case(
        16, Wiring(paths=[(met(16), 2)]), {(PATH, f"{both(met(16))} on 2")}
    ),
    "one that carries nothing on any rail is one finding": Case(
        16, Wiring(paths=[(met(16), -1)]), {(PATH, f"{both(met(16))} on {ALL}")}
    ),
    "what failed once and not again is said as that": Case(
        16, Wiring(once=[met(16)]), {(ONCE, f"{both(met(16))} on {ALL}")}
    ),
    "a cluster cut in half has two sides": Case(16, Wiring(sides=[HALF]), {(CUT, f"{EVERYBODY} on {ALL}")}),
    "so has one in racks": Case(16, Wiring(sides=[HALF]), {(CUT, f"{EVERYBODY} on {ALL}")}, rack=8),
    "a rack whose switch of one rail is dead is named and no node": Case(
        16, Wiring([(node, 5) for node in names(16)[4:8]]), {(SWITCH, f"{RACK} on 5")}, rack=4
    ),
    "a rack none of whose devices reaches anybody too": Case(
        16, Wiring([device for node in names(16)[4:8] for device in of_node(node)]), {(SWITCH, f"{RACK} on {ALL}")}, 4
    ),
    "so are devices of a rail that many nodes have lost at once where no rack is known": Case(
        16, Wiring([(node, 5) for node in names(16)[4:8]]), {(SWITCH, f"{RACK} on 5")}
    ),
    "three of 128 are their switch's where no rack is known": Case(
        128, Wiring([("n003", 5), ("n009", 5), ("n077", 5)]), {(SWITCH, "n003~n009~n077 on 5")}
    ),
    "and are each at fault where racks are": Case(
        128, Wiring([("n003", 5), ("n039", 5), ("n077", 5)]),
        {(DEVICE, "n003 on 5"), (DEVICE, "n039 on 5"), (DEVICE, "n077 on 5")}, rack=16,
    ),
    "of two nodes it cannot be told which is at fault": Case(
        2, Wiring([("n001", 5)]), {(OPEN, "n000 on 5"), (OPEN, "n001 on 5")}
    ),
    "nor where nothing arrives": Case(2, Wiring(of_node("n001")), {(OPEN, f"n000 on {ALL}"), (OPEN, f"n001 on {ALL}")}),
    "a node that lacks a device is said and its other rails are well": Case(
        16, Wiring(lacking=[("n003", 5)]), {(GAP, "n003 on 5")}
    ),
    "what a node lacks on several rails is one finding": Case(
        16, Wiring(lacking=[("n003", 5), ("n003", 6), ("n003", 7)]), {(GAP, "n003 on 5,6,7")}
    ),
    "two nodes whose programs do not meet blame nobody": Case(
        16, Wiring(apart=[met(16)]), {(APART, f"{node} on {ALL}") for node in met(16)}
    ),
    "a device that nobody else has was tried with nobody": Case(
        4, Wiring(lacking=[(node, 5) for node in names(4)[1:]]),
        {(GAP, f"{node} on 5") for node in names(4)},
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_mesh_is_told_by_its_exchanges(name: str) -> None:
    case = CASES[name]
    assert findings_of(concluded(planned(case.count, case.rack), case.wiring, case.rails)) == case.said


FAULTS: Mapping[str, tuple[Callable[[str, Pair], Wiring], set[MeshKind]]] = {
    "a device": (lambda node, _: Wiring([(node, 5)]), {DEVICE}),
    "a node": (lambda node, _: Wiring(of_node(node)), {NODE}),
    "a rail": (lambda _, __: Wiring(rails=[6]), {RAIL}),
    "a path": (lambda _, ends: Wiring(paths=[(ends, 2)]), {PATH}),
}


@pytest.mark.long
@pytest.mark.parametrize("count", [4, 16, 128])
@pytest.mark.parametrize("fault", ["a device", "a node", "a rail", "a path"])
def test_the_fault_is_named_and_no_innocent_node_whatever_the_rounds(fault: str, count: int) -> None:
    wiring_of, kinds = FAULTS[fault]
    for seed in range(4 if count > 16 else 12):
        made = planned(count, seed=seed)
        node, ends = names(count)[seed % count], made.first[0][seed % (count // 2)]
        findings = concluded(made, wiring_of(node, ends)).findings
        assert {finding.kind for finding in findings} == kinds
        assert {finding.nodes for finding in findings if finding.kind in NODE_KINDS} <= {(node,)}


SIDES = {4: "n[000-001] and n[002-003]", 16: "n[000-007] and n[008-015]", 128: "n[000-063] and n[064-127]"}


@pytest.mark.long
@pytest.mark.parametrize("count", SIDES)
@pytest.mark.parametrize("racks", [2, 4])
def test_a_cut_between_racks_names_both_sides_and_no_node(count: int, racks: int) -> None:
    for seed in range(4):
        made = planned(count, count // racks if count > racks else 0, seed)
        (cut,) = concluded(made, Wiring(sides=[names(count)[: count // 2]])).findings
        assert cut.kind is CUT
        assert f"cut on rails 0-7: {SIDES[count]} do not reach each other, though each" in cut.words


@pytest.mark.long
@pytest.mark.parametrize(("count", "seeds"), [(8, 12), (16, 12), (128, 3)])
def test_a_cut_that_no_rack_shows_names_no_node_either(count: int, seeds: int) -> None:
    for seed in range(seeds):
        findings = concluded(planned(count, seed=seed), Wiring(sides=[names(count)[::2]])).findings
        assert {finding.kind for finding in findings} - {OPEN} == {CUT}
        for finding in findings:
            if finding.kind is CUT:
                left, right = finding.words.split(": ")[1].split(" do not")[0].split(" and ")
                assert not {int(node[1:]) % 2 for node in expand(left)} & {int(node[1:]) % 2 for node in expand(right)}


@pytest.mark.parametrize(
    ("wiring", "words"),
    [
        (
            Wiring([("n002", 5)]),
            ("mlx5_5 port 1 (rail 5) reaches none of n[000-001,003], 3 of which reach others", DEAD),
        ),
        (
            Wiring(of_node("n002")),
            ("none of its RDMA devices on rails 0-7 reaches any of n[000-001,003], 3 of which", DEAD),
        ),
        (Wiring(rails=[5]), ("rail 5: 0 of 6 pairs of nodes reach each other, 42 of 42 on the others", DEAD)),
        (
            Wiring(paths=[(Pair("n000", "n001"), 5)]),
            ("n000 and n001 do not reach each other on rail 5, though both", "mlx5_5 port 1 to mlx5_5 port 1", DEAD),
        ),
        (Wiring(rails=range(RAILS)), ("0 of 48 exchanges between RDMA devices of n[000-003] brought anything", DEAD)),
    ],
)
def test_a_finding_says_the_device_the_rail_the_partners_and_the_error(wiring: Wiring, words: tuple[str, ...]) -> None:
    (finding,) = concluded(planned(4), wiring).findings
    for each in words:
        assert each in finding.words


def test_a_device_that_reaches_some_partners_only_is_said_without_them() -> None:
    made = planned(16)
    node = made.nodes[3]
    partners = [pair for pairs in made.first[:2] for pair in pairs if node in pair]
    (finding,) = concluded(made, Wiring(paths=[(ends, 5) for ends in partners])).findings
    assert (finding.kind, finding.nodes, finding.rails) == (PARTLY, (node,), (5,))
    assert "and not" in finding.words


@pytest.mark.long
def test_racks_that_do_not_reach_each_other_are_sides_though_both_reach_a_third() -> None:
    made = planned(48, rack=16)
    first, second = made.nodes[:16], made.nodes[16:32]
    between = [(Pair(*sorted((a, b))), rail) for a in first for b in second for rail in range(RAILS)]
    (finding,) = concluded(made, Wiring(paths=between)).findings
    assert (finding.kind, finding.nodes) == (CUT, tuple(sorted({*finding.nodes})))
    assert set(finding.nodes) <= {*first, *second}


def test_two_nodes_that_lack_the_same_device_still_have_the_other_rails() -> None:
    made = planned(8)
    mesh = concluded(made, Wiring([("n007", 6)], lacking=[("n000", 2), ("n001", 2)]))
    assert findings_of(mesh) == {(GAP, "n000 on 2"), (GAP, "n001 on 2"), (DEVICE, "n007 on 6")}


def test_what_is_said_does_not_depend_on_the_order_of_measuring() -> None:
    made, wiring = planned(16), Wiring([("n003", 5), *of_node("n009")], rails=[2])
    measurements = measured(made, wiring)
    turned = mesh_of(measurements[::-1], made.places, LIMITS)
    assert findings_of(turned) == findings_of(concluded(made, wiring))


def test_a_node_without_a_program_is_in_no_exchange_and_blames_nobody() -> None:
    mesh = concluded(planned(8), Wiring(silent={"n003": "clusterproof: n003: fi_pingpong is not installed"}))
    assert mesh.findings == ()
    assert "n003" not in mesh.partners
