"""The collector `slurm_jobs`: the jobs that run, and the one in which this is asked."""

from __future__ import annotations

import os

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import lines

MAX_JOBS = 20_000


def read(node: Node) -> object:
    """Of each job its number as `squeue` shows it, its own number, and its nodes."""
    return {
        "jobs": [line.split("|") for line in lines(node, "squeue", "-h", "-t", "R", "-o", "%i|%A|%N")[:MAX_JOBS]],
        "job": os.environ.get("SLURM_JOB_ID", ""),
    }
