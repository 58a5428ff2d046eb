"""Takes away what a gate has written to nodes: its condition, and every taint of this suite's own."""

from __future__ import annotations

from collections import defaultdict

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.gate import CONDITION, OURS
from clusterproof.plugins.kubernetes.gate.objects import (
    NODES,
    STRATEGIC,
    Seen,
    difference,
    seen_of,
    without_condition,
    without_taints,
)
from clusterproof.plugins.kubernetes.gate.write import Written
from clusterproof.plugins.kubernetes.gate.writer import Patch, Writer, of_nodes


def remove(api: Api) -> Written:
    """Remove them from every node of the cluster, whoever had it written and whenever; others' stay as they are."""
    writer = Writer(api)
    every = writer.tried("", lambda: {seen.node.name: seen for seen in map(seen_of, api.listed(NODES))})
    nodes = every or {}

    def clean(name: str) -> str:
        seen = nodes[name]
        words = []
        if seen.node.condition(CONDITION):
            seen = seen_of(api.patch(f"{seen.path}/status", without_condition(seen), STRATEGIC))
            words.append(f"lost the condition {CONDITION}")
        after = writer.changed(seen, _without_ours)
        return "; ".join(filter(None, [*words, difference(seen, after)]))

    done: dict[str, list[str]] = defaultdict(list)
    for name, words in writer.each(clean, [name for name, seen in nodes.items() if _is_written(seen)]).items():
        done[words].append(name)
    lines = [of_nodes(names, words) for words, names in done.items()]
    if every is not None and not (lines or writer.problems):
        lines.append(f"none of {len(nodes)} nodes has the condition {CONDITION} or a taint of clusterproof")
    return Written(tuple(lines), tuple(writer.lines()))


def _is_written(seen: Seen) -> bool:
    return seen.node.condition(CONDITION) is not None or any(OURS in taint.key for taint in seen.node.taints)


def _without_ours(seen: Seen) -> Patch:
    ours = [taint for taint in seen.node.taints if OURS in taint.key]
    return without_taints(seen, ours) if ours else {}
