"""Who is at fault if the log of a node's agent cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from urllib3 import HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.plugins.transport import Answer
from clusterproof.plugins.transport.kubernetes.agents import AgentVisit, ReadContext
from clusterproof.plugins.transport.kubernetes.report_cache import ReportCache
from tests.kubernetes.agents import agent
from tests.kubernetes.responses import response

POOL = HTTPSConnectionPool("10.0.0.1", 443)


def reading(send: Callable[..., object]) -> Answer:
    """The reading of an agent with these answers of an API server."""
    context = ReadContext(Api("https://10.0.0.1:443", send), "clusterproof", 1000, 105, ReportCache(""))
    return AgentVisit(context, agent("gpu701")).make()


def test_a_log_that_does_not_come_is_of_its_own_node_and_not_of_the_api_server() -> None:
    def silent_kubelet(_: str, address: str, **__: object) -> HTTPResponse:
        if "/log?" in address:
            raise ReadTimeoutError(POOL, address, "Read timed out. (read timeout=40.0)")
        return response(200, {})

    answer = reading(silent_kubelet)
    assert answer.unreached is Unreached.NO_LOG
    assert answer.detail == (
        "the control plane cannot read its agent's log: no answer from https://10.0.0.1:443: "
        "HTTPSConnectionPool(host='10.0.0.1', port=443): Read timed out. (read timeout=40.0); expected a way from it to"
        " port 10250 of the node, and a kubelet that answers there"
    )


@pytest.mark.parametrize(
    "problem",
    [
        ConnectionRefusedError(111, "Connection refused"),
        NewConnectionError(HTTPSConnection("10.0.0.1"), "[Errno -3] Temporary failure in name resolution"),
        ConnectTimeoutError("timed out"),
        SSLError("certificate verify failed"),
        ProtocolError("Connection aborted.", ConnectionResetError(104, "reset by peer")),
        ReadTimeoutError(POOL, "/", "Read timed out. (read timeout=40.0)"),
        response(503, b"no server is available", {"Retry-After": "60"}),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_an_api_server_that_has_gone_away_speaks_against_no_node(problem: Exception | HTTPResponse) -> None:
    def gone(*_: object, **__: object) -> HTTPResponse:
        if isinstance(problem, Exception):
            raise problem
        return problem

    assert reading(gone).unreached is Unreached.API


def status(code: int, message: str) -> HTTPResponse:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    return response(code, body, {"Retry-After": "60"})


@pytest.mark.parametrize("is_slow", [False, True], ids=["etcd has no leader", "etcd hangs"])
def test_an_api_server_that_lacks_its_etcd_speaks_against_no_node(is_slow: bool) -> None:
    def without_etcd(_: str, address: str, **__: object) -> HTTPResponse:
        if not address.endswith(("/version", "/livez")):
            if is_slow:
                raise ReadTimeoutError(POOL, address, "Read timed out. (read timeout=40.0)")
            return status(500, "etcdserver: request timed out")
        return response(200, {})

    assert reading(without_etcd).unreached is Unreached.API


@pytest.mark.parametrize("is_slow", [False, True], ids=["etcd had no leader", "etcd hung"])
def test_an_api_server_that_lacked_its_etcd_for_a_moment_speaks_against_no_node(is_slow: bool) -> None:
    refused: list[str] = []

    def anew(_: str, address: str, **__: object) -> HTTPResponse:
        if not refused:
            refused.append(address)
            if is_slow:
                raise ReadTimeoutError(POOL, address, "Read timed out. (read timeout=40.0)")
            return status(500, "etcdserver: request timed out")
        return response(200, {} if "/log?" not in address else b"no space\n")

    answer = reading(anew)
    assert answer.unreached is Unreached.NOT_STARTED
    assert answer.detail.endswith("; its last words: no space")


def test_whether_an_api_server_has_its_etcd_an_account_learns_that_may_list_pods_and_not_get_them() -> None:
    def kubelet_is_gone(_: str, address: str, **__: object) -> HTTPResponse:
        if "/log?" in address:
            return status(500, 'Get "https://10.0.0.7:10250/containerLogs/clusterproof/a/agent": dial tcp: i/o timeout')
        if "/pods?" in address:
            return response(200, {"items": []})
        return status(403, 'pods "a" is forbidden: User "x" cannot get resource "pods" in API group ""')

    assert reading(kubelet_is_gone).unreached is Unreached.NO_LOG


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (401, "the server has asked for the client to provide credentials"),
        (403, "Forbidden (user=kube-apiserver-kubelet-client, verb=get, resource=nodes, subresource(s)=[proxy log])"),
    ],
)
def test_a_kubelet_that_refuses_the_api_server_is_of_its_own_node_and_no_lack_of_rights(
    code: int, message: str
) -> None:
    name = agent("gpu701").name

    def refusing_kubelet(_: str, address: str, **__: object) -> HTTPResponse:
        if "/log?" in address:
            return status(code, f"{message} ( pods/log {name})")  # the API server passes on what the kubelet said
        return response(200, {"items": []})

    answer = reading(refusing_kubelet)
    assert answer.unreached is Unreached.NO_LOG
    assert answer.detail.startswith(f"the control plane cannot read its agent's log: {code}")
    assert "grants what is needed" not in answer.detail


@pytest.mark.parametrize(
    ("code", "message"),
    [(401, "Unauthorized"), (403, 'pods "a" is forbidden: User "x" cannot get resource "pods/log" in API group ""')],
)
def test_an_account_that_lacks_rights_speaks_against_no_node(code: int, message: str) -> None:
    answer = reading(lambda *_, **__: status(code, message))
    assert answer.unreached is Unreached.API
    assert ("grants what is needed" in answer.detail) is (code == 403)  # no role helps an account that is unknown


def test_an_account_that_has_lost_its_credentials_speaks_against_no_node() -> None:
    def lost() -> str:
        raise KubernetesError("the credentials: exec: aws not found; expected some that work")

    api = Api("https://10.0.0.1:443", object, lost)
    answer = AgentVisit(ReadContext(api, "clusterproof", 1000, 105, ReportCache("")), agent("gpu701")).make()
    assert answer.unreached is Unreached.API
