"""Bandwidth of groups of nodes, up to all of them."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.benchmarks.pairwise.groups import TIMES, best_gb_per_s
from clusterproof.plugins.benchmarks.pairwise.in_words import as_observed, finding_text
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, format_speeds, speed
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import by_hand, evidence
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import MeasuredGroup, Reading
from clusterproof.plugins.evidence.perf.facts_node import pairs_if_known

pytestmark = [mark.network, mark.perf, mark.hyperpod_performance_debugger("A")]


def of_group(node: Node) -> str:
    """The command of the largest group with this node; empty if it was in none."""
    pairs = pairs_if_known(node)
    groups = pairs.in_groups if pairs else ()
    commands = [reading.command for measured in groups for reading in measured.readings if reading.command]
    return commands[-1] if commands else ""


@by_hand(of_group)
@evidence("mpirun -np 64 --host A:8,…,H:8 all_reduce_perf -b 8G -e 8G -f 2 -g 1")
def test_pairwise_groups(node: Node) -> None:
    """Bus bandwidth in groups.

    Pairs identify nodes and links. Groups show faults that appear only when many nodes communicate: an oversubscribed
    switch, crossed rails, an algorithm that the library picks for large groups. Each group is compared with others of
    its size, with the smallest groups, with pairs, and with the floor for that many nodes, if one is known. A slow
    group names no node; a node fails only if two runs name it.

    Remedy (investigate): If one group is slow, check what its nodes have in common: rack, switch, placement group. If
    all large groups are slow, check the fabric between racks, NCCL_ALGO and the EFA plugin's tuner.
    """
    pairs = node.pairwise
    for measured in pairs.groups:
        with part:
            say_of_group(node, measured)
    if pairs.groups_left_out:
        incomplete(f"not measured: {pairs.groups_left_out}; expected all groups of --groups")


def say_of_group(node: Node, measured: MeasuredGroup) -> None:
    """Report the findings on one of the node's groups."""
    nodes = f"{len(measured.group.nodes)} nodes ({measured.group})"
    is_wrong = any(reading.is_correct is False for reading in measured.readings)
    concern_if(is_wrong, f"wrong results on {nodes}; expected correct ones")
    best = best_gb_per_s(measured.readings)
    if best:
        say_slow(node, measured, nodes, best)
    failed = [
        reading for reading in measured.readings if not reading.busbw_gb_per_s and reading.is_correct is not False
    ]
    with part:
        if failed:
            say_failed(node.name, failed, nodes, is_always=best is None)
    if is_wrong:
        incomplete(f"nothing says whose results are wrong on {nodes}; expected smaller groups or --meter exact to tell")


def say_failed(node: str, failed: Sequence[Reading], nodes: str, is_always: bool) -> None:
    """Report why measurements of a group failed: all of them, or some."""
    named = [reading for reading in failed if reading.culprit == node and reading.failure is None]
    why = (named or failed)[-1].problem or "nothing says why"
    message = f"failed on {nodes}: {as_observed(why)}"
    fail_if(is_always and len(named) >= TIMES, f"{message}; expected every measurement to succeed")
    if is_always and len(named) < TIMES:
        incomplete(f"{message}; expected one that succeeds")
    concern_if(not is_always, f"{message}; expected it to succeed each time")


def say_slow(node: Node, measured: MeasuredGroup, nodes: str, best: float) -> None:
    """Report what a group is slow compared with: similar groups, the smallest groups, pairs, and known figures."""
    shares = (node.threshold(f"pairwise.{name}") for name in ("slower", "least_share", "least_of_pairs"))
    slower, least_share, least_of_pairs = shares
    size, others, floor = len(measured.group.nodes), measured.others_gb_per_s or 0.0, measured.floor_gb_per_s or 0.0
    few, of_few = measured.smallest if measured.smallest and measured.smallest[0] < size else (0, 0.0)
    why = f" ({finding_text(measured.slow_inside)})" if measured.slow_inside else ""
    message = f"{nodes}: {speed(best)}{why}"
    is_slow = best < (1 - slower) * others
    concern_if(is_slow, f"{message}; expected {speed(others)}, like the other groups of {size}")
    for known, share, of in ((of_few, least_share, f"{few} nodes"), (measured.pairs_gb_per_s, least_of_pairs, "pairs")):
        if best < share * known:
            percent, least_percent = format_pair(best / known * 100, share * 100)
            of_known = f"{percent} % of the {speed(known)} of {of}"
            concern_if(True, f"{message}, {of_known}; expected at least {least_percent} %")
    shown, least = format_speeds(best, floor)
    concern_if(best < floor, f"{nodes}: {shown}{why}; expected at least {least}")
    worst = min(reading.busbw_gb_per_s or best for reading in measured.readings)
    is_once = not is_slow and worst < (1 - slower) * (others or best)
    concern_if(is_once, f"{nodes}: {speed(worst)} once, and {speed(best)}; expected the same each time")
    if not (others or of_few or floor or measured.pairs_gb_per_s):
        incomplete(f"{message}, with nothing to compare it with; expected pairs that succeed, or --baseline")
