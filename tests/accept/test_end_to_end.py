"""`clusterproof accept ssh:…` as typed by a user, on fake nodes with real sshds: killed, resumed and signed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.pairwise.typed import SLOW_PORT, wires
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.load import gpu_node, with_speed
from tests.testbed.needs import needs_cluster, needs_iperf3
from tests.testbed.node import healthy_cpu, healthy_p5

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
PLAN = """stages = ["inventory", "speed"]
[bought]
nodes = 4
type = "p5.48xlarge"
expect = { gpus = 8 }
"""
OF_PAIRS = """stages = ["inventory", "pairs"]
[options]
meter = "iperf3"
meter-options = "-t 1 -O 0"
"""
TYPED = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
LIMIT_S = 600.0


def typed(folder: Path, cluster: str = "ssh:gpu[001-004]", *more: str) -> list[str]:
    """The command line."""
    arguments = ["accept", cluster, "--plan", str(folder / "plan.toml"), "--into", str(folder / "into")]
    return [sys.executable, "-c", TYPED, *arguments, *more]


def ended(folder: Path) -> list[str]:
    """The folders of finished runs."""
    lines = (folder / "into/journal.jsonl").read_text().splitlines()
    return [record["folder"] for line in lines if "folder" in (record := json.loads(line))]


def killed(
    bed: Testbed, command: Sequence[str], by: signal.Signals, goes_on: Callable[[], bool], *, with_its_run: bool = False
) -> int:
    """Stop it, and the run it has started, once that is under way, as a power cut would; returns its exit code."""
    environment = {**os.environ, "HOME": str(bed.home)}
    with subprocess.Popen(bed.command(command), env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + LIMIT_S
        while not goes_on():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(by)
        for child in map(int, children if with_its_run else ()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, by)
        return process.wait(LIMIT_S)


INTERRUPTIONS = (  # the signal, the run, and whether that run ends too
    (signal.SIGINT, "0001-inventory", False),
    (signal.SIGKILL, "0002-speed", False),
    (signal.SIGKILL, "0003-speed", True),
    (signal.SIGTERM, "0003-speed", False),
    (signal.SIGKILL, "0004-speed", True),
)


@needs_cluster
def test_an_acceptance_is_interrupted_five_times_and_gone_on_with_and_rejects_the_slow_node_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    keygen = shutil.which("ssh-keygen")
    assert keygen
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    images = {name: gpu_node(healthy_p5(name)) for name in NAMES}
    images["gpu002"] = with_speed(images["gpu002"], "gemm 5 640")
    with testbed(images) as bed:
        runs, accept_command = (
            tmp_path / "into/runs",
            typed(tmp_path, "ssh:gpu[001-004]", "--sign", str(tmp_path / "key")),
        )
        before: list[str] = []
        for by, run, with_its_run in INTERRUPTIONS:
            begun = (runs / run / "output.txt").exists
            assert killed(bed, accept_command, by, begun, with_its_run=with_its_run) in (2, -by)
            assert ended(tmp_path)[: len(before)] == before, "what ended is not run again"
            before = ended(tmp_path)
        ran = bed.run(accept_command, timeout=LIMIT_S)
    output = (ran.stdout + ran.stderr).decode()
    assert ran.returncode == 1, output
    assert ended(tmp_path)[:4] == ["runs/0001-inventory", "runs/0002-speed", "runs/0003-speed", "runs/0004-speed"]
    into = tmp_path / "into"
    report = json.loads((into / "acceptance.json").read_text())
    rejected = {row["node"]: row["reasons"][0] for row in report["nodes"] if row["said"] == "rejected"}
    assert rejected.keys() == {"gpu002"}, output
    assert "GPU 5, bfloat16 products of 8192 × 8192" in rejected["gpu002"]
    assert all(row["hardware"]["gpus"] for row in report["nodes"])
    signed = (into / "acceptance.json").read_bytes()
    command = [keygen, "-Y", "check-novalidate", "-n", "clusterproof-acceptance"]
    command += ["-s", str(into / "acceptance.json.sig")]
    assert subprocess.run(command, input=signed, check=False).returncode == 0
    assert subprocess.run(command, input=signed + b" ", check=False).returncode != 0
    for run in ended(tmp_path):
        sums = ["sha256sum", "--quiet", "-c", "SHA256SUMS"]
        assert subprocess.run(sums, cwd=into / run, check=False).returncode == 0


@needs_cluster
@needs_iperf3
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_slow_link_keeps_the_cluster_from_being_accepted_and_pairs_that_were_measured_stay_so(
    tmp_path: Path, by: signal.Signals
) -> None:
    (tmp_path / "plan.toml").write_text(OF_PAIRS)
    names = ("n1", "n2", "n3", "n4")
    pairs, accept_command = tmp_path / "into/runs/0002-pairs/recording/pairwise.jsonl", typed(tmp_path, "ssh:n[1-4]")

    def lines() -> list[bytes]:
        return pairs.read_bytes().splitlines() if pairs.exists() else []

    with (
        testbed(dict.fromkeys(names, replace(healthy_cpu(), whole_machine=True))) as bed,
        wires(bed, names, bare=["n1", "n3"]),
        bed.slow_link("n1", "n3", SLOW_PORT),
    ):
        assert killed(bed, accept_command, by, lambda: len(lines()) > 2) in (2, -signal.SIGKILL)
        kept = lines()
        ran = bed.run(accept_command, timeout=LIMIT_S)
        assert lines()[: len(kept)] == kept
    output = (ran.stdout + ran.stderr).decode()
    report = json.loads((tmp_path / "into/acceptance.json").read_text())
    verdicts = {row["of"]: row["verdict"] for row in report["of_others"]}  # of four nodes not always the link alone
    due = {"fail": (1, "not accepted"), "incomplete": (10, "undecided")}
    worst = "fail" if "fail" in verdicts.values() else "incomplete"
    assert verdicts["n1~n3"] in due, output
    assert (ran.returncode, report["outcome"]) == due[worst], output
    reasons = {row["node"]: " ".join(row["reasons"]) for row in report["nodes"] if row["said"] == "open"}
    assert all("network.pairwise_busbw: n1~n3" in reasons[node] for node in ("n1", "n3")), output
    assert ended(tmp_path) == ["runs/0001-inventory", "runs/0002-pairs"]
