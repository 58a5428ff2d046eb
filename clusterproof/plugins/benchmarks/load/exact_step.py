"""Whether every GPU makes the same training steps, to the last bit, as others of its kind with the same software."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python

BUDGET_S = 20.0  # for all steps of one GPU, and their repetition
DRIVER = "/sys/module/nvidia/version"


def read(node: Node) -> object:
    """What the steps print: of each GPU its digests, and what else decides about them."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    ran = run_exact(node, torch_python(node), "steps", {"gpus": gpus, "budget_s": BUDGET_S}, node.collector_s - END_S)
    return {"gpus": gpus, "driver": node.text(DRIVER, absent=""), **ran}
