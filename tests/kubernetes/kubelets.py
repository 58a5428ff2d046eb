"""Kubelets of nonexistent nodes: they end every pod at once, and serve a log for it."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.kubernetes.programs import END, PODS
from tests.testbed.kubernetes.bed import Bed

ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
CONTAINER = {"name": "probe", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ENDED}
SUCCEEDED = {"phase": "Succeeded", "containerStatuses": [CONTAINER]}
LOG_BYTES = 20_000  # of each answer, as from a node with 8 GPUs
LOOK_S = 0.1


class Log(BaseHTTPRequestHandler):
    """`/containerLogs/NAMESPACE/POD/CONTAINER`, as the API server requests it from a kubelet."""

    protocol_version = "HTTP/1.1"
    written: ClassVar[bytes] = b""  # every pod's log, unless it has its own
    late: ClassVar[list[int]] = []  # length of a log at its first read, its second, …

    def do_GET(self) -> None:
        body = self.path.split("/")[3].encode().ljust(LOG_BYTES, b".") + f"{END}\n".encode()
        body = self.written or body
        body = body[: self.late.pop(0)] if self.late else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def kubelets(bed: Bed, names: list[str], ended: Mapping[str, Any] = SUCCEEDED) -> Iterator[None]:
    """Nodes of these names, labelled `many=yes`, with a common kubelet; each pod ends with this status."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Log)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bed.plane.ca, bed.plane.ca.with_suffix(".key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    over = threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever),
        threading.Thread(target=_end_pods, args=(bed, over, ended)),
    ]
    for thread in threads:
        thread.start()
    port = {"kubeletEndpoint": {"Port": server.server_address[1]}}
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    images = [{"names": ["registry.k8s.io/kube-proxy:v1"], "sizeBytes": 1}]
    try:
        for name in names:
            bed.add_node(name, labels={"many": "yes"}, images=images, addresses=address, daemonEndpoints=port)
        yield
    finally:
        over.set()
        server.shutdown()
        for thread in threads:
            thread.join()
        server.server_close()
        bed.plane.call("DELETE", "/api/v1/nodes?labelSelector=many%3Dyes")


def _end_pods(bed: Bed, over: threading.Event, status: Mapping[str, Any]) -> None:
    ended: set[str] = set()
    while not over.is_set():
        for pod in bed.plane.items(PODS):
            name = str(pod["metadata"]["name"])
            if name not in ended and pod["spec"].get("nodeName", "").startswith("many"):
                ended.add(name)
                bed.plane.patch(f"{PODS}/{name}/status", {"status": status})
        time.sleep(LOOK_S)
