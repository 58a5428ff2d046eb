"""Runs programs: one with limits from the kernel, and one of an unprivileged user on a node."""

from __future__ import annotations

import resource
import subprocess
import sys

from tests.testbed.node import Node

MEMORY_BYTES = 2 << 30
CPU_S = 60  # CPU seconds, which a busy machine does not change


def bounded(program: str, cpu_s: int = CPU_S) -> subprocess.CompletedProcess[str]:
    """The output of a Python program with these limits; its return code is negative if it exceeded them."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))

    command = [sys.executable, "-c", program]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)


USER, OTHER, SLURM = 65534, 65533, 64030


def hold(node: Node, first: str, shell: str = "/bin/sh", user: int = USER) -> int:
    """A user's shell that runs this and then waits; returns its process id on the node."""
    script = f"{first or ':'}; echo $$; read -r line <&0; sleep 60"
    process = node.start([*shell.split(), "-c", script], user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return int(process.stdout.readline())
