"""The NVSwitch fabric manager's version."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import command


def read(node: Node) -> object:
    """The output of `nv-fabricmanager --version`."""
    return command(node, "nv-fabricmanager", "--version")
