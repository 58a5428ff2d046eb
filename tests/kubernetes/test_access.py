"""How an API server is reached with a pod's account, and how often credentials are requested."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import urllib3.connection
from urllib3.util import ssl_

from clusterproof.plugins.kubernetes import access
from clusterproof.plugins.kubernetes.api import KubernetesDenied, KubernetesError
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "users": [{"name": "old", "user": {"token": "token"}}],
    "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
    "current-context": "old",
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time: the last entry."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[-1])
    return now


def test_a_token_is_asked_for_anew_once_it_has_been_kept_so_long(clock: list[float]) -> None:
    tokens: Iterator[str] = iter("abc")
    authorization = access.kept_for(5, lambda: next(tokens))
    seen = []
    for now in (100.0, 104.9, 105.0, 109.9, 110.0):
        clock.append(now)
        seen.append(authorization())
    assert seen == ["a", "a", "b", "b", "c"]


@pytest.mark.usefixtures("clock")
def test_what_failed_is_not_kept() -> None:
    answers: Iterator[str | Exception] = iter([OSError("no helper"), "token"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    authorization = access.kept_for(5, ask)
    with pytest.raises(OSError, match="no helper"):
        authorization()
    assert authorization() == "token"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubernetes_bed: Bed) -> Path:
    """The folder of a pod's account, in a process without a client for Kubernetes."""
    _, token = kubernetes_bed.granted()
    (tmp_path / "token").write_text(f"{token}\n")
    shutil.copy(kubernetes_bed.plane.ca, tmp_path / "ca.crt")
    monkeypatch.setattr(access, "ACCOUNT", tmp_path)
    monkeypatch.setattr(access, "ASKED_S", 0.0)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kubernetes_bed.plane.port))
    return tmp_path


@needs_kubernetes
def test_a_pods_account_needs_no_client_and_its_token_may_be_renewed(account: Path) -> None:
    token = (account / "token").read_text()
    api = access.open_api({"kubernetes": "in-cluster"})
    assert api.get("/api/v1/nodes")["kind"] == "NodeList"
    (account / "token").write_text("another")
    with pytest.raises(KubernetesDenied, match="401"):
        api.get("/api/v1/nodes")
    (account / "token").write_text(token)
    assert api.get("/api/v1/nodes")["kind"] == "NodeList"
    (account / "token").unlink()
    with pytest.raises(KubernetesError, match=r"the credentials: .*No such file.*; expected some that work"):
        api.get("/api/v1/nodes")


@needs_kubernetes
@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_an_account_says_which_file_it_lacks(account: Path, missing: str) -> None:
    (account / missing).unlink()
    with pytest.raises(KubernetesError, match=r"no account of a pod here: .*No such file.*expected to run in a pod"):
        access.open_api({"kubernetes": "in-cluster"})


def test_outside_of_a_pod_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubernetesError, match="no account of a pod here: 'KUBERNETES_SERVICE_HOST'"):
        access.open_api({"kubernetes": "in-cluster"})


@contextmanager
def old_cluster(folder: Path) -> Iterator[int]:
    """The port of a server with certificates like those of EKS clusters some years ago: no key identifiers."""
    bare = "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
    (folder / "ca.conf").write_text(
        f"[req]\ndistinguished_name=name\n[name]\n[ca]\nbasicConstraints=critical,CA:TRUE\n{bare}"
    )
    (folder / "leaf.conf").write_text(f"subjectAltName=IP:127.0.0.1\n{bare}")
    for arguments in (
        "req -x509 -nodes -newkey rsa:2048 -config ca.conf -extensions ca -subj /CN=k -keyout ca.key -out ca.crt",
        "req -nodes -newkey rsa:2048 -subj /CN=apiserver -keyout leaf.key -out leaf.csr",
        "x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile leaf.conf -out leaf.crt",
    ):
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"kind": "NodeList"}')

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.crt", folder / "leaf.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def as_of_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python 3.13, and urllib3 with it, additionally require of certificates."""
    of_python, of_urllib3 = ssl.create_default_context, ssl_.create_urllib3_context

    def strict(context: ssl.SSLContext) -> ssl.SSLContext:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: strict(of_python(cafile=cafile)))
    for module in (ssl_, urllib3.connection):
        monkeypatch.setattr(
            module, "create_urllib3_context", lambda *args, **keywords: strict(of_urllib3(*args, **keywords))
        )


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make certificates with")
@pytest.mark.usefixtures("as_of_3_13")
@pytest.mark.parametrize("way", ["in-cluster", "context:"])
def test_certificates_that_kubectl_takes_are_taken_by_a_python_that_is_stricter(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "token").write_text("token")
    with old_cluster(tmp_path) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))

        def answered_kind(host: str) -> object:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
            cluster = {"server": f"https://{host}:{port}", "certificate-authority": "ca.crt"}
            (tmp_path / "kubeconfig").write_text(
                json.dumps({**CONFIG, "clusters": [{"name": "old", "cluster": cluster}]})
            )
            return access.open_api({"kubernetes": way}).get("/api/v1/nodes")["kind"]

        assert answered_kind("127.0.0.1") == "NodeList"
        with pytest.raises(KubernetesError, match="certificate is not valid for 'localhost'"):
            answered_kind("localhost")
        other = "req -x509 -nodes -newkey rsa:2048 -subj /CN=k -keyout other.key -out ca.crt"
        subprocess.run(["openssl", *other.split()], cwd=tmp_path, check=True, capture_output=True)
        with pytest.raises(KubernetesError, match="certificate verify failed"):
            answered_kind("127.0.0.1")
