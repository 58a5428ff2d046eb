"""Visits of nodes by an API server that answers as it is told to: what is said of which node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from urllib3 import HTTPResponse

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.transport import Answer, Limits, Unusable
from clusterproof.plugins.transport.kubernetes.connection import Kubernetes
from tests.kubernetes.programs import END, shell
from tests.kubernetes.responses import response

NODES = ("gpu001", "gpu002", "gpu003")
ENDED = {"phase": "Succeeded", "containerStatuses": [{"name": "probe", "state": {"terminated": {"exitCode": 0}}}]}
HOOK = 'Internal error occurred: failed calling webhook "a.example.com": context deadline exceeded'


class Server:
    """Three nodes; each pod ends at once. `refused`: by node, the answer to the creation of its pod."""

    def __init__(self, status: Mapping[str, Any] = ENDED, log: tuple[int, bytes] = (200, f"{END}\n".encode())) -> None:
        self.pods: dict[str, Any] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.moved: dict[str, str] = {}  # by node: where a webhook sends its pod
        self.status = status
        self.log = log

    def __call__(self, method: str, address: str, body: str | None = None, **_: object) -> HTTPResponse:
        path = urlsplit(address).path
        if method == "POST" and body and path.endswith("/pods"):
            return self._create(json.loads(body))
        if path.endswith("/log"):
            return response(*self.log)
        items: list[Any] = []
        if path.endswith("/nodes"):
            items = [_node(name) for name in NODES]
        elif path.endswith("/pods"):
            items = list(self.pods.values())
        return response(200, {"metadata": {"uid": "1"}, "items": items})

    def _create(self, pod: dict[str, Any]) -> HTTPResponse:
        node = pod["spec"]["nodeName"]
        if node in self.refused:
            status, message = self.refused[node]
            return response(status, {"message": message})
        pod["spec"]["nodeName"] = self.moved.get(node, node)
        self.pods[pod["metadata"]["name"]] = {**pod, "status": self.status}
        return response(201, pod)

    def visited(self) -> Mapping[str, Answer]:
        answers: dict[str, Answer] = {}
        connection = Kubernetes()
        connection.opened = lambda settings: Api("https://10.0.0.1:443", self)  # type: ignore[method-assign] # noqa: ARG005
        limits = Limits(connect_s=1.0, answer_s=1.0, fanout=1)
        targets = list(map(Target, NODES))
        connection.run(targets, shell("true"), limits, lambda target, answer: answers.update({target.name: answer}))
        return answers


def _node(name: str) -> dict[str, Any]:
    images = [{"names": ["registry.k8s.io/pause:3.10"], "sizeBytes": 1}]
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "status": {"images": images, "conditions": ready}}


@pytest.mark.parametrize(
    "message",
    [HOOK, 'admission webhook "a.example.com" denied the request: gpu002 is reserved'],
    ids=["a webhook that was late once", "a policy for one node"],
)
def test_what_admission_refuses_after_it_has_admitted_others_is_of_that_node_alone(message: str) -> None:
    server = Server()
    server.refused["gpu002"] = (500, message)
    answers = server.visited()
    assert {name: answer.unreached for name, answer in answers.items()} == {
        "gpu001": None,
        "gpu002": Unreached.API,
        "gpu003": None,
    }
    assert message in answers["gpu002"].detail


def test_what_admission_refuses_from_the_beginning_is_of_all() -> None:
    server = Server()
    server.refused.update(dict.fromkeys(NODES, (500, HOOK)))
    with pytest.raises(Unusable, match="expected that webhook to answer"):
        server.visited()


def test_a_right_that_is_lost_in_the_middle_is_asked_for_no_more() -> None:
    server = Server()
    server.refused["gpu002"] = (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""')
    answers = server.visited()
    assert answers["gpu001"].unreached is None
    assert "rbac.yaml" in answers["gpu003"].detail


EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi.",
    "containerStatuses": [
        {"name": "probe", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
    ],
}
NO_LOG = 'container "probe" in pod "clusterproof-0" is terminated'


@pytest.mark.parametrize(
    "log",
    [(200, b"begin"), (404, b'{"message": "gone"}'), (400, json.dumps({"message": NO_LOG}).encode())],
    ids=["a cut log", "a pod that was deleted since", "a container that is gone"],
)
def test_a_pod_that_its_kubelet_ended_says_why(log: tuple[int, bytes]) -> None:
    server = Server(EVICTED, log)
    answer = server.visited()["gpu001"]
    is_read = log[0] == 200
    assert (answer.unreached, answer.output) == ((Unreached.CUT, log[1]) if is_read else (Unreached.REMOVED, b""))
    assert answer.detail.startswith("its pod was ended: Evicted: The node was low on resource: memory. ")
    assert is_read or answer.detail.endswith(json.loads(log[1])["message"])


def test_so_does_one_that_kept_its_disruption_alone() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "message": "The node was low on resource: ephemeral-storage."}
    kept = {key: value for key, value in EVICTED.items() if key not in ("reason", "message")}
    answer = Server({**kept, "conditions": [told]}, (200, b"")).visited()["gpu001"]
    assert answer.detail == "its pod was ended: The node was low on resource: ephemeral-storage."


def test_a_program_that_fails_by_itself_is_not_ended_by_its_kubelet() -> None:
    failed = {"phase": "Failed", "containerStatuses": [{"name": "probe", "state": {"terminated": {"exitCode": 3}}}]}
    answer = Server(failed).visited()["gpu001"]
    assert (answer.unreached, answer.detail) == (None, "")


def test_what_a_pod_says_is_of_no_node_but_its_own() -> None:
    server = Server()
    server.moved["gpu002"] = "gpu003"
    answers = server.visited()
    assert {name for name, answer in answers.items() if answer.output} == {"gpu001", "gpu003"}
    assert answers["gpu002"].detail.startswith("its pod is on gpu003; expected no webhook or policy that changes ")


@pytest.mark.parametrize(
    "words",
    [
        b"unable to retrieve container logs for containerd://61a93aa17bfb193bc125b151ec643c85",
        b'failed to try resolving symlinks in path "/var/log/pods/a_b_c/probe/0.log": lstat: no such file or directory',
    ],
)
def test_a_log_that_was_deleted_before_it_was_read_is_not_the_nodes_answer(words: bytes) -> None:
    answer = Server(log=(200, words)).visited()["gpu001"]
    assert (answer.unreached, answer.output) == (Unreached.REMOVED, b"")
    assert answer.detail == f"its container's log was deleted before it was read: {words.decode()}"


def test_a_pod_that_a_policy_has_run_as_another_user_speaks_against_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.visit.MIN_START_S", 0.0)
    words = "container's runAsUser breaks non-root policy"
    waiting = {"name": "probe", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": words}}}
    answer = Server({"phase": "Pending", "containerStatuses": [waiting]}).visited()["gpu001"]
    assert answer.unreached is Unreached.API
    assert answer.detail.startswith(f"CreateContainerConfigError: {words}; expected its ConfigMap, and no webhook or ")
