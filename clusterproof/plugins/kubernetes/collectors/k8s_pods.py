"""Pods that have not ended: those on the cluster's nodes, and those waiting for accelerators or with device claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.catalog.kubernetes import role_of
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.pods import ENDED, Container, Pod, pod_of, waiting_message
from clusterproof.plugins.kubernetes.values import number, parts, table, tables, text

NOT_ENDED = ",".join(f"status.phase!={phase}" for phase in ENDED)
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
ACCELERATORS = (*GPUS, "nvidia.com/mig-", "aws.amazon.com/neuron")
MAX_PODS = 50_000  # on the nodes
MAX_WAITING = 10_000  # a user's Job alone can make more: they displace none on a node
MAX_UNREADY = 8  # containers of one pod
MAX_CLAIMS = 64  # volume claims of one pod
DEV_SHM = "/dev/shm"


def read(api: Api, names: frozenset[str]) -> object:
    """The pods on these nodes and those that wait. Raises KubernetesError."""
    on_nodes: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    waiting_left_out = 0
    for resource in api.listed("/api/v1/pods", fieldSelector=NOT_ENDED):
        pod = pod_of(resource)
        wanted = _requested(pod)
        has_devices = bool(wanted["accelerators"] or pod.claims)
        if not pod.node and len(waiting) == MAX_WAITING:
            waiting_left_out += has_devices
        elif pod.node in names or (not pod.node and has_devices):
            entry = {**_entry(pod, resource), **wanted, "shm": _shm(pod, resource)}
            (on_nodes if pod.node else waiting).append(entry)
        if len(on_nodes) == MAX_PODS:
            break
    return {
        "asked_at": api.now(),
        "pods": on_nodes + waiting,
        "is_cut": len(on_nodes) == MAX_PODS,
        "waiting_left_out": waiting_left_out,
    }


def _entry(pod: Pod, resource: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec, status = parts(resource)
    unready = [] if pod.is_ready else [*_unready(tables(status.get("initContainerStatuses"))), *_of(pod)]
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": text(metadata.get("uid")),
        "node": pod.node,
        "phase": pod.phase,
        "owner": pod.owner,
        "role": role_of(pod.namespace, pod.owner.partition("/")[2]) if pod.owner.startswith("DaemonSet/") else "",
        "created": pod.created,
        "deleted": pod.deleted,
        "ready": pod.is_ready,
        "unready": unready[:MAX_UNREADY],
        "waits_for": pod.scheduled,
        "gates": len(tables(spec.get("schedulingGates"))),
        "claims": pod.claims,
        "volume_claims": list(_volume_claims(pod.name, tables(spec.get("volumes"))))[:MAX_CLAIMS],
    }


def _volume_claims(pod: str, volumes: list[Mapping[str, Any]]) -> Iterator[str]:
    """The claims that it names, and its ephemeral ones."""
    for volume in volumes:
        if "persistentVolumeClaim" in volume:
            yield text(table(volume["persistentVolumeClaim"]).get("claimName"))
        elif "ephemeral" in volume:
            yield f"{pod}-{text(volume.get('name'))}"


def _of(pod: Pod) -> Iterator[dict[str, Any]]:
    for container in pod.containers:
        if not container.is_ready:
            why = container.waiting or container.ended
            yield _waiting(
                container.name, why, container.waiting_message or container.ended_message, container.restarts
            )


def _unready(states: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Init containers that have not succeeded yet."""
    for state in states:
        now = table(state.get("state"))
        ended, waiting = table(now.get("terminated")), table(now.get("waiting"))
        is_done = ended.get("exitCode") == 0 or state.get("ready") is True or waiting.get("reason") == "PodInitializing"
        if not is_done:
            reason, message = (waiting or ended).get("reason"), waiting_message(state) or text(ended.get("message"))
            yield _waiting(text(state.get("name")), text(reason), message, number(state.get("restartCount")))


def _waiting(name: str, reason: str, message: str, restarts: int) -> dict[str, Any]:
    return {"container": name, "reason": reason, "message": message, "restarts": restarts}


def _requested(pod: Pod) -> dict[str, int]:
    gpus, accelerators = (
        sum(count for name, count in pod.devices.items() if name.startswith(kinds)) for kinds in (GPUS, ACCELERATORS)
    )
    most_gpus = max((_amount(container, GPUS) for container in pod.containers), default=0)
    return {"gpus": gpus, "most_gpus": most_gpus, "accelerators": accelerators}


def _amount(container: Container, resources: tuple[str, ...]) -> int:
    """Requests and limits are equal for such resources; one of them may be omitted."""
    amounts = {**container.limits, **container.requests}
    return sum(int(amount) for name, amount in amounts.items() if name.startswith(resources) and amount.isdecimal())


def _shm(pod: Pod, resource: Mapping[str, Any]) -> str:
    """The /dev/shm of the container that requests most GPUs; empty: the runtime's default of 64 MiB."""
    _, spec, _ = parts(resource)
    if spec.get("hostIPC") is True:
        return "host"
    largest = max(pod.containers, key=lambda container: _amount(container, GPUS), default=None)
    containers = (entry for entry in tables(spec.get("containers")) if largest and entry.get("name") == largest.name)
    mounts = tables(next(containers, {}).get("volumeMounts"))
    mounted = next((mount for mount in mounts if text(mount.get("mountPath")).rstrip("/") == DEV_SHM), {})
    volume = next(
        (entry for entry in tables(spec.get("volumes")) if mounted and entry.get("name") == mounted.get("name")), {}
    )
    if not volume:
        return ""
    if table(volume.get("hostPath")).get("path") == DEV_SHM:
        return "host"
    return "memory" if table(volume.get("emptyDir")).get("medium") == "Memory" else "disk"
