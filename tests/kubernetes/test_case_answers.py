"""What `clusterproof case` makes of an API server that answers as it is told to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from urllib3 import HTTPResponse

from clusterproof.plugins.case import CaseError
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.kubernetes import read_job
from clusterproof.plugins.kubernetes.api import Api
from tests.kubernetes.responses import response

CONVERSION = 'conversion webhook for kubeflow.org/v1, Kind=MPIJob failed: no endpoints available for service "operator"'
FULL = b"2026-01-02T03:04:05Z OSError: [Errno 28] No space left on device\n"


def ended(code: int) -> dict[str, Any]:
    times = {"startedAt": "2026-01-02T03:04:00Z", "finishedAt": "2026-01-02T03:04:05Z"}
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", **times}}


def pod(**containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"name": "w-0", "labels": {"job-name": "w"}},
        "spec": {"nodeName": "gpu001"},
        "status": {"phase": "Failed", **containers},
    }


class Server:
    """An API server with one pod; `logs` by container. `broken`: kinds that it cannot return."""

    def __init__(self, pod: dict[str, Any], *broken: str, **logs: bytes) -> None:
        self.pod, self.broken, self.logs = pod, broken, logs

    def __call__(self, _method: str, address: str, **_: object) -> HTTPResponse:
        if "/log?" in address:
            log = next((log for name, log in self.logs.items() if f"container={name}" in address), None)
            return response(400, b'{"message": "it is waiting to start"}') if log is None else response(200, log)
        if any(f"/{kind}/" in address for kind in self.broken):
            return response(500, json.dumps({"reason": "InternalError", "message": CONVERSION}).encode())
        if "?" not in address:
            return response(404, b'{"message": "there is none"}')
        items = [self.pod] if "/pods?" in address else []
        return response(200, json.dumps({"metadata": {}, "items": items}).encode())

    def read(self) -> CaseBuilder:
        builder = CaseBuilder()
        read_job(Api("https://10.0.0.1:443", self), "t/w", builder, 0.0)
        return builder


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.api.RETRY_S", 0.0)


def signs(builder: CaseBuilder) -> list[tuple[str, str]]:
    return [(event.sign, event.source) for output in builder.outputs for event in output.events]


MAIN = pod(containerStatuses=[{"name": "main", "state": ended(1)}])


def test_a_kind_that_the_server_cannot_return_hides_no_job_of_another() -> None:
    builder = Server(MAIN, "mpijobs", main=FULL).read()
    assert signs(builder) == [("no_room", "w-0/main.log:1")]
    assert any(lacking.startswith("a MPIJob w, if there is one: 500 InternalError") for lacking in builder.missing)


@pytest.mark.parametrize("state", ["state", "lastState"])
def test_what_an_init_container_said_that_failed_is_read(state: str) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    builder = Server(
        pod(initContainerStatuses=[{"name": "fetch", state: ended(1)}], containerStatuses=[waiting]), fetch=FULL
    ).read()
    assert signs(builder) == [("no_room", "w-0/fetch.log:1")]
    assert builder.objects["t/w"].ran.ends is not None


def test_one_that_succeeded_says_nothing_of_the_jobs_end() -> None:
    init = [{"name": "fetch", "state": ended(0)}]
    builder = Server(
        pod(initContainerStatuses=init, containerStatuses=[{"name": "main", "state": ended(1)}]), fetch=FULL, main=b""
    ).read()
    assert signs(builder) == []


def test_a_job_that_began_after_its_init_container_was_tried_again_still_runs() -> None:
    init = [{"name": "fetch", "restartCount": 1, "state": ended(0), "lastState": ended(1)}]
    running = pod(initContainerStatuses=init, containerStatuses=[{"name": "main", "state": {"running": {}}}])
    running["status"]["phase"] = "Running"
    with pytest.raises(CaseError, match="no container of it has ended"):
        Server(running, fetch=FULL, main=b"").read()
