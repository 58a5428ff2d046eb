"""`clusterproof case NAMESPACE/NAME`: why a Kubernetes job ended, from its objects, logs, events and nodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from clusterproof.plugins.case.command import case
from clusterproof.plugins.case.kubernetes import belongs_to, is_of
from tests.kubernetes.dying_jobs import PODS, RAISES, case_of, conditions, containers, job, spec
from tests.kubernetes.programs import NODE
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
EVENTS = "/api/v1/namespaces/default/events"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OF_HYPERPOD = "/apis/sagemaker.amazonaws.com/v1/namespaces/default/hyperpodpytorchjobs"
BEGUN_ANEW = f"[ -e /state/begun ] && exec sleep 600; : >/state/begun; {RAISES}"


@pytest.mark.parametrize("named", ["default/train", "k8s:bed/job:default/train"])
def test_a_jobs_own_words_its_end_and_its_node_are_read(kubernetes: Bed, named: str) -> None:
    with job(kubernetes, "train", spec(RAISES)) as path:
        wait_until(lambda: "Failed" in conditions(kubernetes, path), "ended")
        report = case_of(named)
        text = case([named])[1]
    assert (report["cause"], report["rank"], report["nodes"]) == ("code", 3, []), report["ticket"]
    assert (report["job"]["state"], report["job"]["nodes"]) == ("Failed", [NODE])
    assert None not in (report["job"]["ran"]["begins"], report["job"]["ran"]["ends"])
    first = next(row for row in report["timeline"] if row["mark"] == ">")
    assert first["where"] == f"{NODE} rank 3"
    assert first["when"]["ends"] - first["when"]["begins"] < 1, "its container's runtime dated it"
    assert "1 job of Kubernetes" in report["read"]
    assert text.startswith(f"Job default/train on 1 node ({NODE}), Failed, ended 20")
    assert "journalctl -k" in text


def test_the_previous_log_of_a_restarted_container_is_read(kubernetes: Bed) -> None:
    with job(kubernetes, "train", spec(BEGUN_ANEW, "OnFailure")):
        wait_until(lambda: any(status["restartCount"] for status in containers(kubernetes)), "begun anew")
        report = case_of("default/train")
    assert (report["cause"], report["rank"]) == ("code", 3), report["ticket"]
    assert any(row["source"].endswith("/train.previous.log:2") for row in report["timeline"])


def test_events_of_an_earlier_job_of_the_same_name_are_not_its_own(kubernetes: Bed) -> None:
    about = {"kind": "Job", "namespace": "default", "name": "train", "uid": "5a1c7d52-0000-0000-0000-000000000000"}
    ended = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    since = f"{datetime.now(timezone.utc) - timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"
    event = {"metadata": {"name": "train.earlier"}, "involvedObject": about, "lastTimestamp": since, **ended}
    kubernetes.plane.call("POST", EVENTS, event)
    with job(kubernetes, "train", spec(RAISES)) as path:
        wait_until(lambda: "Failed" in conditions(kubernetes, path), "ended")
        report = case_of("default/train")
    assert (report["cause"], report["rank"]) == ("code", 3), report["ticket"]


def test_a_job_that_completed_is_said_to_have_and_one_that_runs_is_no_case(kubernetes: Bed) -> None:
    with job(kubernetes, "train", spec("echo done")) as path:
        wait_until(lambda: "Complete" in conditions(kubernetes, path), "ended")
        assert case_of("default/train")["standing"] == "completed"
        assert "as Kubernetes says: Complete." in " ".join(case(["default/train"])[1].split())
    with job(kubernetes, "train", spec("sleep 600")):
        wait_until(lambda: any("running" in status["state"] for status in containers(kubernetes)), "running")
        code, text = case(["default/train"])
    assert (code, "job default/train runs, and no container of it has ended" in text) == (4, True)


def test_there_is_no_case_of_a_job_that_is_not_there(kubernetes: Bed) -> None:
    code, text = case(["default/nothing"])
    assert (code, text.count("\n")) == (4, 1)
    assert "Kubernetes has no job 'default/nothing' and no pod of one" in text


@contextlib.contextmanager
def hyperpod(kubernetes: Bed, name: str, node: str, status: dict[str, Any]) -> Iterator[None]:
    """A job of HyperPod's training operator: its object, with the definition's name and scope, and a pod."""
    names = {"plural": "hyperpodpytorchjobs", "singular": "hyperpodpytorchjob", "kind": "HyperPodPyTorchJob"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    group = "sagemaker.amazonaws.com"
    plan = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    crd: dict[str, Any] = {"metadata": {"name": f"{names['plural']}.{group}"}, "spec": plan}
    kubernetes.plane.call("POST", CRDS, crd)
    wait_until(lambda: "Established" in conditions(kubernetes, f"{CRDS}/{crd['metadata']['name']}"), "known")
    kind = {"apiVersion": f"{group}/v1", "kind": names["kind"]}
    kubernetes.plane.call("POST", OF_HYPERPOD, {**kind, "metadata": {"name": name}, "spec": {"nprocPerNode": "8"}})
    kubernetes.plane.patch(f"{OF_HYPERPOD}/{name}/status", {"status": status})
    pod = {"nodeName": node, "containers": [{"name": "train", "image": "localhost/none:1"}]}
    kubernetes.plane.call("POST", PODS, {"metadata": {"name": f"{name}-pod-0"}, "spec": pod})
    try:
        yield
    finally:
        kubernetes.plane.call("DELETE", f"{PODS}/{name}-pod-0?gracePeriodSeconds=0")
        kubernetes.plane.call("DELETE", f"{CRDS}/{crd['metadata']['name']}")


def test_a_job_of_hyperpod_whose_node_was_lost_blames_no_operator(kubernetes: Bed) -> None:
    lost = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager",
    }
    over = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-02T03:09:05Z"}
    status = {"startTime": "2026-01-02T02:04:05Z", "conditions": [over]}
    name = "gpu009.cluster.example"
    with kubernetes.node(name, ready="Unknown", reason="NodeStatusUnknown"), hyperpod(kubernetes, "ai", name, status):
        since = {"lastTransitionTime": "2026-01-02T03:08:05Z"}
        ended = {"phase": "Failed", "conditions": [{**lost, **since}]}
        kubernetes.plane.patch(f"{PODS}/ai-pod-0/status", {"status": ended})
        report = case_of("default/ai")
    assert (report["cause"], report["nodes"], report["suspects"]) == ("unknown", [], ["gpu009"]), report["ticket"]
    assert report["job"]["state"] == "Failed"
    assert report["commands"][0] == f"clusterproof check k8s: --nodes {name} -k 'reachable or kernel_oops or lockups'"
    assert any(reason.startswith("ai-pod-0/train.log: ") for reason in report["missing"]) is False


GONE = "the node gpu009.cluster.example: Kubernetes has no such node"


@pytest.mark.parametrize(("is_gone", "missing"), [(False, []), (True, [GONE])])
def test_whoever_may_list_nodes_learns_which_of_a_jobs_are_not_ready_or_gone(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, is_gone: bool, missing: list[str]
) -> None:
    own = {"apiGroups": ["*"], "resources": ["pods", "hyperpodpytorchjobs"], "verbs": ["get", "list"]}
    _, token = kubernetes.account([], [own, {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])
    name, over = "gpu009.cluster.example", {"type": "Failed", "status": "True", "lastTransitionTime": NOW}
    node = contextlib.nullcontext() if is_gone else kubernetes.node(name, ready="Unknown", reason="NodeStatusUnknown")
    with node, hyperpod(kubernetes, "ai", name, {"startTime": EARLIER, "conditions": [over]}):
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        report = case_of("default/ai")
    assert [reason for reason in report["missing"] if reason.startswith(("whether its nodes", "the node"))] == missing
    assert any("not ready since" in json.dumps(row) for row in report["timeline"]) is not is_gone


@pytest.mark.parametrize(
    ("pod", "replicas", "is_its"),
    [
        ({"name": "ai-pod-0"}, ["pod"], True),
        ({"name": "ai-worker-12"}, ["head", "worker"], True),
        ({"name": "ai-pod-pod-0"}, ["pod"], False),  # a pod of the job ai-pod
        ({"name": "ai-pod-0"}, [], False),  # no HyperPod job has this name
        ({"name": "ai-pod-x"}, ["pod"], False),
        ({"name": "any", "labels": {"batch.kubernetes.io/job-name": "ai"}}, [], True),
        ({"name": "any", "ownerReferences": [{"kind": "HyperPodPyTorchJob", "name": "ai"}]}, [], True),
        ({"name": "any", "ownerReferences": [{"kind": "ReplicaSet", "name": "ai"}]}, [], False),
    ],
)
def test_a_pod_is_of_the_job_that_its_labels_its_owner_or_its_whole_name_say(
    pod: dict[str, Any], replicas: list[str], is_its: bool
) -> None:
    assert is_of({"metadata": pod}, "ai", replicas) is is_its


EARLIER, NOW = "2026-01-02T03:04:05Z", "2026-01-02T03:09:05Z"


@pytest.mark.parametrize(
    ("made", "owner", "is_its"),
    [
        (NOW, {"name": "ai", "uid": "new"}, True),
        (NOW, {"name": "ai", "uid": "old"}, False),
        (EARLIER, {"name": "ai-workers-0", "uid": "any"}, False),  # of a JobSet, whose Jobs have other names
        (NOW, {"name": "ai-workers-0", "uid": "any"}, True),
        ("", {"name": "ai", "uid": "new"}, True),
    ],
)
def test_a_pod_of_an_earlier_job_of_the_same_name_is_none_of_its(
    made: str, owner: dict[str, str], is_its: bool
) -> None:
    pod = {"metadata": {"name": "ai-0", "creationTimestamp": made, "ownerReferences": [owner]}}
    assert belongs_to(pod, "ai", [{"uid": "new", "creationTimestamp": NOW}]) is is_its


def test_what_a_user_may_not_read_is_said(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = kubernetes.account([], [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]}])
    with job(kubernetes, "train", spec(RAISES)) as path:
        wait_until(lambda: "Failed" in conditions(kubernetes, path), "ended")
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        report = case_of("default/train")
    assert report["job"]["nodes"] == [NODE]
    for what in (
        "a Job, ",
        "/train.log",
        "the events of default",
        "whether its nodes are ready",
    ):
        assert any(what in reason for reason in report["missing"]), what
