"""Tests that GPUs and cores compute exactly: a function for each collector, with its name."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.benchmarks.load.tool import END_S, NONE, gpu_count
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python
from clusterproof.plugins.evidence.exact.on_node import cores

COLLECTIVE_S = 20.0  # for the rounds; each operation runs at least once
STEPS_S = 20.0  # for all steps of one GPU, and their repetition
CORES_S = 5.0  # for matrix products on each core; the pure-Python part takes a fourth of it
MAX_MIB = 2048  # of memory per core
DRIVER = "/sys/module/nvidia/version"


def gpu_exact(node: Node) -> object:
    """The output of exact products: for each GPU which types it multiplied, how often, and what was wrong."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    settings = {"gpus": gpus, "kinds": node.settings["exact_kinds"], "budget_s": float(node.settings["exact_s"])}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "gpus", settings, node.collector_s - END_S)}


def exact_collective(node: Node) -> object:
    """The output of exact integer collectives over NCCL, with one rank per GPU."""
    gpus = gpu_count(node)
    if gpus <= 1:
        return NONE if not gpus else {"none": "one GPU exchanges nothing"}
    settings = {"ranks": gpus, "kinds": node.settings["exact_kinds"], "budget_s": COLLECTIVE_S}
    return {"gpus": gpus, **run_exact(node, torch_python(node), "collectives", settings, node.collector_s - END_S)}


def exact_step(node: Node) -> object:
    """The output of training steps that must be identical on GPUs of a kind: digests, and what else affects them."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    ran = run_exact(node, torch_python(node), "steps", {"gpus": gpus, "budget_s": STEPS_S}, node.collector_s - END_S)
    return {"gpus": gpus, "driver": node.text(DRIVER, absent=""), **ran}


def cpu_exact(node: Node) -> object:
    """The cores' results; without PyTorch their vector units are not tested, and the reason is reported."""
    settings = {"kinds": node.settings["exact_kinds"], "budget_s": CORES_S, "most_mib": MAX_MIB}
    timeout_s = node.collector_s - END_S
    try:
        python = torch_python(node)
    except Absent as absent:
        request = {**settings, "kinds": "", "seed": time.time_ns() >> 20, "within_s": timeout_s}
        return {"without_torch": str(absent), **cores.measured(request)}
    return run_exact(node, python, "cores", settings, timeout_s)
