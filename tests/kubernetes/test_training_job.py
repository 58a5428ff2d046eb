"""A Kubernetes job by name: its nodes are its pods' nodes, and a watch of it ends with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.inventory import InventoryError, resolve
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.training_job import ABSENT_S, LABELS, OF_JOB, JobState, job_named
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.watch import job as module
from clusterproof.reports.results import read_results
from tests.kubernetes.programs import NODE, PODS
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.machine import SANDBOX
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
PODS_OF_JOBS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def spec(node: str, *, is_on_network: bool = False) -> dict[str, Any]:
    """A pod that does nothing on this node; if it has its own network, the bed's kubelet does not start it."""
    container = {"name": "train", "image": SANDBOX, "imagePullPolicy": "Never"}
    ends = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"nodeName": node, "hostNetwork": not is_on_network, "containers": [container], **ends}


@contextlib.contextmanager
def job(kubernetes: Bed, name: str) -> Iterator[str]:
    """A Job whose pod runs; its path."""
    body = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": spec(NODE)}}}
    kubernetes.plane.call("POST", JOBS, body)
    try:
        wait_until(lambda: "Running" in phases(kubernetes), "running")
        yield f"{JOBS}/{name}"
    finally:
        kubernetes.plane.call("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
        wait_until(lambda: "Running" not in phases(kubernetes), "gone")


def phases(kubernetes: Bed) -> list[str]:
    return [str(entry["status"].get("phase")) for entry in kubernetes.plane.items(PODS_OF_JOBS)]


@contextlib.contextmanager
def pod(kubernetes: Bed, name: str, node: str, **labels: str) -> Iterator[None]:
    """A pod as an operator creates it."""
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec(node, is_on_network=True)}
    kubernetes.plane.call("POST", PODS_OF_JOBS, body)
    try:
        yield
    finally:
        kubernetes.plane.call("DELETE", f"{PODS_OF_JOBS}/{name}?gracePeriodSeconds=0")


def test_the_watch_of_a_job_ends_as_it_does_and_leaves_its_report(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.5)
    monkeypatch.setattr(module, "MIN_S", 0.5)
    monkeypatch.chdir(tmp_path)
    seen: list[int] = []
    other = pod(kubernetes, "train-1", "gpu009", **{OF_JOB: "train"})
    with kubernetes.node("gpu009", ready="False"), other, job(kubernetes, "train") as path:

        def end_it() -> None:
            wait_until(lambda: list(Path("clusterproof-job-default-train").glob(f"{NODE}.samples*")), "a sample")
            seen.append(len(kubernetes.plane.items(PODS)))
            kubernetes.plane.patch(path, {"spec": {"activeDeadlineSeconds": 1}})

        ends = threading.Thread(target=end_it)
        ends.start()
        arguments = ["--job", "default/train", "--cluster", "k8s:bed", "--every", "1", "--connect-timeout", "60"]
        code = main(["watch", *arguments, "--steps", "nowhere.log"])
        ends.join()
    out = capsys.readouterr().out
    assert code in (0, 1, 10)
    assert seen == [1]
    assert "job default/train has ended" in out
    assert "2 nodes, " in out
    assert "--steps nowhere.log: there is no such file" in out
    assert kubernetes.left() == []
    results = read_results(tmp_path / "clusterproof-job-default-train" / "report" / "results.jsonl")
    assert NODE in {result.node for result in results}
    assert read_run([str(tmp_path / "clusterproof-job-default-train")]).data.pods == {"train-1": "gpu009"}


def test_whoever_may_not_read_the_job_goes_by_its_pods(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = kubernetes.granted(without=("get", "jobs"))
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    now, api = [0.0], open_api({"kubernetes": "context:bed"})
    with kubernetes.node("gpu009"):
        with pod(kubernetes, "train-0", "gpu009", **{OF_JOB: "train"}):
            state = JobState(api, *job_named(api, "default/train"), moved=print, clock=lambda: now[0])
            assert state()
        assert state()
        now[0] = ABSENT_S
        assert not state()


@pytest.mark.parametrize("label", LABELS)
def test_its_nodes_are_those_of_its_pods_whoever_made_them(kubernetes: Bed, label: str) -> None:
    with kubernetes.node("gpu009"), pod(kubernetes, "worker-0", "gpu009", **{label: "llama"}):
        cluster = resolve("k8s:bed/job:default/llama")
    assert [target.name for target in cluster.targets] == ["gpu009"]


def test_a_node_of_its_that_kubernetes_has_no_more_is_one_of_them(kubernetes: Bed) -> None:
    label = {LABELS[0]: "llama"}
    lost = pod(kubernetes, "worker-1", "gpu008", **label)
    with kubernetes.node("gpu009"), pod(kubernetes, "worker-0", "gpu009", **label), lost:
        cluster = resolve("k8s:bed/job:default/llama")
    assert [target.name for target in cluster.targets] == ["gpu009", "gpu008"]


def test_one_whose_pods_end_is_over_unless_others_begin_in_time(kubernetes: Bed) -> None:
    now, moved = [0.0], list[str]()
    label = {LABELS[1]: "llama"}
    api = open_api({"kubernetes": "context:bed"})
    with kubernetes.node("gpu008"), kubernetes.node("gpu009"):
        with pod(kubernetes, "worker-0", "gpu008", **label):
            named, nodes = job_named(api, "default/llama")
            state = JobState(api, named, nodes, moved.extend, lambda: now[0])
            assert state()
        now[0] = ABSENT_S - 1
        assert state()
        with pod(kubernetes, "worker-1", "gpu009", **label):
            assert state()
            assert state()
        now[0] += ABSENT_S
        assert not state()
    assert moved == ["gpu009"]
    assert state.places == {"worker-0": "gpu008", "worker-1": "gpu009"}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("default/lama", "is of a job 'lama' (did you mean llama?): those of llama are there; expected NAMESPACE/NAME"),
        ("nowhere/llama", "no pod in the namespace nowhere is of a job 'llama': there are none of any job; expected"),
        ("Default/llama", "'Default/llama' is not a Kubernetes job; expected NAMESPACE/NAME of a Job"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_right_ones(kubernetes: Bed, named: str, said: str) -> None:
    with (
        kubernetes.node("gpu009"),
        pod(kubernetes, "worker-0", "gpu009", **{LABELS[0]: "llama"}),
        pytest.raises(InventoryError) as raised,
    ):
        resolve(f"k8s:bed/job:{named}")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
