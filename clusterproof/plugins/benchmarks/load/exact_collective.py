"""Whether what the GPUs of a node exchange arrives right to the last bit: collectives of exact integers over NCCL."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python

ALONE = 1
BUDGET_S = 20.0  # for the rounds; each operation is made once in any case


def read(node: Node) -> object:
    """What the ranks print, one for each GPU."""
    gpus = gpu_count(node)
    if gpus <= ALONE:
        return NONE if not gpus else {"none": "one GPU exchanges nothing"}
    settings = {"ranks": gpus, "kinds": node.settings["exact_kinds"], "budget_s": BUDGET_S}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "collectives", settings, node.collector_s - END_S)}
