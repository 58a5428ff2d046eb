"""A stand-in for the API server of a large cluster with a gate: it answers at once, and its own cost is separate."""

from __future__ import annotations

import json
import re
import ssl
import sys
import zlib
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from clusterproof.plugins.agent.sending import lines
from clusterproof.plugins.transport.kubernetes.agents import DAEMON_SET, REPORT

EVIDENCE = Path(__file__).parents[1] / "fixtures/demo/nodes/gpu001.json"
LABELS = {"app.kubernetes.io/name": "clusterproof", "app.kubernetes.io/component": "agent"}
CREATED = "2026-01-02T03:04:05Z"


class StandIn(BaseHTTPRequestHandler):
    """Nodes of 20 kB, pods of 4 kB and logs of 14 kB, each different; it keeps conditions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    names: ClassVar[list[str]] = []
    conditions: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        """Serve listings, the agents' DaemonSet and their logs."""
        path, _, query = self.path.partition("?")
        parameters = {key: values[0] for key, values in parse_qs(query).items()}
        if path.endswith("/log"):
            self._answer(200, _log(path.split("/")[-2].removeprefix("agent-")))
        elif path == "/api/v1/nodes":
            self._listing(parameters, self._node)
        elif path.endswith("/pods"):
            self._listing(parameters, _pod)
        elif path.endswith(f"/daemonsets/{DAEMON_SET}"):
            self._answer(200, b'{"metadata":{"name":"%s","uid":"of-agents"}}' % DAEMON_SET.encode())
        else:
            self._answer(404, b'{"kind":"Status","message":"not found"}')

    def do_PATCH(self) -> None:
        """Keep a condition; deny dry runs, as confined.yaml does."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "dryRun" in self.path:
            self._answer(422, b'{"kind":"Status","message":"denied request"}')
            return
        name = urlsplit(self.path).path.split("/")[4]
        (self.conditions[name],) = body["status"]["conditions"]
        self._answer(200, self._node(name))

    def do_POST(self) -> None:
        """Accept an event."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, b"{}")

    def _listing(self, parameters: dict[str, str], render: Any) -> None:
        first, limit = int(parameters.get("continue", 0)), int(parameters.get("limit", 0)) or len(self.names)
        names = self.names
        if chosen := re.fullmatch(r"metadata\.name=(.*)", parameters.get("fieldSelector", "")):
            names = [chosen[1]]
        page, rest = names[first : first + limit], len(names) > first + limit
        after = f'"continue":"{first + limit}"' if rest else ""
        head = f'{{"kind":"List","metadata":{{"resourceVersion":"1",{after}}},"items":['.replace(",}", "}")
        self._answer(200, head.encode() + b",".join(map(render, page)) + b"]}")

    def _node(self, name: str) -> bytes:
        before, after = _halves(name)
        own = self.conditions.get(name)
        return before + (b"," + json.dumps(own, separators=(",", ":")).encode() if own else b"") + after

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@lru_cache(None)
def _halves(name: str) -> tuple[bytes, bytes]:
    """A node's JSON before and after the place of the gate's condition."""
    text = json.dumps(large_node(name), separators=(",", ":")).encode()
    before, after = text.split(b',{"type":"HERE"}')
    return before, after


def large_node(name: str) -> dict[str, Any]:
    """A node as large as real ones: 50 images, 60 feature labels, and managed fields."""
    digest, status = "a" * 64, {"reason": "KubeletHas", "message": "kubelet has what it needs"}
    images = [
        {"names": [f"example.com/team/{number}@sha256:{digest}", f"example.com/team/{number}:v1"]}
        for number in range(50)
    ]
    conditions = [{"type": f"Condition{number}", "status": "False", **status} for number in range(8)]
    conditions += [{"type": "Ready", "status": "True", **status}, {"type": "HERE"}]
    managed = [{"manager": "kubelet", "fieldsV1": {f"f:label-{number}": {} for number in range(90)}} for _ in range(4)]
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.{number}": "true" for number in range(60)}
    labels |= {"node.kubernetes.io/instance-type": "p5.48xlarge", "eks.amazonaws.com/nodegroup": "train"}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
    }
    metadata |= {"labels": labels, "managedFields": managed}
    resources = {"nvidia.com/gpu": "8", "cpu": "192", "memory": "2Ti"}
    return {
        "metadata": metadata,
        "spec": {"providerID": f"aws:///us-west-2a/i-{zlib.crc32(name.encode()):017x}"},
        "status": {
            "conditions": conditions,
            "images": images,
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "kernelVersion": "6.8.0"},
        },
    }


@lru_cache(None)
def _pod(node: str) -> bytes:
    """An agent's pod as large as real ones: 4 kB."""
    mounts = [{"name": f"volume-{number}", "mountPath": f"/host/{number}" * 4} for number in range(8)]
    container: dict[str, Any] = {"name": "agent", "image": "example.com/clusterproof:0.1.0", "volumeMounts": mounts}
    container["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    owner: dict[str, Any] = {"kind": "DaemonSet", "name": DAEMON_SET, "uid": "of-agents", "controller": True}
    state: dict[str, Any] = {
        "name": "agent",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": CREATED}},
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": CREATED} for kind in kinds]
    managed = [{"manager": "kubelet", "fieldsV1": {f"f:{number}": {} for number in range(80)}} for _ in range(2)]
    metadata: dict[str, Any] = {
        "name": f"agent-{node}",
        "namespace": "clusterproof",
        "uid": f"pod-{node}",
        "labels": LABELS,
    }
    metadata |= {"creationTimestamp": CREATED, "ownerReferences": [owner], "managedFields": managed}
    pod = {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container], "hostNetwork": True},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [state]},
    }
    return json.dumps(pod, separators=(",", ":")).encode()


@lru_cache(None)
def _evidence() -> str:
    """The demo's healthy node's evidence."""
    evidence = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    return json.dumps({"probe": evidence["probe"], "collectors": evidence["collectors"]})


def _log(node: str) -> bytes:
    """An agent's last log: that evidence under the node's name, with its own serial numbers."""
    answer = _evidence().replace("gpu001", node).replace("GPU-", f"GPU-{node}")
    return ("\n".join([f"{REPORT}:begin.", *lines(zlib.compress(answer.encode()), REPORT)]) + "\n").encode()


def serve(folder: Path, count: int) -> None:
    """Serve this many nodes with the certificate in that folder; the first line printed is the port."""
    StandIn.names = [f"gpu{number:04d}" for number in range(1, count + 1)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "ca.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
