"""Collectors of exact arithmetic on GPUs and cores: a function for each, named like it."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python
from clusterproof.plugins.evidence.exact.on_node import cores

COLLECTIVE_S = 20.0  # for the rounds; each operation is made once in any case
STEPS_S = 20.0  # for all steps of one GPU, and their repetition
CORES_S = 5.0  # for products of matrices on each core; what is in Python alone takes a fourth of it
MOST_MIB = 2048  # of memory for each core
DRIVER = "/sys/module/nvidia/version"


def gpu_exact(node: Node) -> object:
    """What exact products print: of each GPU which types it multiplied, how often, and what was wrong."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    settings = {"gpus": gpus, "kinds": node.settings["exact_kinds"], "budget_s": float(node.settings["exact_s"])}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "gpus", settings, node.collector_s - END_S)}


def exact_collective(node: Node) -> object:
    """What the ranks of collectives of exact integers over NCCL print, one for each GPU."""
    gpus = gpu_count(node)
    if gpus <= 1:
        return NONE if not gpus else {"none": "one GPU exchanges nothing"}
    settings = {"ranks": gpus, "kinds": node.settings["exact_kinds"], "budget_s": COLLECTIVE_S}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "collectives", settings, node.collector_s - END_S)}


def exact_step(node: Node) -> object:
    """What training steps print that are the same on every GPU of a kind: digests, and what else decides about them."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    ran = run_exact(node, torch_python(node), "steps", {"gpus": gpus, "budget_s": STEPS_S}, node.collector_s - END_S)
    return {"gpus": gpus, "driver": node.text(DRIVER, absent=""), **ran}


def cpu_exact(node: Node) -> object:
    """What the cores answer; without PyTorch their vector units are not tested, and it is said why."""
    settings = {"kinds": node.settings["exact_kinds"], "budget_s": CORES_S, "most_mib": MOST_MIB}
    timeout_s = node.collector_s - END_S
    try:
        python = torch_python(node)
    except Absent as absent:
        request = {**settings, "kinds": "", "seed": time.time_ns() >> 20, "within_s": timeout_s}
        return {"without_torch": str(absent), **cores.measured(request)}
    return run_exact(node, python, "cores", settings, timeout_s)
