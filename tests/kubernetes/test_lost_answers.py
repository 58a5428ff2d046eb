"""Requests that the API server carries out, and whose answers are lost: each object is there once, and no run ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from urllib3 import HTTPResponse, PoolManager
from urllib3.exceptions import ProtocolError

from clusterproof.plugins.kubernetes.api import TIMEOUT, Api, KubernetesError
from clusterproof.plugins.kubernetes.gate.objects import EVENTS
from clusterproof.plugins.transport.kubernetes import RunObjects
from clusterproof.plugins.transport.kubernetes.connection import end
from clusterproof.plugins.transport.kubernetes.creation import create, create_owner
from tests.kubernetes.programs import answer_of
from tests.kubernetes.responses import response
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

KINDS = ("jobs", "configmaps")
RUN = RunObjects("clusterproof-0123456789", "clusterproof")
Send = Callable[..., HTTPResponse]


def reset() -> HTTPResponse:
    raise ProtocolError("Connection aborted.", ConnectionResetError(104, "reset by peer"))


LOST: dict[str, Callable[[], HTTPResponse]] = {
    "a connection that was reset": reset,
    "an answer that broke off": lambda: response(201, {}, {"content-length": "2000"}),
    "an etcd without a leader": lambda: response(500, {"message": "etcdserver: request timed out"}),
}


@dataclass
class Losing:
    """An API server of which the first answer to a creation of this kind is lost."""

    send: Send
    kind: str
    lost: Callable[[], HTTPResponse]
    count: int = 0

    def __call__(self, method: str, address: str, **request: Any) -> HTTPResponse:
        answer = self.send(method, address, **request)
        is_creation = method == "POST" and urlsplit(address).path.endswith(f"/{self.kind}")
        self.count += is_creation
        if is_creation and self.count == 1:
            answer.drain_conn()
            return self.lost()
        return answer


@dataclass
class Objects:
    """An API server that holds objects by path, and grants what integrations/kubernetes/rbac.yaml does of Jobs."""

    by_path: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: int = 0

    def __call__(self, method: str, address: str, body: str | None = None, **_: object) -> HTTPResponse:
        path = urlsplit(address).path
        if method == "DELETE":
            return response(200 if self.by_path.pop(path, None) else 404, {})
        if method != "POST" or body is None:
            return response(403, {"message": f'User "u" cannot {method} resource "jobs"'})
        resource = json.loads(body)
        path = f"{path}/{resource['metadata']['name']}"
        if path in self.by_path:
            return response(409, {"reason": "AlreadyExists", "message": f"{path} already exists"})
        self.made += 1
        resource["metadata"]["uid"] = f"uid-{self.made}"
        self.by_path[path] = resource
        return response(201, resource)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr("clusterproof.plugins.kubernetes.api.time", at_once)


def answering(send: Send) -> Api:
    """Access to an API server that has answered before: one that never has is not asked again."""
    opened = Api("https://10.0.0.1:443", send)
    opened._has_answered = True
    return opened


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
@pytest.mark.parametrize("kind", ["jobs", "configmaps"])
def test_a_job_owns_the_program_whichever_answer_is_lost(kind: str, lost: Callable[[], HTTPResponse]) -> None:
    server = Objects()
    run = create_owner(answering(Losing(server, kind, lost)), RUN, 900, "true")
    jobs, programs = ([made for path, made in server.by_path.items() if f"/{kind}/" in path] for kind in KINDS)
    assert [made["metadata"]["uid"] for made in jobs] == [run.uid]
    assert [made["metadata"]["ownerReferences"][0]["uid"] for made in programs] == [run.uid]


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_a_pod_whose_creation_was_not_answered_is_there(lost: Callable[[], HTTPResponse]) -> None:
    server = Objects()
    create(answering(Losing(server, "pods", lost)), RUN.pods, {"metadata": {"name": "clusterproof-0123456789-0"}})
    assert server.made == 1


def test_an_object_that_the_server_names_is_not_created_twice() -> None:
    losing = Losing(lambda *_, **__: response(201, {}), "events", LOST["an etcd without a leader"])
    with pytest.raises(KubernetesError, match="etcdserver: request timed out"):
        answering(losing).create(EVENTS, {"metadata": {"generateName": "clusterproof-"}})
    assert losing.count == 1


def test_a_listing_that_breaks_off_is_asked_for_again() -> None:
    answers = [response(200, {}, {"content-length": "2000"}), response(200, {"items": [{"kind": "Pod"}]})]
    assert list(answering(lambda *_, **__: answers.pop(0)).listed("/api/v1/pods")) == [{"kind": "Pod"}]


def test_a_refusal_of_a_watch_that_breaks_off_is_an_error_of_the_server_and_ends_no_thread() -> None:
    api = answering(lambda *_, **__: response(503, {}, {"content-length": "2000"}))
    with pytest.raises(KubernetesError, match="the answer broke off"):
        list(api.watch(RUN.pods, 60.0))


@pytest.mark.parametrize(("status", "asked"), [(403, 3), (0, 1)], ids=["no right", "no answer"])
def test_a_run_that_ends_waits_only_once_for_an_api_server_that_is_gone(status: int, asked: int) -> None:
    tried: list[str] = []

    def delete(path: str, **_: object) -> None:
        tried.append(path)
        raise KubernetesError("gone", status)

    end(SimpleNamespace(delete=delete), RUN)  # type: ignore[arg-type] # by its methods
    assert len(tried) == asked


def test_the_job_is_deleted_though_the_deletion_of_many_pods_is_not_answered_in_time() -> None:
    deleted: list[str] = []

    def delete(path: str, **_: object) -> None:
        if path == RUN.pods:
            raise KubernetesError("Read timed out.", reason=TIMEOUT)
        deleted.append(path)

    end(SimpleNamespace(delete=delete), RUN)  # type: ignore[arg-type] # by its methods
    assert f"{RUN.jobs}/{RUN.name}" in deleted


@needs_kubernetes
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
@pytest.mark.parametrize("kind", ["jobs", "configmaps", "pods"])
def test_a_run_goes_on_and_leaves_nothing(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, kind: str, lost: Callable[[], HTTPResponse]
) -> None:
    losing, request = Losing(reset, kind, lost), PoolManager.request

    def losing_one(pool: PoolManager, method: str, address: str, **options: Any) -> HTTPResponse:
        losing.send = partial(request, pool)  # type: ignore[assignment]
        return losing(method, address, **options)

    monkeypatch.setattr(PoolManager, "request", losing_one)
    answer = answer_of("echo done")
    assert (answer.unreached, answer.output) == (None, b"done\n"), answer.detail
    wait_until(lambda: not kubernetes.left(), "clean")
