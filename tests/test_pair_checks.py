"""The checks of pairs: each can fail, and is silent on a healthy cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from clusterproof.plugins.check import Check
from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.facts.pairwise import NoPairs, PairwiseRun
from clusterproof.plugins.inventory.model import Target
from clusterproof.plugins.judge import judge
from clusterproof.plugins.result import Result
from clusterproof.plugins.suite import all_checks
from clusterproof.plugins.verdict import Verdict
from tests.pair_faults import HEALTHY, PAIR_FAULTS, TYPE, PairFault, run_of

CHECKS = {name: check for name, check in all_checks().items() if check.needs_pairs}


def node(name: str, run: PairwiseRun | None) -> Node:
    return Node(Target(name, instance_type=TYPE), NodeEvidence(name), between=run)


def results(check: Check, fault: PairFault) -> dict[str, Result]:
    """The check's results by node or pair."""
    run = run_of(fault)
    if check.is_of_pair:
        return {pair.name: judge(check, pair) for pair in run.pairs}
    return {name: judge(check, node(name, run)) for name in run.campaigns[0].journal.plan.nodes}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_a_check_is_silent_on_a_healthy_cluster(check: Check) -> None:
    assert {result.verdict for result in results(check, HEALTHY).values()} == {Verdict.PASS}


@pytest.mark.parametrize("fault", PAIR_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_where_it_is(fault: PairFault) -> None:
    for asked, verdict in fault.expect.items():
        name, _, where = asked.partition("@")
        told = results(CHECKS[name], fault)
        if where:
            assert told[where].verdict is verdict, told[where].message
        else:
            assert verdict in Counter(result.verdict for result in told.values()), next(iter(told.values())).message


@pytest.mark.parametrize("fault", PAIR_FAULTS, ids=lambda fault: fault.name)
def test_nobody_else_is_accused(fault: PairFault) -> None:
    blamed = {asked.partition("@")[2] for asked, verdict in fault.expect.items() if verdict is Verdict.FAIL}
    told = results(CHECKS["network.not_a_straggler"], fault)
    accused = {name for name, result in told.items() if result.verdict is Verdict.FAIL}
    assert accused <= blamed | {name for name in told if fault.name == "a node that reckons wrong" and name == "n0006"}


@pytest.mark.parametrize("name", ["two nodes only", "three nodes that differ", "three nodes, one of which is dead"])
def test_where_nodes_cannot_be_told_apart_none_passes(name: str) -> None:
    fault = next(fault for fault in PAIR_FAULTS if fault.name == name)
    for check in ("network.not_a_straggler", "network.pairwise_busbw"):
        told = results(CHECKS[check], fault)
        assert Verdict.PASS not in {result.verdict for result in told.values()}, told


def test_every_check_of_pairs_is_proven_able_to_fail() -> None:
    failed = {
        asked.partition("@")[0]
        for fault in PAIR_FAULTS
        for asked, verdict in fault.expect.items()
        if verdict is Verdict.FAIL
    }
    assert failed == CHECKS.keys()


def test_a_slow_node_is_told_with_its_numbers() -> None:
    message = results(CHECKS["network.not_a_straggler"], PAIR_FAULTS[0])["n0003"].message
    assert "% slower than normal (" in message
    assert "measurements with" in message
    assert message.endswith("99.99 % sure; expected to be as fast as the others")


def test_pairs_of_a_slow_node_are_a_concern_that_names_it() -> None:
    told = results(CHECKS["network.pairwise_busbw"], PAIR_FAULTS[0])
    of_it = [result for name, result in told.items() if "n0003" in name]
    assert {result.verdict for result in of_it} == {Verdict.CONCERN}
    assert all("n0003 is" in result.message and "% slow" in result.message for result in of_it)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_where_nothing_was_measured_nothing_passes(check: Check) -> None:
    owner = NoPairs("pairs", "nothing was measured between nodes") if check.is_of_pair else node("n1", None)
    result = judge(check, owner)
    assert (result.verdict, result.message) == (Verdict.INCOMPLETE, "nothing was measured between nodes")
