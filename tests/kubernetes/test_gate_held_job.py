"""A job whose pods wait for their nodes' verdicts, as in held-job.yaml, on a real kubelet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import yaml

from clusterproof.plugins.kubernetes.gate import CONDITION
from clusterproof.plugins.kubernetes.gate.write import remove
from tests.kubernetes.gate import FIT, MANIFESTS, UNFIT, GateBed, api_of, kubectl
from tests.kubernetes.in_cluster import COMMAND, PODS, on_this_machine
from tests.testbed.kubernetes.bed import NAMESPACE
from tests.testbed.kubernetes.control_plane import scheduler
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

NODE, JOB = "gpu001", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/held"
GROUP = f"system:serviceaccounts:{NAMESPACE}"
on_kubelet = pytest.mark.skipif(
    not COMMAND.exists(), reason="no clusterproof beside this Python: scripts/environment dev"
)


@contextlib.contextmanager
def allowed(gate: GateBed) -> Iterator[None]:
    """The kubectl command in docs/kubernetes-gate.md that allows it."""
    kubectl(gate.bed, "create", "clusterrole", "clusterproof-wait", "--verb=get", "--resource=nodes")
    arguments = ("clusterrolebinding", "clusterproof-wait", "--clusterrole=clusterproof-wait", f"--group={GROUP}")
    kubectl(gate.bed, "create", *arguments)
    try:
        yield
    finally:
        for kind in ("clusterrolebinding", "clusterrole"):
            kubectl(gate.bed, "delete", kind, "clusterproof-wait")


@contextlib.contextmanager
def job(gate: GateBed, timeout_s: int = 600) -> Iterator[None]:
    """The manifest's job with this machine as image, on a node without a verdict."""
    whole = yaml.safe_load((MANIFESTS / "held-job.yaml").read_text())
    pod = on_this_machine(whole["spec"]["template"]["spec"], gate.bed.plane.port)
    pod["initContainers"][0]["command"][-1] = str(timeout_s)
    pod["containers"][0]["command"] = ["/bin/true"]
    remove(api_of(gate.bed.plane.kubeconfig()))
    with scheduler(gate.bed.plane):
        gate.bed.plane.call("POST", JOB.rpartition("/")[0], whole)
        try:
            yield
        finally:
            gate.bed.plane.call("DELETE", f"{JOB}?propagationPolicy=Foreground")
            wait_until(lambda: not gate.left(), "gone")


def terminations(gate: GateBed) -> list[tuple[int, str]]:
    """The exit code and last words of each pod's wait that has ended."""
    every = [entry["status"].get("initContainerStatuses", [{}])[0] for entry in gate.bed.plane.items(PODS)]
    ended = [entry["state"]["terminated"] for entry in every if "terminated" in entry.get("state", ())]
    return [(entry["exitCode"], entry.get("message", "").strip()) for entry in ended]


def conditions(gate: GateBed) -> dict[str, str]:
    """The reason of each true condition of the job."""
    status = gate.bed.plane.call("GET", JOB)["status"]
    return {
        condition["type"]: condition.get("reason", "")
        for condition in status.get("conditions", ())
        if condition["status"] == "True"
    }


def logs(gate: GateBed) -> str:
    every = gate.bed.plane.items(PODS)
    running = [
        pod for pod in every if "running" in pod["status"].get("initContainerStatuses", [{}])[0].get("state", ())
    ]
    names = [pod["metadata"]["name"] for pod in running]
    return "".join(kubectl(gate.bed, "logs", "--namespace", NAMESPACE, name, "--container=proven") for name in names)


@needs_kubectl
@on_kubelet
def test_a_gang_starts_once_its_node_is_proven(gate: GateBed) -> None:
    with allowed(gate), job(gate):
        wait_until(lambda: logs(gate).count("gate: gpu001 is not proven yet: it has no condition") == 2, "waiting")
        assert {pod["status"]["phase"] for pod in gate.bed.plane.items(PODS)} == {"Pending"}
        gate.write({NODE: FIT})
        wait_until(lambda: "Complete" in conditions(gate), "completed")


@needs_kubectl
@on_kubelet
def test_a_pod_on_a_node_that_is_unfit_says_so_and_another_is_made(gate: GateBed) -> None:
    with allowed(gate), job(gate):
        gate.write({NODE: UNFIT})
        wait_until(lambda: any(terminations(gate)), "refused")
        assert terminations(gate)[0] == (1, f"gate: gpu001 is unfit: {UNFIT.reason}: {UNFIT.message}")
        gate.write({NODE: FIT})
        wait_until(lambda: "Complete" in conditions(gate), "completed")


@needs_kubectl
@on_kubelet
def test_a_job_that_waits_in_vain_ends_and_says_why(gate: GateBed) -> None:
    with allowed(gate), job(gate, timeout_s=1):
        wait_until(lambda: "Failed" in conditions(gate), "failed")
        assert conditions(gate)["Failed"] == "PodFailurePolicy"
        code, message = terminations(gate)[0]
    assert code == 10
    assert f"gate: gpu001 is not proven after 1 s: NoVerdict: it has no condition {CONDITION}; expected" in message


@needs_kubectl
@on_kubelet
def test_a_pod_that_may_not_know_says_what_it_lacks(gate: GateBed) -> None:
    with job(gate):
        wait_until(lambda: "Failed" in conditions(gate), "failed")
        code, message = terminations(gate)[0]
    assert code == 4
    assert 'cannot get resource "nodes" in API group "" at the cluster scope' in message
    assert message.endswith("expected the right to get nodes (wait.namespaces of the chart)")


@needs_kubectl
@on_kubelet
def test_a_pod_that_is_told_to_go_while_it_waits_fails_no_job(gate: GateBed) -> None:
    with allowed(gate), job(gate):
        wait_until(lambda: logs(gate).count("gate: gpu001 is not proven yet") == 2, "waiting")
        gone = {pod["metadata"]["uid"] for pod in gate.bed.plane.items(PODS)}
        kubectl(gate.bed, "delete", "pods", "--namespace", NAMESPACE, "--selector=job-name=held", "--wait=false")
        wait_until(lambda: gone.isdisjoint(pod["metadata"]["uid"] for pod in gate.bed.plane.items(PODS)), "gone")
        gate.write({NODE: FIT})
        wait_until(lambda: {"Complete", "Failed"} & set(conditions(gate)), "ended")
        assert "Failed" not in conditions(gate)
