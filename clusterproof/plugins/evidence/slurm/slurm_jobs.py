"""The collector `slurm_jobs`: the jobs that have nodes, and the one in which this runs."""

from __future__ import annotations

import os

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.slurm.slurm import printed

# A job that is sent a signal is SIGNALING meanwhile, and one stopped by SIGSTOP is STOPPED: neither is R.
# CONFIGURING and COMPLETING jobs have nodes that boot, or on which it still ends.
WITH_NODES = "R,S,SI,ST,RS,CF,CG"


def read(node: Node) -> object:
    """For each job its number as `squeue` shows it, its own number, its nodes, and its state (`RUNNING`)."""
    rows = printed(node, "squeue", "-h", "-t", WITH_NODES, "-o", "%i|%A|%N|%T")
    return {
        "jobs": [row.split("|") for row in rows if row.count("|") == 3],  # warnings of squeue's stand between them
        "job": os.environ.get("SLURM_JOB_ID", ""),
    }
