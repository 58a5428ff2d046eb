"""Why a pod did not reach a node: each reason in its own words, and only the node's own are held against it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Unusable
from tests.kubernetes.programs import NODE, PODS, Meanwhile, answer_of, run, shell
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.machine import KUBE_PROXY, MAX_PODS
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
IMAGES = [{"names": ["registry.k8s.io/kube-proxy:v1"], "sizeBytes": 1}]


def speaks_against_node(answer: Answer) -> bool:
    assert answer.unreached
    return unreached_rows()[answer.unreached.value].speaks_against_node


def test_a_node_that_is_not_ready_is_reported_in_its_kubelets_words_and_gets_no_pod(kubernetes: Bed) -> None:
    ready_condition = {"reason": "KubeletNotReady", "message": "container runtime is down"}
    with kubernetes.node("gpu002", ready="False", images=IMAGES, **ready_condition):
        answer = run(shell("true"), "gpu002")["gpu002"]
    assert answer.unreached is Unreached.NOT_READY
    assert answer.detail.startswith("Ready is False since 20")
    assert answer.detail.endswith("Z: KubeletNotReady: container runtime is down")
    assert speaks_against_node(answer)


def test_a_node_whose_kubelet_has_died_does_not_start_the_pod_and_soon_is_not_ready(kubernetes: Bed) -> None:
    with kubernetes.machine.without_kubelet():
        answer = answer_of("true", connect_s=0.1) if kubernetes.machine.ready() == "True" else None
        with kubernetes.plane.noticing_silence():
            wait_until(lambda: kubernetes.machine.ready() == "Unknown", "noticed")
            later = answer_of("true")
    assert answer is None or answer.unreached is Unreached.NOT_STARTED
    assert later.unreached is Unreached.NOT_READY
    assert "NodeStatusUnknown: Kubelet stopped posting node status" in later.detail


def test_a_name_that_kubernetes_does_not_know_is_reported(kubernetes: Bed) -> None:
    answer = run(shell("true"), "gpu009")["gpu009"]
    assert (answer.unreached, answer.detail) == (
        Unreached.NOT_READY,
        "Kubernetes has no node of this name; expected one of kubectl get nodes",
    )


def test_an_image_that_is_not_on_the_node_is_reported_and_not_waited_for(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.visit.image_on", lambda _: "localhost/none:1")
    answer = answer_of("true")
    assert answer.unreached is Unreached.NO_IMAGE
    assert answer.detail.startswith("ErrImageNeverPull: localhost/none:1: ")
    assert answer.detail.endswith("expected --k8s-image")
    assert not speaks_against_node(answer)


def test_an_image_of_the_users_that_cannot_be_pulled_is_reported(kubernetes: Bed) -> None:
    answer = run(shell("true"), k8s_image="localhost:9/python:3")[NODE]
    assert answer.unreached is Unreached.NO_IMAGE
    assert "localhost:9/python:3" in answer.detail


def test_a_node_without_the_hosts_loader_says_which_system_it_is(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.LOADERS", {"amd64": ("no-loader", "none", "none")})
    answer = answer_of("true")
    assert answer.unreached is Unreached.NO_PYTHON
    assert "nothing of the host's starts there (Debian GNU/Linux" in answer.detail
    assert "no-loader" in answer.detail
    assert "--k8s-image" in answer.detail


def test_a_pod_that_somebody_deletes_is_reported(kubernetes: Bed) -> None:
    with Meanwhile(kubernetes, "sleep 60") as meanwhile:
        kubernetes.plane.call("DELETE", f"{PODS}/{meanwhile.pod()}")
    (answer,) = meanwhile.answers
    assert answer.unreached is Unreached.REMOVED
    assert answer.detail == "its pod was deleted meanwhile, by whom is not known"
    assert not speaks_against_node(answer)


def test_a_pod_that_is_evicted_says_by_whom(kubernetes: Bed) -> None:
    with Meanwhile(kubernetes, "sleep 60") as meanwhile:
        name = meanwhile.pod()
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        kubernetes.plane.call("POST", f"{PODS}/{name}/eviction", eviction)
    (answer,) = meanwhile.answers
    assert answer.unreached is Unreached.REMOVED
    assert "Eviction API: evicting" in answer.detail


def test_a_node_full_of_pods_is_busy_in_the_kubelets_words(kubernetes: Bed) -> None:
    container = {"name": "one", "image": KUBE_PROXY, "imagePullPolicy": "Never", "command": ["/pause"]}
    spec = {"nodeName": NODE, "hostNetwork": True, "containers": [container], "terminationGracePeriodSeconds": 0}
    for number in range(MAX_PODS):
        kubernetes.plane.call("POST", PODS, {"metadata": {"name": f"full-{number}"}, "spec": spec})
    try:
        wait_until(lambda: all(pod["status"]["phase"] == "Running" for pod in kubernetes.plane.items(PODS)), "full")
        answer = answer_of("true")
    finally:
        kubernetes.plane.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        wait_until(lambda: not kubernetes.left(), "empty")
    assert answer.unreached is Unreached.BUSY
    assert "OutOfpods" in answer.detail
    assert not speaks_against_node(answer)


def test_a_node_whose_processors_and_memory_jobs_have_requested_is_reached(kubernetes: Bed) -> None:
    (node,) = (entry for entry in kubernetes.plane.items("/api/v1/nodes") if entry["metadata"]["name"] == NODE)
    all_of_it = {name: node["status"]["allocatable"][name] for name in ("cpu", "memory")}
    container = {
        "name": "one",
        "image": KUBE_PROXY,
        "imagePullPolicy": "Never",
        "command": ["/pause"],
        "resources": {"requests": all_of_it},
    }
    spec = {"nodeName": NODE, "hostNetwork": True, "containers": [container], "terminationGracePeriodSeconds": 0}
    kubernetes.plane.call("POST", PODS, {"metadata": {"name": "whole"}, "spec": spec})
    try:
        wait_until(
            lambda: all(entry["status"]["phase"] == "Running" for entry in kubernetes.plane.items(PODS)), "packed"
        )
        answer = answer_of("echo reached")
    finally:
        kubernetes.plane.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        wait_until(lambda: not kubernetes.left(), "empty")
    assert (answer.unreached, answer.output) == (None, b"reached\n")


def test_a_log_that_the_control_plane_cannot_read_is_reported(kubernetes: Bed) -> None:
    kubernetes.machine.set_address("127.0.0.2")  # no kubelet listens there
    try:
        answer = answer_of("true")
    finally:
        kubernetes.machine.set_address("127.0.0.1")
    assert answer.unreached is Unreached.NO_LOG
    assert answer.detail.startswith("it ran; the control plane cannot read its log: 500: ")
    assert "connection refused" in answer.detail
    assert speaks_against_node(answer)


def test_a_program_that_does_not_end_is_not_waited_for(kubernetes: Bed) -> None:
    answer = answer_of("sleep 300", answer_s=2)
    assert (answer.unreached, answer.detail) == (Unreached.TIMED_OUT, "the probe did not end within 2 s")
    wait_until(lambda: not kubernetes.left(), "clean")


def test_a_program_that_takes_too_much_memory_is_reported(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.MEMORY_LIMIT", "48Mi")
    answer = answer_of('/usr/bin/python3 -c "x = bytearray(200 << 20)"')
    assert answer.unreached is Unreached.CUT
    assert "OOMKilled" in answer.detail


def test_a_rotated_log_yields_no_answer(kubernetes: Bed) -> None:
    answer = answer_of('echo begin; head -c 3000000 /dev/zero | tr "\\\\0" x | fold -w 1000; sleep 8; echo end')
    assert answer.output.endswith(b"end\n")
    assert b"begin" not in answer.output


def refused(**settings: Any) -> str:
    with pytest.raises(Unusable) as why:
        run(shell("true"), **settings)
    assert "\n" not in str(why.value)
    return str(why.value)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("list", "nodes"),
        ("create", "jobs"),
        ("create", "configmaps"),
        ("create", "pods"),
        ("list", "pods"),
        ("watch", "pods"),
        ("get", "pods/log"),
    ],
)
def test_without_one_of_the_rights_one_line_says_who_lacks_which(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, verb: str, resource: str
) -> None:
    user, token = kubernetes.granted(without=(verb, resource))
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    message = refused()
    assert f'User "{user}" cannot {verb} resource "{resource}"' in message
    if resource != "nodes":
        assert message.endswith("integrations/kubernetes/rbac.yaml grants what is needed (docs/kubernetes.md)")
    wait_until(lambda: not kubernetes.left(), "clean")


@pytest.mark.parametrize(("verb", "resource"), [("deletecollection", "pods"), ("delete", "configmaps")])
def test_what_may_not_be_deleted_goes_with_the_job(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, verb: str, resource: str
) -> None:
    _, token = kubernetes.granted(without=(verb, resource))
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    assert answer_of("echo done").output == b"done\n"
    wait_until(lambda: not kubernetes.left(), "clean")


def test_a_namespace_that_there_is_not_is_reported(kubernetes: Bed) -> None:
    message = refused(k8s_namespace="nowhere")
    assert 'namespaces "nowhere" not found' in message
    assert "integrations/kubernetes/rbac.yaml" in message


def test_credentials_that_end_in_the_middle_of_a_run_cost_no_node_a_fail(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, token = kubernetes.granted()
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    with pytest.raises(Unusable, match="401 Unauthorized"):
        with_account_removed(kubernetes, user)
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig()))
    kubernetes.plane.call("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?propagationPolicy=Background")
    wait_until(lambda: not kubernetes.left(), "clean")


def with_account_removed(kubernetes: Bed, user: str) -> None:
    import threading

    def remove() -> None:
        wait_until(
            lambda: any(pod["status"].get("phase") == "Running" for pod in kubernetes.plane.items(PODS)), "running"
        )
        name = user.rpartition(":")[2]
        kubernetes.plane.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}")

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        answer_of("sleep 15")
    finally:
        thread.join()
