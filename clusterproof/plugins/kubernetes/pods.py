"""Pods from the API server: typed, bounded, with only the fields in use."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.kubernetes import decoded
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.values import entries, number, parts, quantity, table, tables, text, texts

ENDED = ("Succeeded", "Failed")  # phases of a pod


@record
class Container:
    """One container of a pod; `waiting` and `ended` are the runtime's reasons, else empty."""

    name: str
    image: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    is_ready: bool
    is_running: bool
    restarts: int
    waiting: str
    waiting_message: str
    ended: str
    ended_message: str
    exit_code: int | None


@record
class Pod:
    """A pod; `deleted` is since when it is being deleted, `owner` its creator (`DaemonSet/kube-proxy`)."""

    namespace: str
    name: str
    node: str
    phase: str
    reason: str
    message: str
    created: str
    deleted: str
    owner: str
    labels: Mapping[str, str]
    containers: tuple[Container, ...]
    disruption: str  # who ends it and why, if known: the message of DisruptionTarget
    scheduled: str  # why it is not scheduled: the message of PodScheduled
    is_ready: bool = False
    ready: str = ""  # since when it is or is not ready, in Kubernetes' time format
    controller: str = ""  # the uid of the object that created it, and removes it
    hostname: str = ""  # the host name in its programs; empty if that is the node's
    meant: str = ""  # for a DaemonSet's pod: its intended node, even before it is scheduled
    devices: Mapping[str, int] = field(default_factory=dict)  # held by all of its containers together, by resource
    claims: int = 0  # of devices, by Dynamic Resource Allocation

    @property
    def has_ended(self) -> bool:
        """Whether none of it runs any more: it holds nothing of its node."""
        return self.phase in ENDED

    def container(self, name: str) -> Container | None:
        """The container of that name: webhooks add others."""
        return next((container for container in self.containers if container.name == name), None)


def pods(api: Api, namespace: str = "", node: str = "", selector: str = "") -> list[Pod]:
    """The pods of a namespace or node with these labels; empty means any. Raises KubernetesError."""
    query = {"labelSelector": selector} if selector else {}
    if node:
        query["fieldSelector"] = f"spec.nodeName={node}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return [pod_of(resource) for resource in api.listed(f"/api/v1{where}/pods", **query)]


ITEMS = b'"items":['  # of a listing: its objects follow, and its continuation precedes


class PodPages:
    """Lists pods repeatedly: pages whose bytes are unchanged are not decoded again."""

    def __init__(self) -> None:
        self._before: Mapping[bytes, list[Pod]] = {}

    def listed(self, api: Api, namespace: str, selector: str) -> list[Pod]:
        """The current pods of a namespace with these labels. Raises KubernetesError."""
        now: dict[bytes, list[Pod]] = {}

        def read(content: bytes) -> Mapping[str, Any]:
            head, separator, items = content.partition(ITEMS)
            digest = hashlib.sha256(items).digest()
            is_known = bool(separator) and b'"metadata":' in head and digest in self._before
            page = decoded(head + ITEMS + b"]}" if is_known else content)
            now[digest] = self._before[digest] if is_known else list(map(pod_of, page.get("items") or ()))
            return {**page, "items": now[digest]}

        pages = api.pages(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector}, read)
        listed = [pod for page in pages for pod in page["items"]]
        self._before = now
        return listed


def pod_of(resource: object) -> Pod:
    """Parse a pod."""
    metadata, spec, status = parts(resource)
    states = {text(container.get("name")): container for container in tables(status.get("containerStatuses"))}
    references = tables(metadata.get("ownerReferences"))
    owner = next(iter(references), {})
    controls = (reference for reference in references if reference.get("controller") is True)
    conditions = {text(condition.get("type")): condition for condition in tables(status.get("conditions"))}
    ready = conditions.get("Ready", {})
    scheduled, disruption = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    return Pod(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        node=text(spec.get("nodeName")),
        phase=text(status.get("phase")),
        reason=text(status.get("reason")),
        message=text(status.get("message")),
        created=text(metadata.get("creationTimestamp")),
        deleted=text(metadata.get("deletionTimestamp")),
        owner=f"{text(owner.get('kind'))}/{text(owner.get('name'))}" if owner else "",
        labels=texts(metadata.get("labels")),
        containers=tuple(
            _container(container, states.get(text(container.get("name")), {}))
            for container in tables(spec.get("containers"))
        ),
        disruption=text(disruption.get("message")),
        scheduled=text(scheduled.get("message")) if scheduled.get("status") == "False" else "",
        is_ready=ready.get("status") == "True",
        ready=text(ready.get("lastTransitionTime")),
        controller=text(next(controls, {}).get("uid")),
        hostname="" if spec.get("hostNetwork") is True else _hostname(metadata, spec),
        meant=_target_node(spec),
        devices=held_devices(spec),
        claims=len(tables(spec.get("resourceClaims"))),
    )


def _target_node(spec: Mapping[str, Any]) -> str:
    """The node that the DaemonSet controller tells the scheduler."""
    affinity = table(table(spec.get("affinity")).get("nodeAffinity"))
    required = table(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    fields = [field for term in tables(required.get("nodeSelectorTerms")) for field in tables(term.get("matchFields"))]
    named = (entries(field.get("values")) for field in fields if field.get("key") == "metadata.name")
    return text(next((name for names in named for name in names), ""))


def _hostname(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The host name that the kubelet derives from the spec."""
    return text(spec.get("hostname")) or text(metadata.get("name"))[:63].rstrip("-.")


def waiting_message(state: Mapping[str, Any]) -> str:
    """Why a container waits, behind how it ended before: `OOMKilled, exit code 137; back-off 5m0s`; else empty."""
    waiting = table(table(state.get("state")).get("waiting"))
    ended = table(table(state.get("lastState")).get("terminated")) if waiting else {}
    before = f"{text(ended.get('reason')) or 'ended'}, exit code {number(ended.get('exitCode'))}" if ended else ""
    return "; ".join(filter(None, (before, text(waiting.get("message")))))


def _container(spec: Mapping[str, Any], state: Mapping[str, Any]) -> Container:
    resources, now = table(spec.get("resources")), table(state.get("state"))
    waiting, ended = table(now.get("waiting")), table(now.get("terminated"))
    return Container(
        name=text(spec.get("name")),
        image=text(spec.get("image")),
        requests=texts(resources.get("requests")),
        limits=texts(resources.get("limits")),
        is_ready=state.get("ready") is True,
        is_running=isinstance(now.get("running"), dict),
        restarts=number(state.get("restartCount")),
        waiting=text(waiting.get("reason")),
        waiting_message=waiting_message(state),
        ended=(text(ended.get("reason")) or "Ended") if ended else "",
        ended_message=text(ended.get("message")),
        exit_code=number(ended.get("exitCode")) if ended else None,
    )


def held_devices(spec: Mapping[str, Any]) -> Mapping[str, int]:
    """The devices of a pod by resource, as the scheduler counts them.

    Sidecars run beside its containers, other init containers one after the other before them.
    """
    together: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in tables(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            together += _requested(container)
        else:
            most |= together + _requested(container)
    for container in tables(spec.get("containers")):
        together += _requested(container)
    return dict(together | most)


def _requested(container: Mapping[str, Any]) -> Counter[str]:
    """Requests and limits are equal for devices; one of them may be omitted."""
    resources = table(container.get("resources"))
    amounts = {**texts(resources.get("limits")), **texts(resources.get("requests"))}
    counts = {name: quantity(amount) for name, amount in amounts.items() if "/" in name}
    return Counter({name: count for name, count in counts.items() if isinstance(count, int)})
