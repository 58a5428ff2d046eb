"""Findings from measurements that failed: of a node, whatever its partner is, or of a pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clusterproof.plugins.benchmarks.pairwise.screen import failing_nodes
from clusterproof.plugins.evidence.pairwise.findings import Finding, Kind
from clusterproof.plugins.evidence.pairwise.model import Measurement, Pair


def failing_link(one: Pair, failed: int, attempts: int) -> Finding:
    """A pair that failed so often, where each end is well with others."""
    if failed < 2:
        words = "it failed once, and was not measured again often enough; measure it again"
        return Finding(Kind.INCONCLUSIVE, one.nodes, failures=failed, attempts=attempts, words=words, pairs=(one,))
    words = "each end is well with others"
    return Finding(Kind.FAILING_LINK, one.nodes, failures=failed, attempts=attempts, words=words, pairs=(one,))


def failing_or_suspect(measurements: Sequence[Measurement]) -> list[Finding]:
    """Nodes with which measurements fail, whatever the partner is; where that holds for most, no node is named."""
    found = []
    failing = failing_nodes(measurements)
    nodes = {node for one in measurements for node in one.pair}
    for node in failing:
        own = [one for one in measurements if node in one.pair.nodes]
        failed = [one for one in own if not one.reading.busbw_gb_per_s]
        partners = {one.pair.other(node) for one in failed}
        named = sum(one.reading.culprit == node for one in failed)
        problem = next((one.reading.problem for one in failed if one.reading.problem), "")
        is_sure = len(failed) >= 2 and len(partners) >= 2 and 2 * len(failed) >= len(own)
        says_nothing = all(one.reading.is_without_program or one.reading.is_not_at_fault for one in failed)
        is_named = named > 1 or (is_sure and 2 * len(failing) <= len(nodes))
        kind = Kind.FAILING_NODE if is_named and not says_nothing else Kind.INCONCLUSIVE
        pairs = tuple({one.pair: None for one in failed})
        found.append(Finding(kind, (node,), failures=len(failed), attempts=len(own), words=problem, pairs=pairs))
    return found


def each_once(slow: Iterable[Finding], failing: Iterable[Finding]) -> list[Finding]:
    """One finding for each node: where it is surely slow, its failures are reported with that."""
    of_node = {one.nodes: one for one in failing}
    for one in slow:
        other = of_node.get(one.nodes)
        if other is None:
            of_node[one.nodes] = one
        elif one.kind is Kind.SLOW_NODE and other.kind is not Kind.FAILING_NODE:
            words = f"besides, {other.failures} of {other.attempts} measurements failed: {other.words}"
            pairs = tuple(dict.fromkeys((*one.pairs, *other.pairs)))
            of_node[one.nodes] = replace(
                one, failures=other.failures, attempts=other.attempts, words=words, pairs=pairs
            )
    return list(of_node.values())
