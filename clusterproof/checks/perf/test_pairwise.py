"""Bandwidth between pairs of nodes: which pairs are slow, and which node, link or rack is responsible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from clusterproof.plugins.benchmarks.pairwise.facts import SLOW, MeasuredPair, NoPairs, measurement_text
from clusterproof.plugins.benchmarks.pairwise.in_words import as_observed, attribution, slowdown_text
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_speeds, listed, number_of
from clusterproof.plugins.core.verdict import concern, concern_if, fail, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import by_hand, evidence
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import RDMA_MESH, Kind, Measurement, PairFault, PairsOfNode
from clusterproof.plugins.evidence.perf.facts_node import pairs_if_known

pytestmark = [mark.network, mark.perf, mark.hyperpod_performance_debugger("A")]

NCCL_TESTS, EXACT = "nccl-tests", "exact"
EFA = "efa"  # a network of which NCCL's plugin does not say how many devices it has found
MIN_PARTNERS = 2  # that a node must have been measured with before it passes


def slowest_command(node: Node) -> str:
    """The command of the node's slowest measurement."""
    return _of_first(node, lambda measurement: measurement.reading.busbw_gb_per_s or 0.0)


def of_network(node: Node) -> str:
    """The command of a measurement over another network than EFA, if there is one."""
    command = _of_first(node, lambda measurement: measurement.reading.network.startswith("efa"))
    return f"{command} | grep -E 'Selected provider|Using network'" if command else ""


def of_result(node: Node) -> str:
    """The command of a measurement with a wrong result, if there is one."""
    command = _of_first(node, lambda measurement: measurement.reading.is_correct is not False)
    return f"{command} | grep -E 'wrong|Out of bounds'" if command else ""


def _of_first(node: Node, order: Callable[[Measurement], float]) -> str:
    """The command of a node's first measurement in this order; if none is known, how to use its meter."""
    pairs = pairs_if_known(node)
    if pairs is None:
        return ""
    known = [measurement for measurement in pairs.measured if measurement.reading.command]
    return min(known, key=order).reading.command if known else pairs.by_hand


def of_pair(pair: MeasuredPair | NoPairs) -> str:
    """The command of a pair's first measurement; if none is known, how to use its meter."""
    if not isinstance(pair, MeasuredPair):
        return ""
    commands = (measurement.reading.command for measurement in pair.measurements)
    return next(filter(None, commands), pair.campaign.by_hand("A", "B"))


@by_hand(slowest_command)
@evidence("mpirun -np 16 --host NODE:8,GOOD_NODE:8 all_reduce_perf -b 8G -e 8G -f 2 -g 1")
def test_not_a_straggler(node: Node) -> None:
    """Node bandwidth across partners.

    A collective is as fast as its slowest node. Nodes are measured in pairs, and nodes of slow pairs again with several
    partners known to be good. A node is named only if the node itself, rather than a link, a rack, contention or the
    cluster's configuration, explains the measurements.

    Remedy (replace): Drain the node, and check its clocks, PCIe links and network devices. Replace it if nothing there
    explains the measurements.
    """
    pairs = node.pairwise
    if pairs.mesh:
        not_applicable(f"measured with {RDMA_MESH}, which exchanges a few bytes and measures no bandwidth")
    with part:
        say_finding(pairs.finding) if pairs.finding else require_measured(pairs)
    for shared in pairs.shared:
        concern_if(shared, f"{attribution(shared)}; expected all pairs to be alike")


def say_finding(finding: PairFault) -> NoReturn:
    """End with the analysis's finding on the node itself."""
    if finding.kind is Kind.INCONCLUSIVE:
        incomplete(f"{slowdown_text(finding)}; this is not certain: {finding.words}")
    if finding.kind is Kind.INTERMITTENT:
        concern(f"{finding.words}; expected it to be as fast each time")
    if finding.kind is Kind.FAILING_NODE:
        fail(f"{_failures(finding)}; expected every measurement to succeed")
    fail(f"{_slowness(finding)}; expected to be as fast as the others")


def _failures(finding: PairFault) -> str:
    why = f": {as_observed(finding.words)}" if finding.words else ""
    return f"{finding.failures} of {finding.attempts} measurements failed, whoever the partner was{why}"


def _slowness(finding: PairFault) -> str:
    return "; ".join(filter(None, (slowdown_text(finding), as_observed(finding.words))))


def require_measured(pairs: PairsOfNode) -> None:
    """Raise Incomplete if too little was measured to prove anything."""
    if pairs.estimate is None:
        problems = (measurement.reading.problem for measurement in pairs.measurements)
        why = next(filter(None, problems), "nothing says why")
        incomplete(f"all {len(pairs.measurements)} measurements failed: {as_observed(why)}; expected one that succeeds")
    if pairs.unclear:
        incomplete(f"{pairs.unclear}; expected enough measurements to say which node is slow")
    if pairs.succeeded_with < MIN_PARTNERS and not pairs.is_one_of_two:
        incomplete(f"measured with one partner only; expected at least {MIN_PARTNERS}")


@by_hand(of_pair)
@evidence("mpirun -np 16 --host A:8,B:8 all_reduce_perf -b 8G -e 8G -f 2 -g 1")
def test_pairwise_busbw(pair: MeasuredPair) -> None:
    """Pairwise bus bandwidth.

    Each pair is compared with the other pairs of this run and, if one is known, with the floor for the same instance
    type, number of ranks, collective and size. A pair that is slow because of one of its nodes is only a concern:
    network.not_a_straggler reports the node.

    Remedy (investigate): If both nodes are fast with others, check what lies between them: rack, switch, security
    groups. If most pairs are below the floor, check the cluster's configuration: the EFA plugin, NCCL's environment
    variables.
    """
    if pair.campaign.mesh:
        not_applicable(f"measured with {RDMA_MESH}, which exchanges a few bytes and measures no bandwidth")
    floor, best = pair.campaign.floor_gb_per_s or 0.0, pair.best_gb_per_s or 0.0
    finding, measured = pair.finding, measurement_text(pair, floor)
    least = format_speeds(floor, best)[0]
    is_seen = pair.shares and not (pair.explained and pair.is_slow)
    fail_if(is_seen and best < floor, f"{measured}; expected at least {least}")
    if finding and finding.kind is Kind.INCONCLUSIVE:
        incomplete(f"{measured}: {finding.words}; expected enough measurements to tell the cause")
    assert finding is None, f"{measured}, though each node is fast with others; expected the usual bandwidth"
    if pair.explained and pair.explained.kind is Kind.CONFIGURATION:
        most = f": {attribution(pair.explained)}" if best >= floor else ""  # it was under the floor at another time
        fail(f"{measured}{most}; expected at least {least}")
    if pair.is_slow and pair.explained and pair.explained.kind is Kind.SLOW_GROUP:
        fail(f"{measured}: {attribution(pair.explained)}; expected what is usual")
    require_normal(pair, measured)


def require_normal(pair: MeasuredPair, measured: str) -> None:
    """Report what is left: pairs that something else explains, or that were slow once."""
    if pair.is_slow and pair.explained:
        concern(f"{measured}: {attribution(pair.explained)}; expected what is usual")
    if not pair.shares:
        incomplete(f"{measured}; expected a measurement that succeeds")
    if pair.campaign.unclear:
        incomplete(f"{measured}: {pair.campaign.unclear}; expected enough measurements to say which node is slow")
    if pair.is_slow and max(pair.shares) < SLOW:
        incomplete(f"{measured}, and it was not measured often enough to tell why; expected what is usual")
    if pair.is_slow:
        concern(f"{measured}: it is as fast as usual at other times; expected that each time")


@mark.hyperpod_nccl("13")
@by_hand(of_network)
@evidence("NCCL_DEBUG=INFO all_reduce_perf -b 8G -e 8G -f 2 -g 1 | grep -E 'Selected provider|Using network'")
def test_pairwise_transport(node: Node) -> None:
    """NCCL transport between nodes.

    If the plugin or the provider is missing, NCCL falls back to TCP without an error and is many times slower. Every
    measurement records which network it used.

    Remedy (fix configuration): Put the aws-ofi-nccl plugin on the library path of the job's container, and unset
    NCCL_NET_PLUGIN=none and FI_PROVIDER=tcp.
    """
    pairs = node.pairwise
    if pairs.meter != NCCL_TESTS:
        not_applicable(f"measured with {pairs.meter or 'another program'}, which chooses its network itself")
    of_groups = [reading for measured in pairs.in_groups for reading in measured.readings]
    readings_of_it = [*(measurement.reading for measurement in pairs.measurements), *of_groups]
    networks = {reading.network for reading in readings_of_it if reading.busbw_gb_per_s} - {""}
    if node.expected("efa") == 0:
        not_applicable(f"{node.type_name or 'this node'} has no EFA")
    others = sorted(name for name in networks if not all(part.startswith("efa") for part in name.split(" and ")))
    fail_if(others, f"NCCL used {', '.join(others)}; expected EFA")
    if not networks:
        incomplete("no measurement says which network carried it; expected the line of NCCL that names it")
    expected, counted = f"efa, {node.expected('efa')} ", networks - {*others, EFA}
    fewer = sorted(name for name in counted if not name.startswith(expected))
    concern_if(fewer, f"NCCL used {'; '.join(fewer)}; expected {node.expected('efa')} devices")
    if EFA in networks and not counted:
        incomplete(f"NCCL used EFA and does not say how many devices; expected {node.expected('efa')}")


@mark.hyperpod_nccl
@by_hand(of_result)
@evidence("mpirun -np 16 --host A:8,B:8 all_reduce_perf -b 8G -e 8G -f 2 -g 1 -c 1 | grep -E 'wrong|Out of bounds'")
def test_pairwise_correct(node: Node) -> None:
    """Correctness between nodes.

    nccl-tests and --meter exact verify every result; --meter exact also says whose elements were wrong. A wrong sum in
    a collective is a wrong gradient in training, and nothing else shows it.

    Remedy (replace): Drain the node. Measure it alone, then with each neighbour, to find the faulty GPU or link.
    """
    pairs = node.pairwise
    compared = [measurement for measurement in pairs.measurements if measurement.reading.is_correct is not None]
    if not compared:
        if pairs.meter not in (NCCL_TESTS, EXACT):
            not_applicable(f"{pairs.meter or 'the program that measured'} does not compare results")
        incomplete("no measurement compared its results; expected one that ended well")
    correct = [measurement for measurement in compared if measurement.reading.is_correct]
    incorrect = [measurement for measurement in compared if not measurement.reading.is_correct]
    wrong = sorted({measurement.pair.other(node.name) for measurement in incorrect})
    with_right = {measurement.pair.other(node.name) for measurement in correct} - set(wrong)
    others = partners_at_fault(node.name, incorrect, pairs.failing)
    own = [partner for partner in wrong if partner not in others]
    about = [measurement for measurement in incorrect if measurement.pair.other(node.name) in own] or incorrect
    why = f" ({about[0].reading.problem})" if about and pairs.meter == EXACT else ""
    if own and not (with_right and len(own) == 1):
        fail(f"wrong results with {len(wrong)} of {pairs.partners} partners{why}; expected correct ones")
    right = f", right ones with {number_of(len(with_right), 'other')}" if with_right else ""
    concern_if(wrong, f"wrong results with {listed(wrong)}{why}{right}; expected correct ones")
    if wrong and not with_right:
        incomplete("no measurement with a node that computes correctly; expected one with right results")


def partners_at_fault(node: str, incorrect: Sequence[Measurement], failing: Collection[str]) -> set[str]:
    """The partners that explain a node's wrong results: they fail whoever the partner is, or each of these names them.

    Empty for a node that itself fails whoever the partner is.
    """
    if node in failing:
        return set()
    by_partner: dict[str, set[str]] = {}
    for measurement in incorrect:
        by_partner.setdefault(measurement.pair.other(node), set()).add(measurement.reading.culprit)
    return {partner for partner, named in by_partner.items() if partner in failing or named == {partner}}
