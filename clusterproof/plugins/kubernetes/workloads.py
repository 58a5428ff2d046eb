"""Pods as the API server has them: typed, bounded, and only what somebody reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.values import number, parts, table, tables, text, texts


@record
class Container:
    """One container of a pod; `waiting` and `ended` are the runtime's reasons, empty where it is neither."""

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
    """A pod; `deleted` is since when it is being deleted, `owner` who made it (`DaemonSet/kube-proxy`)."""

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
    disruption: str  # who ends it and why, where that is known: the message of DisruptionTarget
    scheduled: str  # why it is not, where it is not: the message of PodScheduled
    is_ready: bool = False
    ready: str = ""  # since when it is or is not, as Kubernetes writes times
    controller: str = ""  # the uid of the object that made it, and removes it
    hostname: str = ""  # what its programs take for their host's; empty where that is the node's


def pods(api: Api, namespace: str = "", node: str = "", selector: str = "") -> list[Pod]:
    """The pods of a namespace, of a node, with these labels; empty is any. Raises KubernetesError."""
    query = {"labelSelector": selector} if selector else {}
    if node:
        query["fieldSelector"] = f"spec.nodeName={node}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return [pod_of(data) for data in api.listed(f"/api/v1{where}/pods", **query)]


def pod_of(data: object) -> Pod:
    """A pod out of the API's JSON."""
    metadata, spec, status = parts(data)
    states = {text(one.get("name")): one for one in tables(status.get("containerStatuses"))}
    owner = next(iter(tables(metadata.get("ownerReferences"))), {})
    controls = (one for one in tables(metadata.get("ownerReferences")) if one.get("controller") is True)
    conditions = {text(one.get("type")): one for one in tables(status.get("conditions"))}
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
            _container(one, states.get(text(one.get("name")), {})) for one in tables(spec.get("containers"))
        ),
        disruption=text(disruption.get("message")),
        scheduled=text(scheduled.get("message")) if scheduled.get("status") == "False" else "",
        is_ready=ready.get("status") == "True",
        ready=text(ready.get("lastTransitionTime")),
        controller=text(next(controls, {}).get("uid")),
        hostname="" if spec.get("hostNetwork") is True else _hostname(metadata, spec),
    )


def _hostname(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """As the kubelet makes it of what is written there."""
    return text(spec.get("hostname")) or text(metadata.get("name"))[:63].rstrip("-.")


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
        waiting_message=text(waiting.get("message")),
        ended=(text(ended.get("reason")) or "Ended") if ended else "",
        ended_message=text(ended.get("message")),
        exit_code=number(ended.get("exitCode")) if ended else None,
    )
