"""Pods as Kubernetes has them, and devices that it gives by claims, typed."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, flag, objects, optional, text, texts, whole
from clusterproof.plugins.evidence.kubernetes.facts import age_s

STUCK = (  # for which a container waits that does not start by itself
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


@record
class WaitingContainer(Reported):
    """A container of a pod that is not ready: its reason and message, empty where it runs."""

    name = Field(text, "container")
    reason = Field(text)
    message = Field(text)
    restarts = Field(whole)

    @property
    def in_words(self) -> str:
        """`plugin: CrashLoopBackOff (back-off 5m0s restarting), 12 restarts`."""
        why = f": {self.reason}" if self.reason else " is not ready"
        more = f" ({self.message[:200]})" if self.message else ""
        return f"{self.name}{why}{more}" + (f", {self.restarts} restarts" if self.restarts else "")


def _containers(data: object) -> tuple[WaitingContainer, ...]:
    return tuple(map(WaitingContainer, objects(data)))


@record
class KubernetesPod(Reported):
    """One pod that has not ended, on a node that is validated or waiting for a node with accelerators."""

    asked_at: float  # seconds since 1970

    namespace = Field(text)
    pod = Field(text, "name")
    uid = Field(text)
    node = Field(text)  # empty where it waits for one
    phase = Field(text)
    owner = Field(text)  # `DaemonSet/kube-proxy`
    role = Field(text)  # the row of its daemon set in the catalogue; empty where it is of none that matters
    created = Field(text)
    deleted = Field(text)  # when its time to end is over; empty where it is not being deleted
    is_ready = Field(flag, "ready")
    unready = Field(_containers)
    gpus = Field(whole)  # that its containers ask for together
    most_gpus = Field(whole)  # … and the one that asks for most
    accelerators = Field(whole)  # GPUs, parts of them, Neuron devices and cores
    shm = Field(text)  # what is at /dev/shm of the container with most GPUs: `memory`, `host`, another; empty: 64 MiB
    waits_for = Field(text)  # why no node takes it
    claims = Field(whole)  # of devices, by DRA
    volume_claims = Field(texts)  # their names, in its namespace
    gates = Field(whole)  # that keep it from being scheduled

    @property
    def name(self) -> str:
        """`training/worker-0`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def daemon_set(self) -> str:
        """The daemon set that it is of; empty where it is of none. Raises Incomplete."""
        kind, _, name = self.owner.partition("/")
        return name if kind == "DaemonSet" else ""

    @property
    def age_s(self) -> float:
        """How long it has been there. Raises Incomplete."""
        return age_s(self.created, self.asked_at)

    @property
    def overdue_s(self) -> float:
        """For how long it should have been gone; negative while it has time. Raises Incomplete.

        Kubernetes writes into `deletionTimestamp` when its time is over, not when that began.
        """
        return age_s(self.deleted, self.asked_at)


@record
class ResourceSlice(Reported):
    """Devices that a driver of DRA offers on a node; `kinds` counts them by the attribute `type`, where it has one."""

    driver = Field(text)
    node = Field(text)
    pool = Field(text)
    generation = Field(whole)
    devices = Field(whole)
    gpus = Field(optional(whole))  # of the type `gpu`, where its driver reports types
