"""What the checks say of one node's evidence alone, in a word: whether it is as before, which an agent asks itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.evaluation.index import Stale, load, make_index, of_occasions, read_index
from clusterproof.plugins.evidence.node import HEALTH_CHECK
from clusterproof.plugins.evidence.nodes import nodes

OCCASIONS = ("prolog", "epilog")
WRITTEN = (Verdict.FAIL, Verdict.INCOMPLETE)  # of which a condition's status comes


def standing(policy: Policy) -> Callable[[NodeEvidence], str]:
    """What makes one word of evidence: the same while each check finds the same of the same devices."""
    try:
        index = read_index()
    except Stale:
        index = make_index()
    checks = [load(entry) for entry in of_occasions(index, OCCASIONS).values()]

    def of(data: NodeEvidence) -> str:
        cluster = Cluster("local", "local", (Target(data.node, expect=policy.expect),), is_part=True)
        node = nodes(cluster, {data.node: data}, HEALTH_CHECK, policy)[data.node]
        results = [verdict_on(policy, check, node) for check in checks]
        found = [
            repr((one.check, finding.verdict.value, finding.devices))
            for one in results
            for finding in one.findings
            if finding.verdict in WRITTEN
        ]
        return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()

    return of
