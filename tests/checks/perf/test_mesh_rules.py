"""network.rdma_mesh: its result on each fault between RDMA devices, and whom it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.pairs import Failure, Reading
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.mesh_faults import HEALTHY_MESH, MESH, MESH_FAULTS, PATH, MeshFault, mesh_run_of
from tests.benchmarks.pairwise.meshes import DEAD, Wiring
from tests.benchmarks.pairwise.pair_faults import HEALTHY, run_of
from tests.checks.perf.given import of_node

NAMED = {fault.name: fault for fault in MESH_FAULTS}


def results(fault: MeshFault) -> Mapping[str, Result]:
    run = mesh_run_of(fault)
    return {name: of_node(MESH, run, name) for name in run.campaigns[0].journal.plan.nodes}


def campaign(fault: MeshFault) -> Campaign:
    return mesh_run_of(fault).campaigns[0]


@pytest.mark.parametrize("fault", MESH_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_where_it_is_and_no_node_fails(fault: MeshFault) -> None:
    by_node = results(fault)
    for where, verdict in fault.expect.items():
        node = where.partition("@")[2]
        assert by_node[node].verdict is verdict, by_node[node].message
    every = [finding.verdict for result in by_node.values() for finding in result.by_verdict]
    assert every
    assert Verdict.FAIL not in every


def test_what_names_one_node_is_said_of_no_other() -> None:
    for name in ("a device that reaches nobody", "a node none of whose devices reaches anybody"):
        by_node = results(NAMED[name])
        assert {node for node, result in by_node.items() if result.verdict is not Verdict.PASS} == {"n003"}


@pytest.mark.parametrize(("count", "rack"), [(2, 0), (3, 0), (16, 0), (16, 4)])
def test_it_is_silent_where_every_device_reaches_its_partners(count: int, rack: int) -> None:
    by_node = results(replace(HEALTHY_MESH, count=count, rack=rack))
    assert {result.verdict for result in by_node.values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("name", "node", "words"),
    [
        (
            "a device that reaches nobody",
            "n003",
            f"of which reach others on it: {DEAD}; expected bytes to come back, as to its other devices",
        ),
        (
            "a node none of whose devices reaches anybody",
            "n003",
            f"4 of which reach others: {DEAD}; expected bytes to come back to each",
        ),
        (
            "a rail that carries nothing",
            "n009",
            "rail 3: 0 of 32 pairs of nodes reach each other, 224 of 224 on the others",
        ),
        ("a rail that carries nothing", "n009", "whether its device on rail 3 can reach anybody cannot be told"),
        ("no rail that carries anything", "n009", "0 of 256 exchanges between RDMA devices of n[000-015] brought"),
        ("a rack whose switch of one rail is dead", "n005", "rail 5: the devices of n[004-007] (r1) reach nobody"),
        ("two halves that do not reach each other", "n009", "cut on rails 0-7: n[000-007] and n[008-015] do not reach"),
        ("a path between two devices", PATH.b, f"{PATH.a} and {PATH.b} do not reach each other on rail 2, though both"),
        ("a path that fails once", PATH.a, f"{PATH.a} and {PATH.b} failed to reach each other once on rails 0-7"),
        (
            "two nodes whose programs do not meet",
            PATH.b,
            f"the programs of {PATH.b} and {PATH.a} did not meet on rails 0-7, twice: failed to connect: ",
        ),
        ("a node that lacks a device", "n003", "rail 5: no device where"),
        ("a node without the program", "n003", "nothing was exchanged with 4 partners: clusterproof: n003"),
        ("two nodes only, one of whose devices is dead", "n001", "it cannot be told which is at fault"),
    ],
)  # fmt: skip
def test_it_says_what_was_seen(name: str, node: str, words: str) -> None:
    assert words in results(NAMED[name])[node].message


def test_a_rail_is_a_concern_besides_what_cannot_be_told_of_its_devices() -> None:
    findings = results(NAMED["a rail that carries nothing"])["n000"].findings
    assert [finding.verdict for finding in findings] == [Verdict.INCOMPLETE, Verdict.CONCERN]


def test_a_node_whose_exchanges_were_made_with_one_partner_only_does_not_pass() -> None:
    made = campaign(HEALTHY_MESH)
    first = made.journal.measurements[0]
    few = replace(made, journal=replace(made.journal, measurements=(first, *made.journal.measurements[-4:])))
    lonely = next(
        node for node in first.pair if not any(node in measurement.pair for measurement in few.journal.measurements[1:])
    )
    result = of_node(MESH, PairwiseRun((few,)), lonely)
    assert (result.verdict, result.message) == (
        Verdict.INCOMPLETE, "exchanged with one partner only; expected at least 2"
    )  # fmt: skip


def broken_off(count: int, culprit: str) -> tuple[PairwiseRun, str]:
    """A healthy mesh in which the last runs of n003 fail, and the partner of the last."""
    made = campaign(HEALTHY_MESH)
    own = [measurement for measurement in made.journal.measurements if "n003" in measurement.pair][-count:]
    failed = Reading(problem="n003 did not answer: Communication connection failure", culprit=culprit)
    measurements = tuple(
        replace(measurement, reading=failed) if measurement in own else measurement
        for measurement in made.journal.measurements
    )
    return PairwiseRun((replace(made, journal=replace(made.journal, measurements=measurements)),)), own[-1].pair.other(
        "n003"
    )


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_node_that_dies_among_its_exchanges_is_named_and_its_partners_are_not(count: int) -> None:
    run, partner = broken_off(count, "n003")
    result = of_node(MESH, run, "n003")
    why = "n003 did not answer: Communication connection failure"
    message = f"{count} of 4 runs failed and named it: {why}; expected each run to exchange bytes"
    assert (result.verdict, result.message.count("nothing was exchanged with ")) == (Verdict.INCOMPLETE, 1)
    assert [finding.message for finding in result.findings if finding.verdict is Verdict.CONCERN] == [message]
    assert of_node(MESH, run, partner).verdict is Verdict.PASS


def test_a_pair_that_exchanged_nothing_though_nobody_is_at_fault_is_said_of_both() -> None:
    run, partner = broken_off(1, "")
    for node, other in (("n003", partner), (partner, "n003")):
        result = of_node(MESH, run, node)
        assert result.verdict is Verdict.INCOMPLETE
        assert result.message.startswith(f"nothing was exchanged with {other}: n003 did not answer: ")


def test_a_run_that_names_a_node_once_is_incomplete_there() -> None:
    run, partner = broken_off(1, "n003")
    result = of_node(MESH, run, "n003")
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith(f"nothing was exchanged with {partner}: n003 did not answer: ")
    assert of_node(MESH, run, partner).verdict is Verdict.PASS


def test_where_bandwidth_was_measured_it_does_not_apply_and_says_how_to_ask() -> None:
    run = run_of(HEALTHY)
    result = of_node(MESH, run, run.campaigns[0].journal.plan.nodes[0])
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "--meter rdma_mesh" in result.message


def test_where_bytes_were_exchanged_no_check_judges_bandwidth() -> None:
    run = mesh_run_of(NAMED["a device that reaches nobody"])
    for check in ("not_a_straggler", "pairwise_transport", "pairwise_correct", "pairwise_groups"):
        assert of_node(f"network.{check}", run, "n003").verdict is Verdict.NOT_APPLICABLE
    assert evaluate(all_checks()["network.pairwise_busbw"], run.pairs[0]).verdict is Verdict.NOT_APPLICABLE


def test_it_does_not_apply_where_no_node_has_rdma_hardware() -> None:
    nothing = Wiring(silent=dict.fromkeys(names(4), "nothing on a and b"), failure=Failure.NO_RDMA)
    by_node = results(MeshFault("no hardware", nothing, count=4))
    assert {result.verdict for result in by_node.values()} == {Verdict.NOT_APPLICABLE}


def test_where_no_node_shows_devices_that_its_type_has_it_is_incomplete() -> None:
    nothing = Wiring(silent=dict.fromkeys(names(4), "no RDMA device on either node: a, b"), failure=Failure.NO_RDMA)
    run = mesh_run_of(MeshFault("none is seen", nothing, count=4))
    result = of_node(MESH, run, "n000", "p5.48xlarge")
    assert result.verdict is Verdict.INCOMPLETE
    message = "no RDMA device on either node: a, b; expected 32 EFA devices, as a p5.48xlarge has"
    assert result.message == f"{message} (a pod sees those it asks for)"


def test_a_node_without_rdma_hardware_among_others_is_incomplete() -> None:
    nothing = {"n003": "clusterproof: n003: no RDMA device that is switched on and has an address"}
    by_node = results(MeshFault("one without hardware", Wiring(silent=nothing)))
    assert by_node["n003"].verdict is Verdict.INCOMPLETE


def test_what_a_person_types_names_both_nodes() -> None:
    made = campaign(HEALTHY_MESH)
    command = of_node(MESH, mesh_run_of(HEALTHY_MESH), "n003").evidence
    assert command.startswith("fi_pingpong -p efa -e rdm -d DEVICE-rdm -I 10 -S 64 on NODE, then on GOOD_NODE")
    typed = replace(made.journal.measurements[0], reading=replace(made.journal.measurements[0].reading, command="this"))
    run = PairwiseRun((replace(made, journal=replace(made.journal, measurements=(typed,))),))
    assert of_node(MESH, run, typed.pair.a).evidence == "this"
