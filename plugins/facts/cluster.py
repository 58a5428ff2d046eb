"""The cluster as a whole: what AWS tells of it, and its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts.fact import list_told_as, told_as
from clusterproof.plugins.facts.hyperpod import HyperpodCluster, HyperpodNode
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.policy.model import NO_POLICY, Policy
from clusterproof.plugins.verdict import NotApplicable


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster of AWS's. A fact raises Incomplete where AWS did not tell it, NotApplicable where it has no meaning."""

    cluster: Cluster
    evidence: NodeEvidence
    nodes: Mapping[str, Node]
    policy: Policy = NO_POLICY
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.name

    @property
    def type_name(self) -> str:
        """A cluster has no instance type of its own."""
        return ""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Nor GPUs."""
        return ()

    def leaf(self, name: str) -> Leaf:
        """One leaf's answer."""
        return self.evidence.leaves.get(name) or Leaf(Status.BROKE, detail="this evidence was not gathered")

    def require_hyperpod(self) -> None:
        """Raise NotApplicable where it is no HyperPod cluster."""
        if "arn" not in self.cluster.settings:
            raise NotApplicable(f"{self.name} is no HyperPod cluster")

    hyperpod = told_as("hyperpod", HyperpodCluster)
    hyperpod_nodes = list_told_as("hyperpod", "nodes", HyperpodNode)
