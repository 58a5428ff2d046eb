"""`clusterproof accept ssh:…` as a person types it, on fake nodes with real sshds: killed, gone on with, and signed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.testbed.cluster import Testbed, testbed
from tests.testbed.load import gpu_node, with_speed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
PLAN = """stages = ["inventory", "speed"]
[bought]
nodes = 4
type = "p5.48xlarge"
expect = { gpus = 8 }
"""
TYPED = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
LIMIT_S = 600.0


def typed(folder: Path) -> list[str]:
    """The command line."""
    words = ["accept", "ssh:gpu[001-004]", "--plan", str(folder / "plan.toml"), "--into", str(folder / "into")]
    return [sys.executable, "-c", TYPED, *words, "--sign", str(folder / "key")]


def ended(folder: Path) -> list[str]:
    """The folders of the runs that ended."""
    lines = (folder / "into/journal.jsonl").read_text().splitlines()
    return [data["folder"] for line in lines if "folder" in (data := json.loads(line))]


def killed(bed: Testbed, folder: Path, run: str, by: signal.Signals) -> int:
    """Stop it while that run goes on; its exit code."""
    environment = {**os.environ, "HOME": str(bed.home)}
    with subprocess.Popen(bed.command(typed(folder)), env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + LIMIT_S
        while not (folder / "into/runs" / run / "output.txt").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(by)
        return process.wait(LIMIT_S)


@needs_cluster
def test_an_acceptance_is_killed_and_gone_on_with_and_rejects_the_slow_node_alone(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    keygen = shutil.which("ssh-keygen")
    assert keygen
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    images = {name: gpu_node(healthy_p5(name)) for name in NAMES}
    images["gpu002"] = with_speed(images["gpu002"], "gemm 5 640")
    with testbed(images) as bed:
        assert killed(bed, tmp_path, "0001-inventory", signal.SIGINT) == 2
        assert ended(tmp_path) == []
        assert killed(bed, tmp_path, "0002-speed", signal.SIGKILL) == -signal.SIGKILL
        assert ended(tmp_path) == ["runs/0001-inventory"]
        ran = bed.run(typed(tmp_path), timeout=LIMIT_S)
    said = (ran.stdout + ran.stderr).decode()
    assert ran.returncode == 1, said
    assert ended(tmp_path)[:4] == ["runs/0001-inventory", "runs/0002-speed", "runs/0003-speed", "runs/0004-speed"]
    into = tmp_path / "into"
    data = json.loads((into / "acceptance.json").read_text())
    rejected = {one["node"]: one["reasons"][0] for one in data["nodes"] if one["said"] == "rejected"}
    assert rejected.keys() == {"gpu002"}, said
    assert "GPU 5, bfloat16 products of 8192 × 8192" in rejected["gpu002"]
    assert all(one["hardware"]["gpus"] for one in data["nodes"])
    signed = (into / "acceptance.json").read_bytes()
    command = [keygen, "-Y", "check-novalidate", "-n", "clusterproof-acceptance"]
    command += ["-s", str(into / "acceptance.json.sig")]
    assert subprocess.run(command, input=signed, check=False).returncode == 0
    assert subprocess.run(command, input=signed + b" ", check=False).returncode != 0
    for run in ended(tmp_path):
        sums = ["sha256sum", "--quiet", "-c", "SHA256SUMS"]
        assert subprocess.run(sums, cwd=into / run, check=False).returncode == 0
