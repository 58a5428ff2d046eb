"""How fast data moves between the host and every GPU, and between GPUs: nvbandwidth, or PyTorch without it."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.benchmarks.load import torch_copies
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count, measured
from clusterproof.plugins.benchmarks.load.torch_python import run_with_torch, torch_python

TESTS = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce")


def read(node: Node) -> object:
    """What the copies print, one GPU after another."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    tests = TESTS if gpus > 1 else TESTS[:2]
    timeout_s = (node.collector_s - END_S) / len(tests)
    try:
        runs = [measured(node, "nvbandwidth", "-t", test, timeout_s=timeout_s) for test in tests]
    except Absent as absent:
        return {"gpus": gpus, "by": "PyTorch", "runs": [copied_by_torch(node, str(absent))]}
    return {"gpus": gpus, "by": "nvbandwidth", "runs": runs}


def copied_by_torch(node: Node, without: str) -> dict[str, object]:
    """What PyTorch's copies print. Raises Absent, where the node has neither."""
    try:
        python = torch_python(node)
    except Absent as absent:
        raise Absent(f"{without}; {absent}") from None
    return run_with_torch(node, python, torch_copies.__name__, node.collector_s - END_S)
