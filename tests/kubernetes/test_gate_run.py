"""A gate without an installation: the command, by a user who may create pods and write to nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clusterproof.plugins.kubernetes.gate.write import remove
from tests.kubernetes.gate import GateBed, api_of, as_with_gpus
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
ARGUMENTS = ("-m", "prolog or epilog", "--no-report", "-q", "--k8s-gate", "observe")


def run(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and output."""
    command = [
        sys.executable,
        "-c",
        "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())",
    ]
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    command += ["check", "k8s:bed", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_a_run_writes_what_it_found(gate: GateBed) -> None:
    remove(api_of(gate.bed.plane.kubeconfig()))
    with as_with_gpus(gate.bed) as name:
        status, output = run(gate.bed.plane.kubeconfig(), *ARGUMENTS)
        condition = gate.condition(name)
    assert status == 1, output
    assert "gate: ClusterproofHealthy of 1 of 1 nodes: 1 False; 1 changed" in output
    assert (condition["status"], condition["reason"][:3]) == ("False", "Gpu")
    assert gate.events(name)[-1][0] == "Warning"
    assert gate.left() == []


def test_a_run_that_stops_before_its_end_writes_nothing(gate: GateBed) -> None:
    with as_with_gpus(gate.bed) as name:
        before = gate.condition(name)
        status, output = run(gate.bed.plane.kubeconfig(), *ARGUMENTS, "-x")
        assert gate.condition(name) == before
    assert status == 11, output
    assert "gate: not written: INTERRUPTED: " in output


def test_where_it_may_not_write_the_exit_code_says_so(gate: GateBed) -> None:
    _, token = gate.bed.granted()  # a run's rights without the gate's
    with as_with_gpus(gate.bed) as name:
        before = gate.condition(name)
        status, output = run(gate.bed.plane.kubeconfig(token), *ARGUMENTS)
        assert gate.condition(name) == before
    assert status == 11, output
    assert 'cannot patch resource "nodes/status"' in output
