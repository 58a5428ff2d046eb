"""Pods that load a node: what they request from the scheduler, and why a node gets none."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Unusable
from clusterproof.plugins.transport.kubernetes.connection import PerfPods
from tests.builders.runs import ROOT
from tests.kubernetes.perf import GPU, GPUS, NAMES, RANKS, job, output_of, run
from tests.kubernetes.programs import PODS, expire_jobs
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_cluster, needs_kubernetes, needs_openmpi

pytestmark = [needs_kubernetes, needs_cluster, needs_openmpi]
NODE = NAMES[0]
TAKES = "the scheduler has not placed its pod within"


def test_a_program_runs_in_the_image_with_the_nodes_devices_network_and_memory(perf: Nodes) -> None:
    answer = run("ls() { echo $*; }; ls /dev/nvidia*; uname -n; id -u; sed -n s,.*/dev/shm.*,shm,p /proc/mounts")[NODE]
    lines = output_of(answer).splitlines()
    assert (answer.unreached, len(lines[0].split()), lines[1:]) == (None, GPUS, [NODE, "0", "shm"]), answer
    assert perf.left() == []


def test_the_scheduler_places_it_and_nothing_of_the_host_is_in_it(perf: Nodes) -> None:
    pods = in_a_process("sleep 60")
    try:
        pod = running(perf)
    finally:
        end(pods, perf)
    (container,) = pod["spec"]["containers"]
    events = [event["reportingComponent"] for event in perf.plane.items("/api/v1/namespaces/clusterproof/events")]
    assert "default-scheduler" in events
    assert container["resources"]["limits"] == {GPU: str(GPUS)}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 0}
    assert [set(volume) - {"name"} for volume in pod["spec"]["volumes"]] == [{"emptyDir"}]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"


def test_while_it_runs_no_job_gets_a_gpu_of_the_node(perf: Nodes) -> None:
    pods = in_a_process("sleep 60")
    try:
        running(perf)
        reasons = PerfPods().unavailable([Target(name) for name in NAMES], {"k8s_perf_image": RANKS})
    finally:
        end(pods, perf)
    assert list(reasons) == [NODE]
    assert reasons[NODE].startswith(f"taken: {GPUS} of {GPUS} {GPU} by clusterproof/clusterproof-")


def test_a_node_of_which_a_job_has_a_gpu_is_not_touched_and_others_are(perf: Nodes) -> None:
    user, token = granted(perf)
    with pytest.MonkeyPatch.context() as patch, job(perf, NODE, 1) as name:
        patch.setenv("KUBECONFIG", str(perf.plane.kubeconfig(token)))
        answers = run("echo done", *NAMES)
    assert (answers[NODE].unreached, answers[NODE].detail) == (
        Unreached.BUSY,
        f"taken: 1 of {GPUS} {GPU} by {name}; expected all free",
    )
    assert output_of(answers[NAMES[1]]) == "done\n"
    made = [
        request
        for request in perf.plane.requests(user)
        if (request["verb"], request["objectRef"]["resource"]) == ("create", "pods")
    ]
    assert len({request["auditID"] for request in made}) == 1


def test_a_gpu_that_is_taken_in_the_meantime_is_reported_in_the_schedulers_words(
    perf: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.perf.allocated", lambda *_: "")
    with job(perf, NODE, 1):
        answer = run("echo done", connect_s=3)[NODE]
    assert answer.unreached is Unreached.BUSY
    assert answer.detail.startswith(f"{TAKES} 3 s: 0/3 nodes are available: 1 Insufficient {GPU}"), answer.detail
    assert perf.left() == []


def test_an_image_that_cannot_be_pulled_is_reported_with_its_option(perf: Nodes) -> None:
    answer = run("true", k8s_perf_image="localhost:9/nccl-tests:1")[NODE]
    assert answer.unreached is Unreached.NO_IMAGE
    assert "localhost:9/nccl-tests:1" in answer.detail
    assert answer.detail.endswith("expected --k8s-perf-image")
    assert perf.left() == []


def test_a_node_with_a_gpu_that_its_plugin_holds_back_gets_no_pod(perf: Nodes) -> None:
    path = f"{perf.machines[NODE].path}/status"
    with perf.machines[NODE].without_kubelet():
        perf.plane.patch(path, {"status": {"allocatable": {GPU: "7"}}})
        answer = run("true")[NODE]
    wait_until(lambda: perf.plane.call("GET", path)["status"]["allocatable"][GPU] == str(GPUS), "given again")
    assert (answer.unreached, answer.detail) == (
        Unreached.BUSY,
        f"7 of {GPUS} {GPU} can be allocated; expected all",
    )


def test_gpus_that_pods_share_are_not_measured(perf: Nodes) -> None:
    label = "nvidia.com/gpu.sharing-strategy"
    perf.plane.patch(perf.machines[NODE].path, {"metadata": {"labels": {label: "time-slicing"}}})
    answer = run("true")[NODE]
    perf.plane.patch(perf.machines[NODE].path, {"metadata": {"labels": {label: None}}})
    assert answer.unreached is Unreached.BUSY
    assert answer.detail.startswith(f"its GPUs are shared ({label}=time-slicing)")


def test_a_quota_that_leaves_no_room_is_reported_with_the_way_out(perf: Nodes) -> None:
    path = "/api/v1/namespaces/clusterproof/resourcequotas"
    perf.plane.call("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": {f"requests.{GPU}": "4"}}})
    try:
        wait_until(lambda: "hard" in perf.plane.items(path)[0].get("status", {}), "counted")
        with pytest.raises(Unusable) as why:
            run("true")
    finally:
        perf.plane.call("DELETE", f"{path}/few")
    assert f"exceeded quota: few, requested: requests.{GPU}={GPUS}, used: requests.{GPU}=0, limited" in str(why.value)
    assert "expected room in that quota of the namespace clusterproof" in str(why.value)
    assert perf.left() == []


def test_a_pod_that_somebody_deletes_is_reported(perf: Nodes) -> None:
    answers: list[Answer] = []
    visit = threading.Thread(target=lambda: answers.append(run("sleep 60")[NODE]))
    visit.start()
    perf.plane.call("DELETE", f"{PODS}/{running(perf)['metadata']['name']}")
    visit.join()
    assert answers[0].unreached is Unreached.REMOVED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(perf: Nodes, number: signal.Signals) -> None:
    pods = in_a_process("sleep 300")
    running(perf)
    pods.send_signal(number)
    assert pods.wait(60) != 0
    expire_jobs(perf.plane)
    wait_until(lambda: not perf.left(), "cleared away")


def test_without_an_image_nothing_is_asked_of_the_cluster() -> None:
    with pytest.raises(Unusable, match="expected --k8s-perf-image IMAGE"):
        run("true", k8s_perf_image="")


def running(bed: Nodes) -> dict[str, Any]:
    """The run's pod, once it runs."""
    wait_until(lambda: any(pod["status"].get("phase") == "Running" for pod in bed.plane.items(PODS)), "running")
    return bed.plane.items(PODS)[0]


def in_a_process(script: str) -> subprocess.Popen[bytes]:
    """Run in a separate process."""
    code = f"from tests.kubernetes.perf import *; run({script!r}, answer_s=300, connect_s=600)"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes], bed: Nodes) -> None:
    process.send_signal(signal.SIGINT)
    process.wait(60)
    wait_until(lambda: not bed.left(), "clean")


def granted(bed: Nodes) -> tuple[str, str]:
    """A user with the rights that the documents request."""
    return Bed(bed.plane, bed.machines[NODE]).granted()
