"""The gate as it is used: the command by the account of the manifests, and the CronJob's own pod on a real kubelet."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.gate.objects import moment
from tests.builders.runs import ROOT
from tests.kubernetes.gate import ACCOUNT, GateBed, kubectl
from tests.testbed.kubernetes.bed import NAMESPACE
from tests.testbed.kubernetes.machine import KUBE_PROXY
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
TYPE = {"node.kubernetes.io/instance-type": "p5.48xlarge"}  # whose GPUs this machine does not have
WORDS = ("-m", "prolog or epilog", "--no-report", "-q", "--k8s-gate", "observe")
COMMAND = Path(sys.executable).parent / "clusterproof"
HOST = dict.fromkeys(("/bin", "/lib", "/lib64", "/usr", sys.base_prefix, str(ROOT)))  # a Python, and the suite


@contextlib.contextmanager
def labelled(gate: GateBed) -> Iterator[str]:
    """The node with a kubelet, as one that should have GPUs."""
    node = gate.bed.machine
    gate.bed.plane.patch(node.path, {"metadata": {"labels": TYPE}})
    try:
        yield node.name
    finally:
        gate.bed.plane.patch(node.path, {"metadata": {"labels": dict.fromkeys(TYPE)}})


def run(gate: GateBed, *words: str) -> tuple[int, str]:
    """The exit code and what is said."""
    command = [
        sys.executable,
        "-c",
        "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())",
    ]
    environment = {"KUBECONFIG": str(gate.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    command += ["check", "k8s:bed", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def left(gate: GateBed) -> list[str]:
    """What there is of runs, beside the gate's own settings."""
    return [one for one in gate.bed.left() if not one.startswith(f"configmaps/{ACCOUNT}-")]


def test_a_run_by_the_gates_own_account_writes_what_it_found(gate: GateBed) -> None:
    with labelled(gate) as name:
        status, said = run(gate, *WORDS)
        condition = gate.condition(name)
    assert status == 1, said
    assert "gate: ClusterproofHealthy of 1 of 1 nodes: 1 False; 1 changed" in said
    assert (condition["status"], condition["reason"][:3]) == ("False", "Gpu")
    assert gate.events(name)[-1][0] == "Warning"
    assert left(gate) == []


def test_a_run_that_stops_before_its_end_writes_nothing(gate: GateBed) -> None:
    with labelled(gate) as name:
        before = gate.condition(name)
        status, said = run(gate, *WORDS, "-x")
        assert gate.condition(name) == before
    assert status == 11, said
    assert "gate: not written: INTERRUPTED: " in said


def test_where_it_may_not_write_the_exit_code_says_so(gate: GateBed) -> None:
    _, token = gate.bed.granted()  # a run's rights, and none of the gate's
    with labelled(gate) as name:
        before = gate.condition(name)
        status, said = run(GateBed(gate.bed, gate.bed.plane.kubeconfig(token)), *WORDS)
        assert gate.condition(name) == before
    assert status == 11, said
    assert 'cannot patch resource "nodes/status"' in said


def job(gate: GateBed) -> dict[str, Any]:
    """A Job of the CronJob, with this machine's Python and suite for its image; the network is the node's."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{ACCOUNT}"
    spec = json.loads(json.dumps(gate.bed.plane.call("GET", path)["spec"]["jobTemplate"]["spec"]))
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    pod |= {"nodeName": gate.bed.machine.name, "hostNetwork": True, "dnsPolicy": "Default"}
    for number, folder in enumerate(filter(os.path.isdir, HOST)):
        pod["volumes"].append({"name": f"host-{number}", "hostPath": {"path": folder}})
        container["volumeMounts"].append({"name": f"host-{number}", "mountPath": folder, "readOnly": True})
    container["image"] = KUBE_PROXY
    container["env"] += [
        {"name": "PATH", "value": f"{COMMAND.parent}:/usr/bin:/bin"},
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},  # no kube-proxy leads there
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(gate.bed.plane.port)},
    ]
    return {"metadata": {"name": "gate-once"}, "spec": spec}


@pytest.mark.skipif(not COMMAND.exists(), reason="no clusterproof beside this Python: scripts/environment dev")
def test_the_cronjobs_pod_checks_the_cluster_that_it_is_in(gate: GateBed) -> None:
    with labelled(gate) as name:
        before = time.time()
        gate.bed.plane.call("POST", JOBS, job(gate))
        try:
            ended = {"Complete", "Failed"}
            wait_until(lambda: bool(ended & {one["type"] for one in conditions_of_job(gate)}), "over")
            said = kubectl(gate.bed, "logs", "--namespace", NAMESPACE, "job/gate-once")
            assert [one["type"] for one in conditions_of_job(gate) if one["type"] in ended] == ["Complete"], said
            condition = gate.condition(name)
        finally:
            gate.bed.plane.call("DELETE", f"{JOBS}/gate-once?propagationPolicy=Foreground")
            wait_until(lambda: not left(gate), "clean")
    assert "gate: ClusterproofHealthy of 1 of 1 nodes: 1 False" in said
    assert (condition["status"], condition["reason"][:3]) == ("False", "Gpu")
    assert condition["lastHeartbeatTime"] >= moment(before)


def conditions_of_job(gate: GateBed) -> list[dict[str, Any]]:
    return list(gate.bed.plane.call("GET", f"{JOBS}/gate-once").get("status", {}).get("conditions", ()))
