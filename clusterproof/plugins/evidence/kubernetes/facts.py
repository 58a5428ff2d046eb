"""Typed facts: a node in Kubernetes, its kubelet's CPU and memory policies, and Kueue's flavors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    object_as,
    objects_as,
    read,
    table,
    text,
    texts,
)

NODES, PODS, SLICES, QUEUES = "k8s_nodes", "k8s_pods", "k8s_resource_slices", "k8s_queues"
STORAGE, DOMAINS = "k8s_storage", "k8s_compute_domains"
COLLECTORS = frozenset({NODES, PODS, SLICES, QUEUES, STORAGE, DOMAINS})
HOUR_S, MINUTE_S = 3600, 60
# The kubelet's defaults: kubelet.config.k8s.io/v1beta1, as of Kubernetes 1.34.
DEFAULTS = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}


@record
class Condition(Reported):
    """One condition of a node: `status` is True, False or Unknown."""

    kind = Field(text)
    status = Field(text)
    bad = Field(text)  # the status that means a fault
    reason = Field(text)
    message = Field(text)
    since = Field(text)
    heard = Field(text)  # empty if its writer reports no heartbeat


@record
class Taint(Reported):
    """A taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key = Field(text)
    value = Field(text)
    effect = Field(text)
    is_ours = Field(boolean, "ours")  # whether this suite's own gate set it

    @property
    def description(self) -> str:
        """As kubectl writes it: `dedicated=train:NoSchedule`."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@record
class Resources(Reported):
    """The amount of each resource that a node has or offers; a missing one is 0."""

    def of(self, name: str) -> int:
        """The number of devices or bytes of a resource, under the suite's name (`gpu`, `efa`, `hugepages_2mi`).

        Raises Incomplete.
        """
        amount = self.data.get(name)
        return 0 if amount is None else read(amount, integer, name)

    @property
    def mig(self) -> Mapping[str, int]:
        """Parts of GPUs by their profile, `1g.10gb`. Raises Incomplete."""
        return {name: read(amount, integer, name) for name, amount in (self.data.get("mig") or {}).items()}


@record
class KubernetesNode(Reported):
    """A node from the API server; `labels` holds the labels that the suite uses, under the suite's own names."""

    asked_at: float  # seconds since 1970

    name = Field(text)
    instance = Field(text, "instance_id")  # EC2's instance id
    group = Field(text)
    instance_type = Field(text)
    zone = Field(text)
    region = Field(text)
    created = Field(text)
    is_cordoned = Field(boolean, "cordoned")
    conditions = Field(objects_as(Condition))
    taints = Field(objects_as(Taint))
    capacity = Field(object_as(Resources))
    allocatable = Field(object_as(Resources))
    info = Field(table)  # kubelet, runtime, os, kernel, architecture
    labels = Field(table)
    layers = Field(texts)  # network nodes above it, the topmost first
    ultraserver = Field(text)  # or of another NVLink domain

    def condition(self, kind: str) -> Condition | None:
        """The condition with that name. Raises Incomplete."""
        return next((condition for condition in self.conditions if condition.kind == kind), None)

    def label(self, name: str) -> str:
        """A label under the suite's name; empty if the node does not have it. Raises Incomplete."""
        value = self.labels.get(name)
        return "" if value is None else read(value, text, f"label {name}")

    @property
    def group_and_type(self) -> tuple[str, str]:
        """What it has in common with the nodes that are like it: a node pool may have several instance types."""
        return self.group, self.instance_type

    @property
    def has_divided_gpus(self) -> bool:
        """Whether its GPUs are offered as MIG devices: then `gpu` does not count GPUs. Raises Incomplete."""
        is_single = self.label("mig_strategy") == "single" and "MIG" in self.label("gpu_product")
        return bool(self.capacity.mig) or is_single

    @property
    def replicas(self) -> int:
        """How many pods may share each GPU, by time-slicing or by HAMi. Raises Incomplete."""
        count = self.label("gpu_replicas")
        return int(count) if count.isdecimal() and len(count) < 5 and int(count) else 1

    @property
    def is_of_hyperpod(self) -> bool:
        """Whether this is a node of SageMaker HyperPod. Raises Incomplete."""
        return self.name.startswith("hyperpod-") or bool(self.label("hyperpod_health"))

    def age_s(self, time: str) -> float:
        """The seconds since a timestamp of Kubernetes. Raises Incomplete."""
        return age_s(time, self.asked_at)

    def describe(self, condition: Condition) -> str:
        """`Ready is False for 3 h (KubeletNotReady: no network)`. Raises Incomplete."""
        why = ": ".join(filter(None, (condition.reason, condition.message)))
        since = f" for {duration_text(self.age_s(condition.since))}" if condition.since else ""
        return f"{condition.kind} is {condition.status}{since}" + (f" ({why})" if why else "")


def age_s(time: str, now: float) -> float:
    """The seconds from `2026-11-23T01:02:03Z` until now (seconds since 1970). Raises Incomplete."""
    from datetime import datetime, timezone  # imported here, as a prolog reads no times

    try:
        at = datetime.strptime(time[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        raise Incomplete(f"the time {time!r:.40} is not understood", cause="not understood") from None
    return now - at.timestamp()


def duration_text(seconds: float) -> str:
    """`25 min`, `3 h`, `8 days`."""
    if seconds < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 48 * HOUR_S else f"{seconds / HOUR_S / 24:.0f} days"


def asked_at(record: Mapping[str, Any], where: str) -> float:
    """When the collector asked, in seconds since 1970. Raises Incomplete."""
    return read(record.get("asked_at"), number, f"{where}: asked_at")


@record
class UnlabelledLevel(Reported):
    """A topology level whose label is missing on some of a flavor's nodes; `nodes` holds the first of these."""

    level = Field(text)
    nodes = Field(texts)
    count = Field(integer)


@record
class Flavor(Reported):
    """A Kueue ResourceFlavor: its node labels, its number of nodes, and its topology (empty: none)."""

    name = Field(text)
    labels = Field(text)
    nodes = Field(integer)
    topology = Field(text)
    has_topology = Field(boolean)
    unlabelled = Field(objects_as(UnlabelledLevel))


@record
class DomainNode(Reported):
    """A node of a compute domain: its clique (empty: its driver names none), and the state of its IMEX daemon."""

    name = Field(text)
    clique = Field(text)
    status = Field(text)  # Ready or NotReady; empty from a driver that does not report it


@record
class ComputeDomain(Reported):
    """A compute domain of NVIDIA's DRA driver, and for how many nodes it waits; 0: for no particular number."""

    asked_at: float  # seconds since 1970

    namespace = Field(text)
    own_name = Field(text, "name")
    created = Field(text)
    wanted = Field(integer)
    nodes = Field(objects_as(DomainNode))

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.own_name}"

    @property
    def age_s(self) -> float:
        """For how long it has existed. Raises Incomplete."""
        return age_s(self.created, self.asked_at)


@record
class Kubelet(Reported):
    """A kubelet's policies: as configured, and for some as in force according to its state files."""

    configured = Field(table)
    changed = Field(texts)  # configuration files that are newer than the process, which has not read this version
    in_force = Field(table)

    def policy(self, key: str) -> str:
        """The policy that is in force. Raises Incomplete."""
        return self.kept(key) or self._read_at_start(key)

    def kept(self, key: str) -> str:
        """The policy in the kubelet's own state; empty if it keeps none, or the state could not be read."""
        policy = self.in_force.get(key)
        return policy if isinstance(policy, str) else ""

    def setting(self, key: str) -> str:
        """What the files and flags say now. Raises Incomplete."""
        value = self.configured.get(key)
        return DEFAULTS[key] if value is None else read(value, text, key)

    @property
    def overtaken(self) -> Iterator[tuple[str, str, str]]:
        """The policies in force that differ from the configured ones: key, in force, configured."""
        for key in DEFAULTS:
            if self.kept(key) not in ("", self.setting(key)):
                yield key, self.kept(key), self.setting(key)

    def _read_at_start(self, key: str) -> str:
        if self.changed:
            cause = "the kubelet's configuration changed after it started"
            raise Incomplete(
                f"{', '.join(self.changed)} changed after the kubelet started; expected older", cause=cause
            )
        return self.setting(key)
