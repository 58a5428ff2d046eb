"""An unprivileged user on a node, and a process of his."""

from __future__ import annotations

import subprocess

from tests.testbed.node import Node

USER, OTHER, SLURM = 65534, 65533, 64030


def hold(node: Node, first: str, shell: str = "/bin/sh", user: int = USER) -> int:
    """A shell of the user's that does this first, and then waits; its number on the node."""
    script = f"{first or ':'}; echo $$; read -r line <&0; sleep 60"
    process = node.start([*shell.split(), "-c", script], user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return int(process.stdout.readline())
