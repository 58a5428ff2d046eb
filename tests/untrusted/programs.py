"""Programs that are run: one whose reading the kernel bounds, and one of an unprivileged user's on a node."""

from __future__ import annotations

import resource
import subprocess
import sys

from tests.testbed.node import Node

MEMORY_BYTES = 2 << 30
CPU_S = 60  # of a processor, which a busy machine does not change


def bounded(program: str, cpu_s: int = CPU_S) -> subprocess.CompletedProcess[str]:
    """What a program of Python's says that may have so much; its return code is negative where it took more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))

    words = [sys.executable, "-c", program]
    return subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)


USER, OTHER, SLURM = 65534, 65533, 64030


def hold(node: Node, first: str, shell: str = "/bin/sh", user: int = USER) -> int:
    """A shell of the user's that does this first, and then waits; its number on the node."""
    script = f"{first or ':'}; echo $$; read -r line <&0; sleep 60"
    process = node.start([*shell.split(), "-c", script], user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return int(process.stdout.readline())
