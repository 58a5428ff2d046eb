"""Volume claims, storage classes and the CSI drivers of nodes as Kubernetes has them, typed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import CollectorData
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, text, texts
from clusterproof.plugins.evidence.kubernetes.facts import age_s

BOUND, LOST = "Bound", "Lost"
BY_HAND = "kubernetes.io/no-provisioner"  # the provisioner of a class whose volumes somebody makes


@record
class StorageClass(Reported):
    """A storage class: who makes its volumes, and whether only once a pod that wants one has a node."""

    name = Field(text)
    provisioner = Field(text)
    waits_for_pods = Field(flag)


@record
class VolumeClaim(Reported):
    """A claim: of which class (empty: of none), its volume (empty: it has none), and that volume's CSI driver."""

    namespace = Field(text)
    claim = Field(text, "name")
    phase = Field(text)
    of_class = Field(text, "class")
    created = Field(text)
    volume = Field(text)
    driver = Field(text)
    is_selected = Field(flag, "selected")  # whether the scheduler has chosen a node for the pod that wants it

    @property
    def name(self) -> str:
        """`train/data`."""
        return f"{self.namespace}/{self.claim}"


@record
class DriversOfNode(Reported):
    """The CSI drivers that have registered with a node's kubelet."""

    name = Field(text)
    drivers = Field(texts)


@record
class KubernetesStorage:
    """What serves the claims of a cluster: `claims` by namespace and name, `drivers` by node, `classes` by name."""

    claims: Mapping[str, VolumeClaim]
    drivers: Mapping[str, frozenset[str]]
    classes: Mapping[str, StorageClass]

    def age_s(self, name: str, now: float) -> float:
        """How long a claim has existed; infinite where that is unknown. Raises Incomplete."""
        claim = self.claims.get(name)
        return age_s(claim.created, now) if claim else inf

    def why_unbound(self, name: str) -> str:
        """Why a claim has no volume; empty where it has one, or none is due before its pod has a node.

        Raises Incomplete.
        """
        claim = self.claims.get(name)
        if claim is None:
            return "there is no such claim"
        if claim.phase == BOUND:
            return ""
        if claim.phase == LOST:
            return f"its volume {claim.volume} is gone"
        if claim.volume:
            return f"the volume {claim.volume} that it names is not there, or is another's"
        made_by = self.classes.get(claim.of_class)
        if made_by is None:
            lacking = f"there is no storage class {claim.of_class}" if claim.of_class else "it names no storage class"
            return f"no volume fits it, and {lacking}"
        if made_by.waits_for_pods and not claim.is_selected:
            return ""
        if made_by.provisioner == BY_HAND:
            return "no volume fits it"
        return f"{made_by.provisioner}, of storage class {made_by.name}, has made no volume"


def storage_of(data: CollectorData) -> KubernetesStorage:
    """What the collector returned. Raises Incomplete."""
    if data.get("is_cut", flag):
        raise Incomplete("there are more volumes than were read", cause="there are more volumes than were read")
    return KubernetesStorage(
        {claim.name: claim for claim in data.get("claims", every(VolumeClaim))},
        {node.name: frozenset(node.drivers) for node in data.get("nodes", every(DriversOfNode))},
        {one.name: one for one in data.get("classes", every(StorageClass))},
    )
