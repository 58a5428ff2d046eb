"""Results of checks on the nodes of a cluster, as its control plane reports them."""

from __future__ import annotations

from collections import defaultdict

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation import evaluate
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts_cluster import NodeOfCluster


def of_each(check: Check, facts: ClusterFacts) -> dict[str, Result]:
    """The result of a check on each node."""
    return {name: evaluate.evaluate(check, NodeOfCluster(node, facts)) for name, node in facts.nodes.items()}


def worst(check: Check, facts: ClusterFacts) -> Result:
    """A check's worst result on any node, with all messages by node; or its result on the cluster."""
    if not check.is_of_member:
        return evaluate.evaluate(check, facts)
    results = sorted(of_each(check, facts).values(), key=lambda result: result.verdict.rank)
    messages: dict[str, list[str]] = defaultdict(list)
    for result in results:
        for line in filter(None, result.message.split("\n")):
            messages[line].append(result.node)
    return replace(results[0], message="\n".join(f"{fold(names)}: {line}" for line, names in messages.items()))
