"""Agents on nodes without real kubelets: pods of a DaemonSet made by the real controller, with the tests' logs."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from clusterproof.plugins.agent.sending import lines
from clusterproof.plugins.kubernetes.pods import Pod, pod_of
from clusterproof.plugins.transport.kubernetes.agents import DAEMON_SET, REPORT
from tests.kubernetes.kubelets import kubelets
from tests.kubernetes.programs import PODS
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.control_plane import ControlPlane
from tests.testbed.kubernetes.processes import wait_until

LABELS = {"app.kubernetes.io/name": "clusterproof", "app.kubernetes.io/component": "agent"}
STARTED = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"


def report(boot: str, began: float = 0.0) -> str:
    """A report as an agent prints it, with the node's boot and the time by its clock."""
    collectors = {"boot": {"status": "read", "value": {"id": boot}, "seconds": 0.1}}
    answer = json.dumps({"probe": {"uid": 0, "began": began, "seconds": 2.0}, "collectors": collectors}).encode()
    return "\n".join([f"{REPORT}:begin.", *lines(zlib.compress(answer), REPORT)]) + "\n"


def ready(since: str, status: str = "True") -> dict[str, str]:
    """The pod condition by which an agent shows whether anything changes."""
    return {"type": "Ready", "status": status, "lastTransitionTime": since}


SOON, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"


def agent(node: str, *, is_ready: bool = True, since: str = SOON, pod_alone: bool = False) -> Pod:
    """A running agent's pod; `pod_alone`: only the pod is not ready, as on a node that is gone."""
    state = {"name": "agent", "ready": is_ready or pod_alone, "state": {"running": {}}}
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}
    status = {"phase": "Running", "containerStatuses": [state], "conditions": [ready]}
    metadata = {"name": f"agent-{node}"}
    return pod_of(
        {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "agent"}]}, "status": status}
    )


def every(count: int) -> dict[str, Pod]:
    return {name: agent(name) for name in names(count)}


def names(count: int) -> list[str]:
    return [f"n{number:04d}" for number in range(count)]


@contextlib.contextmanager
def agents(bed: Bed, state: dict[str, Any], *names: str) -> Iterator[None]:
    """Nodes with an agent in this state."""
    status = {"name": "agent", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    ended = {"phase": "Running", "containerStatuses": [status], "conditions": [ready("2026-01-02T03:04:05Z")]}
    with (
        kubelets(bed, list(names), ended),
        daemon_set(bed.plane, {"many": "yes"}, names),
    ):
        wait_until(
            lambda: all("containerStatuses" in agent_pod["status"] for agent_pod in bed.plane.items(PODS)), "running"
        )
        yield


@contextlib.contextmanager
def daemon_set(plane: ControlPlane, chosen: dict[str, str], names: Sequence[str]) -> Iterator[None]:
    """The agents' DaemonSet on named nodes with these labels; its pods are bound as by a scheduler."""
    pod = {"nodeSelector": chosen, "tolerations": [{"operator": "Exists"}]}
    pod["containers"] = [{"name": "agent", "image": "x"}]
    spec = {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": pod}}
    plane.call("POST", DAEMON_SETS, {"metadata": {"name": DAEMON_SET}, "spec": spec})
    try:
        wait_until(lambda: len(plane.items(PODS)) == len(names), "made")
        for daemon_pod in plane.items(PODS):
            name, node = daemon_pod["metadata"]["name"], _chosen_node(daemon_pod)
            binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
            plane.call("POST", f"{PODS}/{name}/binding", binding)
        yield
    finally:
        plane.call("DELETE", f"{DAEMON_SETS}/{DAEMON_SET}")
        wait_until(lambda: _is_gone(plane), "gone")


def _chosen_node(pod: dict[str, Any]) -> str:
    """The node that the controller has made a pod for."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _is_gone(plane: ControlPlane) -> bool:
    plane.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
    return not plane.items(PODS)
