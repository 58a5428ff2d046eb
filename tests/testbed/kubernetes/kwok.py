"""A thousand nodes with kwok's kubelets, which end their pods at once with the same log."""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.counterparts import installed
from tests.testbed.kubernetes.bed import grant
from tests.testbed.kubernetes.control_plane import ControlPlane, control_plane
from tests.testbed.kubernetes.processes import running, wait_until
from tests.transport.loopback import free_port

LABEL = "kwok"  # of its nodes
LINE = "x" * 72
LOG_BYTES = 20_000  # of each answer, as from a node with 8 GPUs
OLD_ETCD = "--feature-gates=WatchList=false"  # kwok watches from version 0, for which Debian's etcd would be too old
QUIET_S = 3600  # nothing renews its nodes' leases
ENDED = """
phase: Succeeded
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
{{ end }}
"""


def _stage(name: str, kind: str, chosen: Mapping[str, Any], what: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": [chosen]}, "next": what}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


PENDING = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
DELETED = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
STAGES = (
    _stage("begun", "Node", PENDING, {"statusTemplate": "phase: Running"}),
    _stage("ended", "Pod", PENDING, {"statusTemplate": ENDED}),
    _stage("deleted", "Pod", DELETED, {"delete": True}),
)


@contextlib.contextmanager
def kwok_cluster(folder: Path, names: Sequence[str], end: str) -> Iterator[ControlPlane]:
    """Run a control plane with these nodes, which have accelerators; `end` is the last line of each log."""
    with control_plane(folder, QUIET_S, OLD_ETCD) as plane:
        grant(plane)
        with _kwok(plane, folder, names, end):
            yield plane


@contextlib.contextmanager
def _kwok(plane: ControlPlane, folder: Path, names: Sequence[str], end: str) -> Iterator[None]:
    port = free_port()
    file, config = folder / "kwok-pod.log", folder / "kwok.json"
    lines = [*log().decode().splitlines(), end]
    file.write_text("".join(f"2026-01-02T03:04:05.000000000Z stdout F {line}\n" for line in lines))
    of_logs = {"metadata": {"name": "all"}, "spec": {"logs": [{"logsFile": str(file)}]}}
    rules = [*STAGES, {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", **of_logs}]
    config.write_text("\n---\n".join(map(json.dumps, rules)))  # JSON is YAML
    command: list[str | Path] = [
        installed.folder("kubernetes") / "kwok",
        f"--kubeconfig={plane.kubeconfig()}",
        f"--config={config}",
    ]
    command += [f"--manage-nodes-with-label-selector={LABEL}=yes", f"--server-address=127.0.0.1:{port}"]
    command += [f"--tls-cert-file={plane.ca}", f"--tls-private-key-file={plane.ca.with_suffix('.key')}"]
    with running(folder / "kwok.log", command) as process:
        wait_until(lambda: _is_up(port), "up", process)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: plane.call("POST", "/api/v1/nodes", _node(name, port)), names))
        yield


def log() -> bytes:
    """What each pod printed before its last lines."""
    return (f"{LINE}\n" * (LOG_BYTES // (len(LINE) + 1))).encode()


def _node(name: str, port: int) -> Mapping[str, Any]:
    """A p5 as reported by a cloud and a device plugin."""
    labels = {
        LABEL: "yes",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": "us-west-2a",
        "eks.amazonaws.com/nodegroup": "train",
        **{f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)},
    }
    capacity = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    since = "2026-01-02T03:04:05Z"
    conditions = [
        {"type": kind, "status": status, "reason": f"Kubelet{kind}", "message": "so the kubelet says",
         "lastHeartbeatTime": since, "lastTransitionTime": since}
        for kind, status in kinds.items()
    ]  # fmt: skip
    images = [{"names": [f"registry.example/image-{number}:v1"], "sizeBytes": 2**28} for number in range(30)]
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "images": [{"names": ["registry.k8s.io/kube-proxy:v1.34.4"], "sizeBytes": 2**26}, *images],
        "phase": "Pending",
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def _is_up(port: int) -> bool:
    try:
        context = ssl._create_unverified_context()  # only to see whether it answers
        return bool(urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=context, timeout=5).status)
    except OSError:
        return False
