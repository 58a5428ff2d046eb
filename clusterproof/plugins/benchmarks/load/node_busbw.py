"""NCCL's all-reduce over the GPUs of this node alone: `all_reduce_perf`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load.tool import NONE, gpu_count, measured

SIZES = ("-b", "1G", "-e", "8G", "-f", "2")  # nccl-tests lowers the last one itself where memory is short


def read(node: Node) -> object:
    """What `all_reduce_perf` prints: one process, every GPU, results compared."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    if gpus == 1:
        return {"none": "one GPU: there is no link to reduce over"}
    ran = measured(node, "all_reduce_perf", *SIZES, "-g", str(gpus), "-c", "1", "-w", "5", "-n", "20")
    return {"gpus": gpus, **ran}
