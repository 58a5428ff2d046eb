"""GPU copy and matrix speed, with PyTorch or nvbandwidth: a function for each collector, with its name."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.agent.tools import find
from clusterproof.plugins.benchmarks.load import torch_copies, torch_gemm
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, folders, gpu_count, measured, named
from clusterproof.plugins.benchmarks.load.torch_python import run_with_torch, torch_python

TESTS = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce")


def gpu_bandwidth(node: Node) -> object:
    """The output of copies, one GPU after another: of nvbandwidth, or else of PyTorch."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    try:
        find(node, "nvbandwidth", folders(node), named(node))
    except Absent as absent:
        return {"gpus": gpus, "by": "PyTorch", "runs": [copied_by_torch(node, str(absent))]}
    tests = TESTS if gpus > 1 else TESTS[:2]
    timeout_s = (node.collector_s - END_S) / len(tests)

    def copied(test: str) -> dict[str, object]:
        return measured(node, "nvbandwidth", "-t", test, timeout_s=timeout_s)

    rows = {test: {"command": f"nvbandwidth -t {test}"} for test in tests}
    return node.each("runs", rows, copied, {"gpus": gpus, "by": "nvbandwidth"})


def copied_by_torch(node: Node, without: str) -> dict[str, object]:
    """The output of PyTorch's copies. Raises Absent if the node has neither."""
    try:
        python = torch_python(node)
    except Absent as absent:
        raise Absent(f"{without}; {absent}") from None
    return run_with_torch(node, python, torch_copies.__name__, node.collector_s - END_S)


def gpu_gemm(node: Node) -> object:
    """The output of matrix products on all GPUs at once."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    ran = run_with_torch(node, torch_python(node), torch_gemm.__name__, node.collector_s - END_S)
    return {"gpus": gpus, **ran}
