"""Typed facts on pods, devices and volume claims in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import CollectorData
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    objects_as,
    optional,
    text,
    texts,
)
from clusterproof.plugins.evidence.kubernetes.facts import age_s

STUCK = (  # reasons for which a container waits that will not start by itself
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
BOUND, LOST = "Bound", "Lost"
BY_HAND = "kubernetes.io/no-provisioner"  # the provisioner of a class whose volumes are created by hand


@record
class WaitingContainer(Reported):
    """A container of a pod that is not ready, with its reason and message; both empty if it runs."""

    name = Field(text, "container")
    reason = Field(text)
    message = Field(text)
    restarts = Field(integer)

    @property
    def description(self) -> str:
        """`plugin: CrashLoopBackOff (back-off 5m0s restarting), 12 restarts`."""
        why = f": {self.reason}" if self.reason else " is not ready"
        more = f" ({self.message[:200]})" if self.message else ""
        return f"{self.name}{why}{more}" + (f", {self.restarts} restarts" if self.restarts else "")


@record
class KubernetesPod(Reported):
    """A pod that has not ended, on a checked node or waiting for a node with accelerators."""

    asked_at: float  # seconds since 1970

    namespace = Field(text)
    pod = Field(text, "name")
    uid = Field(text)
    node = Field(text)  # empty if it waits for a node
    phase = Field(text)
    owner = Field(text)  # `DaemonSet/kube-proxy`
    role = Field(text)  # the row of its daemon set in the catalogue; empty if it belongs to none that is listed there
    created = Field(text)
    deleted = Field(text)  # when its time to end is over; empty where it is not being deleted
    is_ready = Field(boolean, "ready")
    unready = Field(objects_as(WaitingContainer))
    gpus = Field(integer)  # that its containers ask for together
    most_gpus = Field(integer)  # … and the one that asks for most
    accelerators = Field(integer)  # GPUs, parts of them, Neuron devices and cores
    shm = Field(text)  # what is at /dev/shm of the container with most GPUs: `memory`, `host`, another; empty: 64 MiB
    waits_for = Field(text)  # why no node takes it
    claims = Field(integer)  # of devices, by DRA
    volume_claims = Field(texts)  # their names, in its namespace
    gates = Field(integer)  # that keep it from being scheduled

    @property
    def name(self) -> str:
        """`training/worker-0`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def devices(self) -> str:
        """What it asks for: `8 accelerators`, or `1 resource claim`; empty if neither. Raises Incomplete."""
        wanted = ((self.accelerators, "accelerator"), (self.claims, "resource claim"))
        return next((number_of(count, what) for count, what in wanted if count), "")

    @property
    def daemon_set(self) -> str:
        """The daemon set that it belongs to; empty if none. Raises Incomplete."""
        kind, _, name = self.owner.partition("/")
        return name if kind == "DaemonSet" else ""

    @property
    def age_s(self) -> float:
        """How long the pod has existed. Raises Incomplete."""
        return age_s(self.created, self.asked_at)

    @property
    def overdue_s(self) -> float:
        """How long ago the pod should have been gone; negative during its grace period. Raises Incomplete.

        Kubernetes writes the end of the grace period into `deletionTimestamp`, not its beginning.
        """
        return age_s(self.deleted, self.asked_at)


@record
class ResourceSlice(Reported):
    """Devices that a DRA driver offers on a node; `kinds` counts them by their attribute `type`, if they have one."""

    driver = Field(text)
    node = Field(text)
    pool = Field(text)
    generation = Field(integer)
    devices = Field(integer)
    gpus = Field(optional(integer))  # of the type `gpu`, where its driver reports types
    _tainted = Field(optional(texts), "tainted")  # None in older recordings

    @property
    def tainted(self) -> list[str]:
        """The devices that claims do not get, each with its taint. Raises Incomplete."""
        return list(self._tainted or ())


@record
class StorageClass(Reported):
    """A storage class: its provisioner, and whether volumes are only created once a pod is scheduled."""

    name = Field(text)
    provisioner = Field(text)
    waits_for_pods = Field(boolean)


@record
class VolumeClaim(Reported):
    """A claim: its class (empty: none), its volume (empty: none), and that volume's CSI driver."""

    namespace = Field(text)
    claim = Field(text, "name")
    phase = Field(text)
    of_class = Field(text, "class")
    created = Field(text)
    volume = Field(text)
    driver = Field(text)
    is_selected = Field(boolean, "selected")  # whether the scheduler has chosen a node for the pod that wants it

    @property
    def name(self) -> str:
        """`train/data`."""
        return f"{self.namespace}/{self.claim}"


@record
class DriversOfNode(Reported):
    """The CSI drivers that are registered with a node's kubelet."""

    name = Field(text)
    drivers = Field(texts)


@record
class KubernetesStorage:
    """Storage for a cluster's claims: `claims` by namespace and name, `drivers` by node, `classes` by name.

    Users make claims: if there are too many, `is_cut`, and some of them and of their volumes were not read.
    """

    claims: Mapping[str, VolumeClaim]
    drivers: Mapping[str, frozenset[str]]
    classes: Mapping[str, StorageClass]
    is_cut: bool = False

    def require_all_claims(self) -> None:
        """Raises Incomplete if not all were read."""
        if self.is_cut:
            raise Incomplete("there are more volumes than were read", cause="there are more volumes than were read")

    def age_s(self, name: str, now: float) -> float:
        """How long a claim has existed; infinite where that is unknown. Raises Incomplete."""
        claim = self.claims.get(name)
        return age_s(claim.created, now) if claim else inf

    def why_unbound(self, name: str) -> str:
        """Why a claim has no volume; empty if it has one, or gets one only when its pod has a node.

        Raises Incomplete.
        """
        claim = self.claims.get(name)
        if claim is None:
            return "" if self.is_cut else "there is no such claim"
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


def storage_of(storage: CollectorData) -> KubernetesStorage:
    """What the collector returned. Raises Incomplete."""
    return KubernetesStorage(
        {claim.name: claim for claim in storage.get("claims", objects_as(VolumeClaim))},
        {node.name: frozenset(node.drivers) for node in storage.get("nodes", objects_as(DriversOfNode))},
        {storage_class.name: storage_class for storage_class in storage.get("classes", objects_as(StorageClass))},
        storage.get("is_cut", boolean),
    )
