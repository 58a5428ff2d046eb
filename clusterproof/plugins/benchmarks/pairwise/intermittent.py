"""Nodes that are slow now and then, more often than chance would have it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import comb, exp

from clusterproof.plugins.benchmarks.pairwise.screen import Screened
from clusterproof.plugins.benchmarks.pairwise.view import Settings
from clusterproof.plugins.evidence.pairwise.findings import Estimate, Finding, Kind

SURE = 0.99  # from which on it is reported; it faults no node


def slow_now_and_then(
    screened: Screened, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: Settings
) -> list[Finding]:
    """Those of these nodes, none of which is named for anything else."""
    first = [value.x for value in screened.values if not value.is_retest]
    usual_share = (sum(x <= -settings.min_effect for x in first) + 1) / (len(first) + 2)
    found = []
    for node in sorted(nodes):
        own = screened.of_node.get(node, ())
        low = [value for value in own if value.x <= -settings.min_effect]
        if len({value.pair for value in low}) < 2:
            continue
        if len(screened.of_node) * tail(len(low), len(own), usual_share) > 1 - SURE:
            continue
        worst = 1 - exp(min(value.x for value in low))
        words = f"{len(low)} of {len(own)} measurements are slow, by up to {worst:.0%}, the others are well"
        found.append(Finding(Kind.INTERMITTENT, (node,), estimate=estimates.get(node), words=words))
    return found


def tail(least: int, of: int, chance: float) -> float:
    """The chance of at least so many of `of`, each having this chance."""
    return sum(comb(of, count) * chance**count * (1 - chance) ** (of - count) for count in range(least, of + 1))
