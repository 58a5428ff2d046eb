"""Results of the Kubernetes checks on the nodes of a capture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.captures.several import control_plane
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from tests.builders.members import of_each

READY, TAKES, GPUS, EFA = (
    f"k8s_{name}" for name in ("node_ready", "node_takes_pods", "gpu_allocatable", "efa_allocatable")
)
HEALTH = "hyperpod_node_health"


def results(path: Path) -> Mapping[str, Mapping[str, Result]]:
    """The result of each Kubernetes check on each node of a capture."""
    cluster = resolve(f"capture:{path}")
    captured = read_capture(path, cluster, collector_names())
    known = nodes(cluster, {capture.evidence.node: capture.evidence for capture in captured})
    evidence = control_plane(cluster.name, {capture.evidence.node: capture.in_kubernetes for capture in captured})
    facts = ClusterFacts(cluster, evidence, known)
    return {name: of_each(all_checks()[f"control_plane.{name}"], facts) for name in (READY, TAKES, GPUS, EFA, HEALTH)}
