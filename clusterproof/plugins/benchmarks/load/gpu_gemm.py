"""How fast every GPU multiplies matrices while all of them do: PyTorch."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load import torch_gemm
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_with_torch, torch_python


def read(node: Node) -> object:
    """What the matrix products print, of all GPUs at once."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    ran = run_with_torch(node, torch_python(node), torch_gemm.__name__, node.collector_s - END_S)
    return {"gpus": gpus, **ran}
