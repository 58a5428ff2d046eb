"""Nodes from the API server: typed, bounded, with only the fields in use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.cluster import INSTANCE_ID
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.values import entries, number, parts, table, tables, text, texts

SPLIT = "hami.io/node-nvidia-register"  # HAMi's annotation: each GPU, and how many devices it offers for it
_SPLIT_INTO = re.compile(r'GPU-[\w-]{36}"?, ?(?:"index": ?\d{1,4}, ?)?(?:"count": ?)?(\d{1,4})\b')
NODES_AT_ONCE = 100  # in a listing: each has 20 kB, and ten times as much when decoded
INSTANCE = re.compile(INSTANCE_ID)
GROUP_LABELS = (
    "sagemaker.amazonaws.com/instance-group-name",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
OF_INSTANCE_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# Labels of a node that is no machine: pods run elsewhere, and ours do not start there.
OF_VIRTUAL = {"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"}
OF_SYSTEM = ("kubernetes.io/os", "beta.kubernetes.io/os")
OF_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
OF_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


@record
class Condition:
    """One condition of a node: `status` is True, False or Unknown; `since` and `heard` in Kubernetes' time format."""

    kind: str
    status: str
    reason: str
    message: str
    since: str
    heard: str


@record
class Taint:
    """`effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@record
class Image:
    """An image on the node, with all of its names."""

    names: tuple[str, ...]
    size_bytes: int


@record
class ApiNode:
    """A node from the API server; quantities in original notation (`8`, `2Gi`)."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    conditions: tuple[Condition, ...]
    taints: tuple[Taint, ...]
    images: tuple[Image, ...]  # unless omitted
    is_cordoned: bool
    provider_id: str
    created: str
    info: Mapping[str, str]  # osImage, architecture, kernelVersion, kubeletVersion, containerRuntimeVersion, …
    split_into: str = ""  # how many devices HAMi offers as GPUs for each; empty if none, or not for all alike

    def condition(self, kind: str) -> Condition | None:
        """The condition of that name."""
        return next((condition for condition in self.conditions if condition.kind == kind), None)

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet says so."""
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def instance_type(self) -> str:
        """EC2's name of it, or another cloud's; empty without a label."""
        return _first(self.labels, OF_INSTANCE_TYPE).removeprefix("ml.")

    @property
    def without_host(self) -> str:
        """Why there is no Linux host to probe: `virtual` or `of Windows`; empty if there is one."""
        if any(self.labels.get(label) == value for label, value in OF_VIRTUAL.items()):
            return "virtual"
        system = self.info.get("operatingSystem") or _first(self.labels, OF_SYSTEM) or "linux"
        return "" if system == "linux" else f"of {system.capitalize()}"

    @property
    def group(self) -> str:
        """Its instance group, node group or node pool."""
        return _first(self.labels, GROUP_LABELS)

    @property
    def zone(self) -> str:
        """Its availability zone."""
        return _first(self.labels, OF_ZONE)

    @property
    def region(self) -> str:
        """Its region."""
        return _first(self.labels, OF_REGION)

    @property
    def instance_id(self) -> str:
        """EC2's id, from `aws:///us-west-2a/i-…`; for a HyperPod node the one in its name. Otherwise empty."""
        last = self.provider_id.rpartition("/")[2] if self.provider_id.startswith("aws:") else ""
        ids = (word for word in (last, self.name.removeprefix("hyperpod-")) if INSTANCE.fullmatch(word))
        return next(ids, "")


def nodes(api: Api, selector: str = "", name: str = "", with_images: bool = True) -> list[ApiNode]:
    """The nodes with these labels, with that name, or all. Raises KubernetesError."""
    query: dict[str, object] = {"limit": NODES_AT_ONCE, **({"labelSelector": selector} if selector else {})}
    if name:
        query["fieldSelector"] = f"metadata.name={name}"
    return [node_of(resource, with_images) for resource in api.listed("/api/v1/nodes", **query)]


def node_of(resource: object, with_images: bool = True) -> ApiNode:
    """Parse a node; malformed values are treated as missing. Its images, up to 50, are most of its data."""
    metadata, spec, status = parts(resource)
    return ApiNode(
        name=text(metadata.get("name")),
        labels=texts(metadata.get("labels")),
        capacity=texts(status.get("capacity")),
        allocatable=texts(status.get("allocatable")),
        conditions=tuple(map(_condition, tables(status.get("conditions")))),
        taints=tuple(
            Taint(*(text(taint.get(key)) for key in ("key", "value", "effect"))) for taint in tables(spec.get("taints"))
        ),
        images=tuple(
            Image(tuple(map(text, entries(image.get("names")))), number(image.get("sizeBytes")))
            for image in (tables(status.get("images")) if with_images else ())
        ),
        is_cordoned=spec.get("unschedulable") is True,
        provider_id=text(spec.get("providerID")),
        created=text(metadata.get("creationTimestamp")),
        info=texts(status.get("nodeInfo")),
        split_into=_split_into(
            table(metadata.get("annotations")).get(SPLIT), text(table(status.get("capacity")).get("nvidia.com/gpu"))
        ),
    )


def _split_into(annotation: object, offered: str) -> str:
    """The annotation outlives HAMi, whose devices may also have another name: it counts only if more are offered."""
    counts = _SPLIT_INTO.findall(annotation) if isinstance(annotation, str) else []
    is_split = offered.isdecimal() and int(offered) > len(counts)
    return counts[0] if is_split and len(set(counts)) == 1 else ""


def _condition(resource: Mapping[str, object]) -> Condition:
    return Condition(
        kind=text(resource.get("type")),
        status=text(resource.get("status")),
        reason=text(resource.get("reason")),
        message=text(resource.get("message")),
        since=text(resource.get("lastTransitionTime")),
        heard=text(resource.get("lastHeartbeatTime")),
    )


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
