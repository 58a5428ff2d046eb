"""DCGM's own diagnostic: `dcgmi diag`, at the level that the user chooses."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load.tool import ASK_S, NONE, gpu_count, measured


def read(node: Node) -> object:
    """What `dcgmi diag -j` prints. One that hangs is asked to end first: the work is done by DCGM's host engine."""
    if not gpu_count(node):
        return NONE
    return measured(node, "dcgmi", "diag", "-r", node.settings.get("dcgm_level", "2"), "-j", ask_s=ASK_S)
