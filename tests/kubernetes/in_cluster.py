"""The gate's own pods on a real kubelet: from its manifests, with this machine's Python and suite as the image."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.builders.runs import ROOT
from tests.kubernetes.gate import ACCOUNT, AGENT, GateBed
from tests.testbed.kubernetes.bed import NAMESPACE
from tests.testbed.kubernetes.control_plane import scheduler
from tests.testbed.kubernetes.machine import KUBE_PROXY
from tests.testbed.kubernetes.processes import wait_until

APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATHS = {AGENT: f"{APPS}/daemonsets/{AGENT}", ACCOUNT: f"{APPS}/deployments/{ACCOUNT}"}
COMMAND = Path(sys.executable).parent / "clusterproof"
HOST = dict.fromkeys(("/bin", "/sbin", "/lib", "/lib64", "/usr", sys.base_prefix, str(ROOT)))  # a Python and the suite


@contextlib.contextmanager
def running(gate: GateBed, every_s: int, *names: str) -> Iterator[None]:
    """Run the manifests' objects of these names with a real scheduler, and remove them."""
    call = gate.bed.plane.call
    with scheduler(gate.bed.plane), contextlib.ExitStack() as stack:
        for name in names:
            before = call("GET", PATHS[name])
            stack.callback(_replace, gate, name, before["spec"])
            _replace(gate, name, _here(gate, before["spec"], every_s))
        try:
            wait_until(lambda: [pod["status"]["phase"] for pod in pods(gate)] == ["Running"] * len(names), "running")
            yield
        finally:
            stack.close()
            wait_until(lambda: not gate.left(), "gone")


def pods(gate: GateBed) -> list[dict[str, Any]]:
    """The gate's pods that have a node."""
    every = gate.bed.plane.items(f"{PODS}?labelSelector=app.kubernetes.io/component")
    return [pod for pod in every if pod["spec"].get("nodeName")]


def _replace(gate: GateBed, name: str, spec: dict[str, Any]) -> None:
    now = gate.bed.plane.call("GET", PATHS[name])
    gate.bed.plane.call("PUT", PATHS[name], {**now, "spec": spec})


def _here(gate: GateBed, spec: dict[str, Any], every_s: int) -> dict[str, Any]:
    """The same pod on this machine, with further programs."""
    spec = json.loads(json.dumps(spec))
    pod = on_this_machine(spec["template"]["spec"], gate.bed.plane.port)
    (container,) = pod["containers"]
    container["resources"]["requests"] = {"cpu": "800m"}  # the rest is for other tests and users of this machine
    container["env"].append({"name": "EVERY", "value": str(every_s)})
    return {**spec, **({"replicas": 1} if "replicas" in spec else {})}


def on_this_machine(pod: dict[str, Any], port: int) -> dict[str, Any]:
    """A pod on the node's network with this machine as its image; the API server is on `port`."""
    pod |= {"hostNetwork": True, "dnsPolicy": "Default", "nodeSelector": {}}
    pod["tolerations"] = [{"operator": "Exists"}]  # no cloud has initialised this node
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        container["image"] = KUBE_PROXY
        container["env"] = [
            *container.get("env", ()),
            {"name": "PATH", "value": f"{COMMAND.parent}:/usr/sbin:/usr/bin:/sbin:/bin"},
            {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},  # there is no kube-proxy
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(port)},
        ]
    for number, folder in enumerate(filter(os.path.isdir, HOST)):
        pod.setdefault("volumes", []).append({"name": f"host-{number}", "hostPath": {"path": folder}})
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            mounts = container.setdefault("volumeMounts", [])
            mounts.append({"name": f"host-{number}", "mountPath": folder, "readOnly": True})
    return pod
