"""Whether every core computes right to the last bit, and host memory gives back what was written into it."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.benchmarks.exact import cores
from clusterproof.plugins.benchmarks.load.tool import END_S
from clusterproof.plugins.benchmarks.load.torch_python import run_exact, torch_python

BUDGET_S = 5.0  # for products of matrices on each core; what is in Python alone takes a fourth of it
MOST_MIB = 2048  # of memory for each core


def read(node: Node) -> object:
    """What the cores answer; without PyTorch their vector units are not tested, and it is said why."""
    settings = {"kinds": node.settings["exact_kinds"], "budget_s": BUDGET_S, "most_mib": MOST_MIB}
    timeout_s = node.collector_s - END_S
    try:
        python = torch_python(node)
    except Absent as absent:
        request = {**settings, "kinds": "", "seed": time.time_ns() >> 20, "within_s": timeout_s}
        return {"without_torch": str(absent), **cores.measured(request)}
    return run_exact(node, python, "cores", settings, timeout_s)
