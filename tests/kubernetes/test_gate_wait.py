"""A gang held until its nodes are proven: held-job.yaml on a real kubelet, and what ends the wait."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied
from clusterproof.plugins.kubernetes.gate import CONDITION, FALSE, TRUE, UNKNOWN
from clusterproof.plugins.kubernetes.gate.objects import moment
from clusterproof.plugins.kubernetes.gate.wait import LAST_S, Wait, booted_at, verdict_since, waited
from clusterproof.plugins.kubernetes.nodes import node_of
from tests.kubernetes.gate import FIT, GateBed, api_of
from tests.testbed.needs import needs_kubectl

NODE = "gpu001"
NOW = 1_800_000_000.0
AS_OF = f"{CONDITION} is True as of"


def node_json(status: str, heard: float) -> dict[str, Any]:
    condition = {"type": CONDITION, "status": status, "reason": "Why", "message": "words"}
    condition |= {"lastHeartbeatTime": moment(heard), "lastTransitionTime": moment(heard)}
    return {"metadata": {"name": NODE}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("status", "heard", "expected"),
    [
        (TRUE, NOW, (TRUE, "Why", "words")),
        (TRUE, NOW - 600, (TRUE, "Why", "words")),
        (TRUE, NOW + 3600, (TRUE, "Why", "words")),  # clocks differ
        (
            TRUE,
            NOW + 3601,
            (
                UNKNOWN,
                "LaterVerdict",
                f"{AS_OF} {moment(NOW + 3601)}, and it is {moment(NOW)} here; expected clocks that agree within 3600 s",
            ),
        ),
        (FALSE, NOW, (FALSE, "Why", "words")),
        (UNKNOWN, NOW, (UNKNOWN, "Why", "words")),
        ("Perhaps", NOW, (UNKNOWN, "Why", "words")),
        (
            TRUE,
            NOW - 601,
            (
                UNKNOWN,
                "OldVerdict",
                f"{CONDITION} is True as of {moment(NOW - 601)}; expected a verdict since {moment(NOW - 600)}",
            ),
        ),
        (
            FALSE,
            NOW - 601,
            (
                UNKNOWN,
                "OldVerdict",
                f"{CONDITION} is False as of {moment(NOW - 601)}; expected a verdict since {moment(NOW - 600)}",
            ),
        ),
    ],
)
def test_only_a_fresh_verdict_counts(status: str, heard: float, expected: tuple[str, str, str]) -> None:
    health = verdict_since(node_of(node_json(status, heard)), NOW - 600, NOW)
    assert (health.status, health.reason, health.message) == expected


def test_a_node_without_a_verdict_is_not_proven() -> None:
    health = verdict_since(node_of({"metadata": {"name": NODE}}), NOW, NOW)
    assert (health.status, health.reason) == (UNKNOWN, "NoVerdict")
    assert "expected a gate that evaluates it" in health.message


@pytest.mark.parametrize(
    ("stat", "expected"),
    [("cpu  1 2\nbtime 1790000000\nprocesses 5\n", 1_790_000_000.0), ("cpu  1 2\n", 0.0), ("btime soon\n", 0.0)],
)
def test_when_the_machine_was_started_is_read(stat: str, expected: float) -> None:
    assert booted_at(stat) == expected


@needs_kubectl
def test_a_verdict_of_before_the_machine_was_started_is_none(gate: GateBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.gate.wait.booted_at", lambda _: time.time() + 60)
    with gate.bed.node("gpu701"):
        gate.write({"gpu701": FIT})
        order = Wait("gpu701", patience_s=0.5)
        health = waited(api_of(gate.bed.plane.kubeconfig()), order, lambda _: None, threading.Event())
    assert health.reason == "OldVerdict"


@needs_kubectl
def test_an_api_server_that_does_not_answer_is_asked_again_and_ends_no_wait(
    gate: GateBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.gate.wait.LOOK_S", 0.1)
    messages: list[str] = []
    api = api_of(gate.bed.plane.kubeconfig())
    api.url = "https://127.0.0.1:1"
    order = Wait("gpu702", patience_s=60)

    def heard(line: str) -> None:
        messages.append(line)
        api.url = gate.bed.plane.url

    with gate.bed.node("gpu702"):
        gate.write({"gpu702": FIT})
        assert waited(api, order, heard, threading.Event()).status == TRUE
    assert messages[0].startswith("gpu702 is not proven yet: no answer from https://127.0.0.1:1")


@needs_kubectl
def test_a_node_that_is_not_there_is_waited_for(gate: GateBed) -> None:
    order = Wait("gpu703", patience_s=0.5)
    health = waited(api_of(gate.bed.plane.kubeconfig()), order, lambda _: None, threading.Event())
    assert (health.status, health.message) == (UNKNOWN, '404 NotFound: nodes "gpu703" not found')


def test_no_request_lasts_longer_than_there_is_time_to_wait() -> None:
    limits: list[float] = []

    def send(*_: object, timeout: Any, **__: object) -> None:
        limits.append(max(timeout.connect_timeout, timeout.read_timeout))
        raise OSError("nobody listens")

    api = Api("https://127.0.0.1:1", send)
    api._has_answered = True  # as after a first request: it would retry by itself
    health = waited(api, Wait(NODE, patience_s=0.1), lambda _: None, threading.Event())
    assert health.reason == "NoAnswer"
    assert limits
    assert max(limits) <= LAST_S


def test_where_nothing_tells_when_the_machine_was_started_the_age_of_a_verdict_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.gate.wait.STAT", tmp_path / "gone")
    body = json.dumps(node_json(TRUE, time.time())).encode()
    answer = SimpleNamespace(status=200, headers={}, stream=lambda _: [body], release_conn=lambda: None)
    api = Api("https://127.0.0.1:1", lambda *_, **__: answer)
    assert waited(api, Wait(NODE), lambda _: None, threading.Event()).status == TRUE


def test_a_token_that_is_refused_for_a_moment_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.gate.wait.LOOK_S", 0.01)
    refused = SimpleNamespace(status=401, headers={}, stream=lambda _: [b"{}"], release_conn=lambda: None)
    body = json.dumps(node_json(TRUE, time.time())).encode()
    answered = SimpleNamespace(status=200, headers={}, stream=lambda _: [body], release_conn=lambda: None)
    answers, messages = iter([refused, refused, answered]), list[str]()
    api = Api("https://127.0.0.1:1", lambda *_, **__: next(answers))
    assert waited(api, Wait(NODE), messages.append, threading.Event()).status == TRUE
    assert len(messages) == 1
    assert "401" in messages[0]


@pytest.mark.parametrize("broken", [ValueError("not UTF-8"), RuntimeError()])
def test_what_breaks_in_a_wait_does_not_read_as_an_unfit_node(
    broken: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> None:
        raise broken

    monkeypatch.setattr("clusterproof.plugins.command_line.gate.open_api", breaks)
    assert main(["gate", "wait", "k8s:in-cluster", "--node", NODE]) == 4
    assert f"the wait itself broke: {type(broken).__name__}" in capsys.readouterr().err


@needs_kubectl
def test_a_user_who_may_read_no_nodes_is_told_at_once(gate: GateBed) -> None:
    _, token = gate.bed.account([])
    with pytest.raises(KubernetesDenied, match="expected the right to get nodes"):
        waited(api_of(gate.bed.plane.kubeconfig(token)), Wait(NODE), lambda _: None, threading.Event())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wait", "k8s:bed"], "expected gate wait X --node NAME"),
        (["remove", "k8s:bed", "--node", "gpu001"], "expected gate wait X --node NAME"),
        (["wait", "k8s:bed", "--node", "gpu001", "--timeout", "0"], "expected a whole number of seconds"),
        (["wait", "--node", "gpu001"], "gate wait X"),
        (["wait", "k8s:bed", "--node", "$(NODE)"], "expected the name of a node"),
        (["wait", "k8s:bed", "--node", "../namespaces/default"], "expected the name of a node"),
        (["wait", "k8s:bed", "--node", "gpu001?watch=true"], "expected the name of a node"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["gate", *words])
    assert expected in capsys.readouterr().err
