"""`clusterproof accept k8s:…`: its runs ask and load nodes by pods, and are killed and resumed like those by ssh."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.kubernetes.perf import NAMES, TOOLS, WRONG
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.needs import needs_cluster, needs_kubernetes, needs_nodes, needs_openmpi

pytestmark = [needs_kubernetes, needs_cluster, needs_openmpi, needs_nodes]
TYPED = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
PLAN = f"""stages = ["inventory", "speed"]
[bought]
expect = {{ gpus = 0 }}
[options]
k8s-perf-image = "{WRONG}"
load-path = "{TOOLS}"
policy = "clusterproof.toml"
"""
NOT_OF_ITS_NODES = ("control_plane.k8s_gpu_seen", "network.nameservers")  # they have no GPUs, and no way out
POLICY = "".join(f'[verdicts."{check}"]\nfail = "concern"\n' for check in NOT_OF_ITS_NODES)
TYPE = "node.kubernetes.io/instance-type"
LIMIT_S = 600.0


@pytest.fixture
def of_no_type(perf: Nodes) -> Iterator[Nodes]:
    """The nodes without the type that says what a node must have."""
    known = {
        machine.path: perf.plane.call("GET", machine.path)["metadata"]["labels"][TYPE]
        for machine in perf.machines.values()
    }
    for path in known:
        perf.plane.patch(path, {"metadata": {"labels": {TYPE: None}}})
    yield perf
    for path, name in known.items():
        perf.plane.patch(path, {"metadata": {"labels": {TYPE: name}}})


def test_pods_load_the_nodes_and_the_one_that_computes_wrong_is_rejected_after_a_kill(
    of_no_type: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "clusterproof.toml").write_text(POLICY)
    cluster, into = f"k8s:bed/kubernetes.io/hostname in ({','.join(NAMES)})", tmp_path / "into"
    arguments = ["accept", cluster, "--plan", str(tmp_path / "plan.toml"), "--into", str(into)]
    command = [sys.executable, "-c", TYPED, *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + LIMIT_S
        while not list(into.glob("runs/0002-speed/*")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        process.kill()
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    output = ran.stdout + ran.stderr
    assert ran.returncode == 1, output
    report = json.loads((into / "acceptance.json").read_text())
    assert {row["node"]: row["said"] for row in report["nodes"]} == {NAMES[0]: "rejected", NAMES[1]: "open"}, output
    failed = {
        (run["folder"], result.node, result.check)
        for run in report["runs"]
        for result in read_results(into / run["folder"] / "results.jsonl")
        if result.verdict is Verdict.FAIL
    }
    assert failed == {(f"runs/000{number}-speed", NAMES[0], "gpu.node_busbw") for number in (2, 3)}
    assert of_no_type.left() == []
