"""What checks say of the nodes of a cluster, as its control plane has them."""

from __future__ import annotations

from collections import defaultdict

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.of_cluster import NodeOfCluster
from clusterproof.plugins.suite import evaluate
from clusterproof.plugins.suite.check import Check


def of_each(check: Check, facts: ClusterFacts) -> dict[str, Result]:
    """What a check says of each node."""
    return {name: evaluate.evaluate(check, NodeOfCluster(node, facts)) for name, node in facts.nodes.items()}


def worst(check: Check, facts: ClusterFacts) -> Result:
    """The worst that a check says of any node, with all that it says, by node; or what it says of the cluster."""
    if not check.is_of_member:
        return evaluate.evaluate(check, facts)
    results = sorted(of_each(check, facts).values(), key=lambda result: result.verdict.rank)
    said: dict[str, list[str]] = defaultdict(list)
    for result in results:
        for line in filter(None, result.message.split("\n")):
            said[line].append(result.node)
    return replace(results[0], message="\n".join(f"{fold(names)}: {line}" for line, names in said.items()))
