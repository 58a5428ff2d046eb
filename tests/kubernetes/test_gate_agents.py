"""The gate in its cluster: agents on a real kubelet report; one pod evaluates and writes to the nodes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.kubernetes.gate.objects import moment
from clusterproof.plugins.kubernetes.pods import pod_of
from tests.kubernetes.gate import ACCOUNT, AGENT, GateBed, as_with_gpus, kubectl
from tests.kubernetes.in_cluster import COMMAND, pods, running
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = [
    needs_kubectl,
    pytest.mark.skipif(not COMMAND.exists(), reason="no clusterproof beside this Python: scripts/environment dev"),
]
EVERY_S = 5
MAIN = "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())"
CHECK = ("-m", "prolog or epilog", "--no-report", "-q", "--via", "agents", "--k8s-every", str(EVERY_S))


def run(gate: GateBed, *arguments: str) -> tuple[int, str]:
    """A round with the gate's own account: its exit code and output."""
    environment = {"KUBECONFIG": str(gate.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    command = [sys.executable, "-c", MAIN, "check", "k8s:bed", *CHECK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def log(gate: GateBed, component: str) -> str:
    label = f"app.kubernetes.io/component={component}"
    return kubectl(gate.bed, "logs", "--namespace", NAMESPACE, "--selector", label, "--tail=-1")


def written_since(gate: GateBed, name: str, before: float) -> bool:
    """Whether a verdict was written, other than that its agent has not reported yet."""
    condition = gate.condition(name)
    return condition.get("lastHeartbeatTime", "") >= moment(before) and condition["reason"] != "NotReached"


@contextlib.contextmanager
def reporting(gate: GateBed) -> Iterator[None]:
    """Have the agent of the node with a kubelet report."""
    with running(gate, EVERY_S, AGENT):
        wait_until(lambda: ":end:" in log(gate, "agent"), "reporting")
        yield


def test_gate_and_agent_as_installed_write_what_is_wrong_with_the_node(gate: GateBed) -> None:
    before = time.time()
    with as_with_gpus(gate.bed) as name, running(gate, EVERY_S, AGENT, ACCOUNT):
        wait_until(lambda: written_since(gate, name, before), "written")
        wait_until(lambda: "as before" in log(gate, "gate"), "evaluated again")
        output, condition = log(gate, "gate"), gate.condition(name)
    assert "gate: ClusterproofHealthy of 1 of 1 nodes: 1 False" in output
    assert (condition["status"], condition["reason"][:3]) == ("False", "Gpu")


def test_a_round_costs_one_request_for_each_node_and_few_for_all(gate: GateBed) -> None:
    with as_with_gpus(gate.bed) as name, reporting(gate):
        user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        run(gate, "--k8s-gate", "observe")
        before, condition = len(gate.bed.plane.requests(user)), gate.condition(name)
        status, output = run(gate, "--k8s-gate", "observe")
        made = gate.bed.plane.requests(user)[before:]
        # On a busy machine, something else may be reported within these seconds and written.
        written = int(gate.condition(name) != condition)
    assert status == 1, output
    requests = Counter(
        {request["auditID"]: f"{request['verb']} {request['objectRef']['resource']}" for request in made}.values()
    )
    for_all = Counter({"get daemonsets": 1, "get pods": 1, "list nodes": 3, "list pods": 1})
    assert requests <= for_all + Counter({"patch nodes": 1 + written})
    assert requests >= Counter({"list nodes": 1, "list pods": 1, "patch nodes": 1})


def test_an_agent_is_ready_once_it_has_reported_the_same_twice(gate: GateBed) -> None:
    with reporting(gate):
        wait_until(lambda: [pod_of(pod).is_ready for pod in pods(gate)] == [True], "ready")
        assert log(gate, "agent").count(":end:") > 1


def test_an_agents_pod_has_no_token_and_changes_nothing_of_the_host(gate: GateBed) -> None:
    with reporting(gate):
        (pod,) = pods(gate)
        seen = [line.split() for line in Path(f"/proc/{_pid_of_agent()}/mountinfo").read_text().splitlines()]
    mounts = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    assert not [path for path in mounts if "serviceaccount" in path]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert [options.split(",")[0] for _, _, _, _, at, options, *_ in seen if at == "/host"] == ["ro"]


def _pid_of_agent() -> str:
    command = ["pgrep", "-f", "clusterproof gate agent --every"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]


def test_without_agents_one_line_says_so_and_nothing_is_written(gate: GateBed) -> None:
    with as_with_gpus(gate.bed) as name:
        before = gate.condition(name)
        status, output = run(gate, "--k8s-gate", "observe")
        assert gate.condition(name) == before
    assert status == 4
    assert f"no agent is in the namespace {NAMESPACE}" in output


def test_a_node_without_an_agent_is_unknown_and_says_why(gate: GateBed, kubernetes: Bed) -> None:
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge", "nowhere": "no"}
    with as_with_gpus(gate.bed), reporting(gate), kubernetes.node("gpu501", labels=labels):
        wait_until(lambda: len(pods(gate)) == 2, "placed")
        status, output = run(gate, "--k8s-gate", "observe")
        condition = gate.condition("gpu501")
    assert status == 1, output
    assert (condition["status"], condition["reason"]) == ("Unknown", "NotReached")
    assert condition["message"].startswith("not started: its agent does not run: Pending")
