"""The NVSwitch fabric manager's version."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Node
from clusterproof.plugins.probe.tools import command


def read(node: Node) -> object:
    """The output of `nv-fabricmanager --version`."""
    return command(node, "nv-fabricmanager", "--version")
