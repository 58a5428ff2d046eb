"""Nodes and pods that exist only in a real API server, and the checks' results on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.collectors import ask
from tests.builders.members import worst
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.control_plane import RefusedError

LAYER = "topology.k8s.aws/network-node-layer-"
P5 = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "10256Mi"}
LABELS = {
    "node.kubernetes.io/instance-type": "p5.48xlarge",
    "eks.amazonaws.com/nodegroup": "train",
    "topology.kubernetes.io/zone": "us-west-2a",
    **{f"{LAYER}{number}": f"nn-{number}" for number in (1, 2, 3)},
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}


@contextlib.contextmanager
def p5(kubernetes: Bed, *names: str, **parts: Any) -> Iterator[None]:
    """Nodes of a group, as a device plugin and a cloud controller report them."""
    with contextlib.ExitStack() as stack:
        for name in names:
            labels = {key: text for key, text in {**LABELS, **parts.get("labels", {})}.items() if text}
            stack.enter_context(kubernetes.node(name, **{"capacity": P5, **parts, "labels": labels}))
        yield


def cluster_facts(policy: Policy = NO_POLICY) -> ClusterFacts:
    """The tests' cluster as its API server shows it; no node was asked."""
    cluster = resolve("k8s:bed")
    evidence = {target.name: NodeEvidence(target.name) for target in cluster.targets}
    return ClusterFacts(cluster, NodeEvidence(cluster.name, ask(cluster, COLLECTORS)), nodes(cluster, evidence), policy)


def says(check: str, facts: ClusterFacts) -> Result:
    return worst(all_checks()[f"control_plane.{check}"], facts)


def expect(result: Result, verdict: Verdict, part: str = "") -> None:
    assert result.verdict is verdict, result.message
    assert part in result.message


def add_pod(kubernetes: Bed, name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> None:
    path = "/api/v1/namespaces/clusterproof/pods"
    containers = [{"name": "main", "image": "localhost/none:1", **spec.pop("container", {})}]
    owner = spec.pop("owner", None)
    owned = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": "1"}] if owner else []
    metadata = {"name": name, "ownerReferences": owned}
    kubernetes.plane.call("POST", path, {"metadata": metadata, "spec": {"containers": containers, **spec}})
    if status:
        kubernetes.plane.patch(f"{path}/{name}/status", {"status": status})


@contextlib.contextmanager
def pods(kubernetes: Bed, *added: tuple[str, dict[str, Any], dict[str, Any] | None]) -> Iterator[None]:
    try:
        for name, spec, status in added:
            add_pod(kubernetes, name, spec, status)
        yield
    finally:
        for name, _, _ in added:
            with contextlib.suppress(RefusedError):
                path = f"/api/v1/namespaces/clusterproof/pods/{name}?gracePeriodSeconds=0"
                kubernetes.plane.call("DELETE", path)
