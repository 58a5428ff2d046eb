"""What nodes report under load in a test, and a check's result on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes


def ran(output: str, status: int | None = 0, command: str = "x") -> dict[str, Any]:
    """One run of a program."""
    return {"command": command, "exit": status, "output": output}


def evaluated(
    check: str,
    collector: str,
    values: Mapping[str, object],
    instance_type: str = "p5.48xlarge",
    name: str = "gpu001",
    policy: Policy = NO_POLICY,
) -> Result:
    """A check's result on one of these nodes, each of which reported its value."""
    cluster = Cluster("c", "local", tuple(Target(node, instance_type=instance_type) for node in values))
    data = {node: NodeEvidence(node, {collector: Collected(Status.READ, value)}) for node, value in values.items()}
    return evaluate(all_checks()[check], nodes(cluster, data, "perf", policy)[name])
