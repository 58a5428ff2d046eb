"""etcd, kube-apiserver and kube-controller-manager on free loopback ports, with administrator access."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import HTTPSConnectionPool

from tests.counterparts import installed
from tests.testbed.kubernetes.processes import Running, running, started_again, wait_until
from tests.transport.loopback import free_port

NAME = "kubernetes"  # among tests/counterparts
VERSION = "v1.34.4"
ADMIN = "admin-token"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
GRACE_S = 600  # nothing renews leases of nodes without a kubelet, and on a busy machine real ones are renewed late
MERGE = "application/merge-patch+json"


class RefusedError(Exception):
    """The API server's answer to a request that it does not grant."""


def program(name: str) -> Path:
    """One of Kubernetes' programs."""
    return installed.folder(NAME) / name


@dataclass
class ControlPlane:
    """A running control plane; `apiserver` may be stopped and restarted."""

    folder: Path
    port: int
    apiserver: Running | None = None
    address: str = "127.0.0.1"
    apiserver_words: Sequence[str | Path] = ()
    controllers: Running | None = None
    controllers_words: Sequence[str | Path] = ()

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict[str, Any]:
        """Send one request as administrator. Raises RefusedError."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        answer = self._connections.request(method, path, body=content, headers=headers)
        if answer.status >= 400:
            raise RefusedError(f"{answer.status}: {answer.data.decode()}")
        return dict(answer.json())

    @cached_property
    def _connections(self) -> HTTPSConnectionPool:
        """They stay open: a handshake costs both ends more than the request."""
        return HTTPSConnectionPool(
            self.address, self.port, ca_certs=str(self.ca), timeout=600, retries=False, maxsize=4
        )

    def patch(self, path: str, body: object) -> dict[str, Any]:
        return self.call("PATCH", path, body, MERGE)

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(self.call("GET", path)["items"])

    def is_ready(self) -> bool:
        try:
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
            context = ssl.create_default_context(cafile=self.ca)
            return urllib.request.urlopen(request, context=context, timeout=5).status == 200
        except (OSError, ssl.SSLError):
            return False

    def restart_apiserver(self) -> None:
        """End it as in a crash, and restart it."""
        assert self.apiserver
        self.apiserver.stop(signal.SIGKILL)
        self.apiserver = started_again(self.apiserver, self.apiserver_words)
        wait_until(self.is_ready, "ready again", self.apiserver)

    @contextlib.contextmanager
    def noticing_silence(self) -> Iterator[None]:
        """Inside the block, a node whose kubelet is silent soon becomes not Ready."""
        self._restart_controllers("--node-monitor-grace-period=5s")
        try:
            yield
        finally:
            self._restart_controllers()

    def _restart_controllers(self, *arguments: str) -> None:
        assert self.controllers
        self.controllers.stop()
        self.controllers = started_again(self.controllers, [*self.controllers_words, *arguments])

    def kubeconfig(self, token: str = ADMIN, **of_cluster: str) -> Path:
        """A kubeconfig whose only context is `bed`."""
        path = self.folder / f"kubeconfig-{token[-12:]}"
        cluster = {"server": self.url, "certificate-authority": str(self.ca), **of_cluster}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": "bed", "user": {"token": token}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed"}}],
            "current-context": "bed",
        }
        path.write_text(json.dumps(document))  # JSON is YAML
        return path

    def requests(self, user: str) -> list[Mapping[str, Any]]:
        """A user's requests in the audit log, in order; long ones also with their state at the end."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [request for request in map(json.loads, lines) if request["user"].get("username") == user]


@contextlib.contextmanager
def control_plane(
    folder: Path, grace_s: int = GRACE_S, *of_apiserver: str, address: str = "127.0.0.1"
) -> Iterator[ControlPlane]:
    """Run one whose files are in `folder`; a node that is silent for `grace_s` becomes not Ready.

    `address` is the API server's.
    """
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    plane = ControlPlane(folder, free_port(), address=address)
    subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
    _make_certificate(plane)
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    etcd: list[str | Path] = ["etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={client}"]
    etcd += [f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"]
    etcd += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    controllers: list[str | Path] = [program("kube-controller-manager"), f"--kubeconfig={plane.kubeconfig()}"]
    controllers += [f"--service-account-private-key-file={folder}/accounts.key", "--bind-address=127.0.0.1"]
    controllers += [f"--secure-port={free_port()}", "--leader-elect=false", f"--node-monitor-grace-period={grace_s}s"]
    controllers += ["--use-service-account-credentials"]  # one account for each, as with kubeadm
    controllers += [f"--root-ca-file={plane.ca}"]  # pods authenticate the API server with it
    controllers += ["--pvclaimbinder-sync-period=1s"]  # how soon a claim is bound
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(folder / "etcd.log", etcd))
        plane.apiserver_words = [*_apiserver(plane, client), *of_apiserver]
        plane.apiserver = stack.enter_context(running(folder / "apiserver.log", plane.apiserver_words))
        stack.callback(lambda: plane.apiserver and plane.apiserver.stop())  # the one running by then
        wait_until(plane.is_ready, "ready", plane.apiserver)
        plane.controllers_words = controllers
        plane.controllers = stack.enter_context(running(folder / "controllers.log", controllers))
        stack.callback(lambda: plane.controllers and plane.controllers.stop())  # the ones running by then
        wait_until(lambda: _has_accounts(plane), "at work", plane.controllers)
        yield plane


def _make_certificate(plane: ControlPlane) -> None:
    """The API server's own: with its default, of RSA, a third of its processor time is handshakes."""
    plane.ca.parent.mkdir()
    names = ["DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"]
    names += [f"IP:{address}" for address in sorted({"127.0.0.1", "10.0.0.1", plane.address})]
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    words += ["-subj", "/CN=kubernetes", "-addext", f"subjectAltName={','.join(names)}"]
    words += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    words += ["-out", str(plane.ca), "-keyout", str(plane.ca.with_suffix(".key"))]
    subprocess.run(words, check=True, capture_output=True)


def _apiserver(plane: ControlPlane, etcd: str) -> list[str | Path]:
    folder = plane.folder
    return [
        program("kube-apiserver"),
        f"--etcd-servers={etcd}",
        f"--secure-port={plane.port}",
        f"--bind-address={plane.address}",
        f"--cert-dir={folder}/certificates",
        "--service-account-issuer=https://kubernetes.default",
        f"--service-account-signing-key-file={folder}/accounts.key",
        f"--service-account-key-file={folder}/accounts.key",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",  # loopback is not a valid endpoint of a service
        f"--audit-policy-file={folder}/audit.json",
        f"--audit-log-path={folder}/audit.log",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _has_accounts(plane: ControlPlane) -> bool:
    """Whether the controllers have created the account that a namespace's pods need."""
    try:
        plane.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    except RefusedError:
        return False
    return True


@contextlib.contextmanager
def scheduler(plane: ControlPlane) -> Iterator[Running]:
    """Run a scheduler until the block ends."""
    command: list[str | Path] = [program("kube-scheduler"), f"--kubeconfig={plane.kubeconfig()}"]
    command += ["--bind-address=127.0.0.1", f"--secure-port={free_port()}", "--leader-elect=false"]
    with running(plane.folder / "scheduler.log", command) as started:
        yield started
