"""A real API server that delays, forgets or dies; a real node short of disk, or without its device plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from tests.builders.runs import ROOT, Runs
from tests.kubernetes.kubelets import LOG_BYTES, kubelets
from tests.kubernetes.programs import NODE, Meanwhile, answer_of, run, shell
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytest_plugins = ["pytester"]
pytestmark = needs_kubernetes
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
THROTTLED = "429: Too many requests, please try again later, by its flow schema {}; expected a smaller --fanout"
# The kubelet's words under pressure; in a sandbox its eviction manager sees no file system.
DISK_PRESSURE = "Pod was rejected: The node had condition: [DiskPressure]."
MANY = [f"many{number:02d}" for number in range(16)]


@contextlib.contextmanager
def one_seat(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Have the API server create one pod at a time for this user, and queue nothing; yields the user."""
    user, token = kubernetes.granted()
    account = {"name": user.rpartition(":")[2], "namespace": NAMESPACE}
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "one-seat"}, "spec": {"type": "Limited", "limited": limited}}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [{"verbs": ["create"], "apiGroups": [""], "resources": ["pods"], "namespaces": [NAMESPACE]}],
    }
    of_level = {"priorityLevelConfiguration": {"name": "one-seat"}, "matchingPrecedence": 2, "rules": [rule]}
    for kind, body in (
        ("prioritylevelconfigurations", level),
        ("flowschemas", {"metadata": {"name": "one-seat"}, "spec": of_level}),
    ):
        kubernetes.plane.call("POST", f"{FLOWS}/{kind}", body)
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    try:
        yield user
    finally:
        for kind in ("flowschemas", "prioritylevelconfigurations"):
            kubernetes.plane.call("DELETE", f"{FLOWS}/{kind}/one-seat")


def too_many(kubernetes: Bed, user: str) -> int:
    """How often the server has refused this user's requests as too many."""
    return sum((request.get("responseStatus") or {}).get("code") == 429 for request in kubernetes.plane.requests(user))


def test_an_api_server_that_says_later_is_asked_again(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    with one_seat(kubernetes, monkeypatch) as user, kubelets(kubernetes, MANY):
        answers = run(shell("true"), *MANY)
        assert too_many(kubernetes, user)
    assert {len(answers[name].output) for name in MANY} == {LOG_BYTES}


def test_when_it_has_been_asked_for_long_enough_a_node_is_throttled_and_nothing_is_left(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.api.RETRY_S", 0.0)
    with one_seat(kubernetes, monkeypatch), kubelets(kubernetes, MANY):
        schema = kubernetes.plane.call("GET", f"{FLOWS}/flowschemas/one-seat")["metadata"]["uid"]
        answers = run(shell("true"), *MANY)
    throttled = {answer.detail for answer in answers.values() if answer.unreached}
    assert {answer.unreached for answer in answers.values()} == {None, Unreached.THROTTLED}
    assert throttled == {THROTTLED.format(schema)}
    wait_until(lambda: not kubernetes.left(), "clean")


def test_an_api_server_that_is_started_anew_costs_no_node_its_answer(kubernetes: Bed) -> None:
    with Meanwhile(kubernetes, "sleep 5; echo done") as meanwhile:
        meanwhile.pod()
        kubernetes.plane.restart_apiserver()
    (answer,) = meanwhile.answers
    assert (answer.unreached, answer.output) == (None, b"done\n"), answer.detail
    wait_until(lambda: not kubernetes.left(), "clean")


def test_a_watch_from_what_the_server_has_forgotten_is_begun_anew(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.plane.restart_apiserver()  # it forgets all that was before
    watch = Api.watch
    refused: list[KubernetesError] = []

    def of_long_ago(api: Api, path: str, timeout_s: float, **query: object) -> Iterator[tuple[str, Any]]:
        try:
            yield from watch(api, path, timeout_s, **(query if refused else {**query, "resourceVersion": "1"}))
        except KubernetesError as problem:
            refused.append(problem)
            raise

    monkeypatch.setattr(Api, "watch", of_long_ago)
    assert answer_of("sleep 2; echo done").output == b"done\n"
    assert [problem.status for problem in refused] == [410]
    assert str(refused[0]).startswith("410 Expired: too old resource version: 1 (")


def test_a_node_that_is_short_of_disk_is_busy_in_the_kubelets_words(kubernetes: Bed) -> None:
    refused = {"phase": "Failed", "reason": "Evicted", "message": DISK_PRESSURE}
    with kubelets(kubernetes, MANY[:1], ended=refused):
        answer = run(shell("true"), MANY[0])[MANY[0]]
    assert (answer.unreached, answer.detail) == (
        Unreached.BUSY,
        f"the kubelet refused the pod: Evicted: {DISK_PRESSURE}",
    )


def test_a_node_without_device_plugin_and_driver_stays_in_and_both_are_reported(kubernetes: Bed, runs: Runs) -> None:
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}  # the only sign left that it has GPUs
    kubernetes.plane.patch(kubernetes.machine.path, {"metadata": {"labels": labels}})
    try:
        checks = ("-m", "preflight", "-k", "gpu_count or k8s_gpu_allocatable or reachable", str(ROOT / "checks"))
        runs.run("--cluster", "k8s:bed", "--connect-timeout", "60", "--results", str(runs.results_file), *checks)
    finally:
        kubernetes.plane.patch(kubernetes.machine.path, {"metadata": {"labels": dict.fromkeys(labels)}})
    results = {result.check: (result.node, result.verdict, result.message) for result in runs.results}
    assert results["node.reachable"][1] is Verdict.PASS
    assert results["control_plane.k8s_gpu_allocatable"] == (NODE, Verdict.FAIL, "0 GPUs allocatable; expected 8")
    assert results["gpu.gpu_count"][:2] == (NODE, Verdict.FAIL)
    assert "no NVML library" in results["gpu.gpu_count"][2]
