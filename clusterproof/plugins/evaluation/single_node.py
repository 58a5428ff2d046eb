"""What checks find in one node's evidence alone: agents detect changes with it, gates failures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.evaluation.index import Stale, load, make_index, of_occasions, read_index
from clusterproof.plugins.evidence.node import HEALTH_CHECK, Node
from clusterproof.plugins.evidence.nodes import nodes

OCCASIONS = ("prolog", "epilog")
WRITTEN = (Verdict.FAIL, Verdict.INCOMPLETE)  # the verdicts that determine a condition's status


def findings_digest(policy: Policy, expected: Target) -> Callable[[NodeEvidence], str]:
    """A digest of a node's findings: unchanged as long as each check finds the same on the same devices.

    `expected` is what the node should have; its name does not matter.
    """
    checks = [load(entry) for entry in of_occasions(_index(), OCCASIONS).values()]

    def of(evidence: NodeEvidence) -> str:
        cluster = Cluster("local", "local", (replace(expected, name=evidence.node),), is_part=True)
        node = nodes(cluster, {evidence.node: evidence}, HEALTH_CHECK, policy)[evidence.node]
        results = [verdict_on(policy.as_of_today(), check, node) for check in checks]
        lines = [
            repr((result.check, finding.verdict.value, finding.devices))
            for result in results
            for finding in result.findings
            if finding.verdict in WRITTEN
        ]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    return of


def fails_alone(node: Node, names: Collection[str]) -> bool:
    """Whether one of these packaged checks fails on what the node itself reported, regardless of other nodes."""
    cluster = Cluster("local", "local", (node.target,))
    alone = nodes(cluster, {node.name: node.evidence}, node.occasion, node.policy, node.since)[node.name]
    checks = (load(_index()[name]) for name in names if name in _index())
    return any(verdict_on(node.policy, check, alone).verdict is Verdict.FAIL for check in checks)


@cache
def _index() -> Mapping[str, Mapping[str, Any]]:
    try:
        return read_index()
    except Stale:
        return make_index()
