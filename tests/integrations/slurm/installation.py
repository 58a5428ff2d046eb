"""Commands that an administrator types on a node, `--check-installation`, and its output."""

from __future__ import annotations

import subprocess

from clusterproof.integrations.slurm.installation_lines import INDENT
from tests.integrations.slurm.scripts import SCRIPTS
from tests.testbed.node import Node

TIMEOUT_S = 600.0


def run_script(
    running: Node, name: str = "gpu001", script: str = "prolog", option: str = "--check-installation"
) -> subprocess.CompletedProcess[bytes]:
    """Run what an administrator types on a node."""
    command = [str(SCRIPTS / f"clusterproof-{script}"), option]
    return running.run(command, env={"SLURMD_NODENAME": name}, timeout=TIMEOUT_S)


def output_of(ran: subprocess.CompletedProcess[bytes]) -> str:
    """The output, with wrapped lines joined and multiple spaces reduced to one."""
    assert ran.stderr == b"", ran.stderr.decode()
    whole = ran.stdout.decode().replace("\n" + INDENT, " ")
    return "".join(f"{' '.join(line.split())}\n" for line in whole.splitlines())


def marked(ran: subprocess.CompletedProcess[bytes], mark: str) -> list[str]:
    """The marked lines, without those caused by a busy machine or about the index, which is made at a release."""
    found = [line.removeprefix(f"{mark} ") for line in output_of(ran).splitlines() if line.startswith(f"{mark} ")]
    return [line for line in found if "expected less: at the deadline" not in line and not line.startswith("index ")]
