"""The checks of pairs: each can fail, and is silent on a healthy cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from clusterproof.plugins.benchmarks.pairwise.facts import NoPairs, PairwiseRun
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import Measurement, Reading
from tests.benchmarks.pairwise.mesh_faults import MESH
from tests.benchmarks.pairwise.pair_faults import HEALTHY, KEY, PAIR_FAULTS, TYPE, PairFault, run_of

CHECKS = {
    name: check
    for name, check in all_checks().items()
    if check.needs_pairs and name != MESH  # it has its own tests
}


def node(name: str, run: PairwiseRun | None) -> Node:
    return Node(Target(name, instance_type=TYPE), NodeEvidence(name), between=run)


@cache
def results(check: Check, fault: PairFault) -> dict[str, Result]:
    """The check's results by node or pair."""
    run = run_of(fault)
    if check.is_of_pair:
        return {pair.name: evaluate(check, pair) for pair in run.pairs}
    return {name: evaluate(check, node(name, run)) for name in run.campaigns[0].journal.plan.nodes}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_a_check_is_silent_on_a_healthy_cluster(check: Check) -> None:
    assert {result.verdict for result in results(check, HEALTHY).values()} == {Verdict.PASS}


def wrong_with_two(measurement: Measurement) -> Measurement:
    is_right = {"n0003", "n0006"}.isdisjoint(measurement.pair)
    return measurement if is_right else replace(measurement, reading=Reading(is_correct=False, problem="wrong"))


TWO_WRONG = PairFault(
    "two nodes that reckon wrong, each with everybody",
    touch=wrong_with_two,
    nodes=16,
    expect={f"network.pairwise_correct@{name}": Verdict.FAIL for name in ("n0003", "n0006")},
)


@pytest.mark.long
@pytest.mark.parametrize("fault", [TWO_WRONG, *PAIR_FAULTS], ids=lambda fault: fault.name)
def test_a_fault_is_found_where_it_is(fault: PairFault) -> None:
    for key, verdict in fault.expect.items():
        name, _, where = key.partition("@")
        by_node = results(CHECKS[name], fault)
        if where:
            assert by_node[where].verdict is verdict, by_node[where].message
        else:
            assert verdict in Counter(result.verdict for result in by_node.values()), next(
                iter(by_node.values())
            ).message


@pytest.mark.parametrize("check", ["network.not_a_straggler", "network.pairwise_correct"])
@pytest.mark.parametrize("fault", [TWO_WRONG, *PAIR_FAULTS], ids=lambda fault: fault.name)
def test_no_other_node_fails(fault: PairFault, check: str) -> None:
    expected = {key.partition("@")[2] for key, verdict in fault.expect.items() if verdict is Verdict.FAIL}
    by_node = results(CHECKS[check], fault)
    assert {name for name, result in by_node.items() if result.verdict is Verdict.FAIL} <= expected


@pytest.mark.parametrize("name", ["two nodes only", "three nodes that differ", "three nodes, one of which is dead"])
def test_where_nodes_cannot_be_told_apart_none_passes(name: str) -> None:
    fault = next(fault for fault in PAIR_FAULTS if fault.name == name)
    for check in ("network.not_a_straggler", "network.pairwise_busbw"):
        by_node = results(CHECKS[check], fault)
        assert Verdict.PASS not in {result.verdict for result in by_node.values()}, by_node


def test_every_check_of_pairs_is_proven_able_to_fail() -> None:
    failed = {
        key.partition("@")[0]
        for fault in PAIR_FAULTS
        for key, verdict in fault.expect.items()
        if verdict is Verdict.FAIL
    }
    assert failed == CHECKS.keys()


def test_a_slow_node_is_reported_with_its_numbers() -> None:
    message = results(CHECKS["network.not_a_straggler"], PAIR_FAULTS[0])["n0003"].message
    assert "% slower than normal (" in message
    assert "measurements with" in message
    assert message.endswith("99.99 % sure; expected to be as fast as the others")


def test_pairs_of_a_slow_node_are_a_concern_that_names_it() -> None:
    by_node = results(CHECKS["network.pairwise_busbw"], PAIR_FAULTS[0])
    of_it = [result for name, result in by_node.items() if "n0003" in name]
    assert {result.verdict for result in of_it} == {Verdict.CONCERN}
    assert all("n0003 is" in result.message and "% slow" in result.message for result in of_it)


PINGPONG = "fi_pingpong -p efa -e rdm -S 16777216"


@pytest.mark.parametrize(
    ("meter", "of_node", "of_pair"),
    [
        (
            "nccl-tests",
            "mpirun -np 16 --host NODE:8,GOOD_NODE:8 all_gather_perf -b 8G -e 8G -f 2 -g 1",
            "mpirun -np 16 --host A:8,B:8 all_gather_perf -b 8G -e 8G -f 2 -g 1",
        ),
        (
            "nccom-test",
            "nccom-test -r 64 -N 2 -b 1G -e 1G -d fp32 --check allg --hosts NODE GOOD_NODE",
            "nccom-test -r 64 -N 2 -b 1G -e 1G -d fp32 --check allg --hosts A B",
        ),
        (
            "iperf3",
            "iperf3 -s on GOOD_NODE, then on NODE: iperf3 -c GOOD_NODE -P 8 -O 1; the same with -R",
            "iperf3 -s on B, then on A: iperf3 -c B -P 8 -O 1; the same with -R",
        ),
        (
            "exact",
            "mpirun -np 16 --host NODE:8,GOOD_NODE:8 alltoall_perf -b 1G -e 1G -g 1 -c 1",
            "mpirun -np 16 --host A:8,B:8 alltoall_perf -b 1G -e 1G -g 1 -c 1",
        ),
        (
            "fi_pingpong",
            f"{PINGPONG} on GOOD_NODE, then on NODE: {PINGPONG} GOOD_NODE",
            f"{PINGPONG} on B, then on A: {PINGPONG} B",
        ),
    ],
)
def test_the_command_by_hand_uses_the_program_that_measured(meter: str, of_node: str, of_pair: str) -> None:
    (campaign,) = run_of(PAIR_FAULTS[0]).campaigns
    about = {"meter": meter, "key": {**KEY, "collective": "all_gather"}}
    run = PairwiseRun((replace(campaign, journal=replace(campaign.journal, about=about)),))
    result = evaluate(CHECKS["network.not_a_straggler"], node("n0003", run))
    assert (result.verdict, result.evidence) == (Verdict.FAIL, of_node)
    assert evaluate(CHECKS["network.pairwise_busbw"], run.pairs[0]).evidence == of_pair


def test_what_a_failed_run_expected_is_part_of_what_was_observed() -> None:
    (campaign,) = run_of(HEALTHY).campaigns
    problem = "the ranks did not find each other; expected --srun-options=--mpi=pmix"
    failed = tuple(
        replace(measurement, reading=Reading(problem=problem)) for measurement in campaign.journal.measurements
    )
    run = PairwiseRun((replace(campaign, journal=replace(campaign.journal, measurements=failed)),))
    result = evaluate(CHECKS["network.not_a_straggler"], node("n0003", run))
    assert result.verdict is Verdict.INCOMPLETE
    assert "the ranks did not find each other, expected --srun-options=--mpi=pmix" in result.message


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_where_nothing_was_measured_nothing_passes(check: Check) -> None:
    owner = NoPairs("pairs", "nothing was measured between nodes") if check.is_of_pair else node("n1", None)
    result = evaluate(check, owner)
    assert (result.verdict, result.message) == (Verdict.INCOMPLETE, "nothing was measured between nodes")
