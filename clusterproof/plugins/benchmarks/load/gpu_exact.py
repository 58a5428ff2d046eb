"""Whether every GPU multiplies right to the last bit, all of them at once: exact integers in PyTorch."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python


def read(node: Node) -> object:
    """What the products print: of each GPU which types it multiplied, how often, and what was wrong."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    settings = {"gpus": gpus, "kinds": node.settings["exact_kinds"], "budget_s": float(node.settings["exact_s"])}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "gpus", settings, node.collector_s - END_S)}
