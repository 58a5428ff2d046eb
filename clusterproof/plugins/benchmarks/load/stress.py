"""Loads cores and part of the memory with stress-ng, which verifies its results, and reads the kernel log."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import NO_CURSOR, Node
from clusterproof.plugins.agent.tools import Tool, find
from clusterproof.plugins.benchmarks.load.tool import ASK_S, END_S, communicate, environment, named
from clusterproof.plugins.evidence.exact.on_node.cores import available_bytes, online_cpus
from clusterproof.plugins.evidence.kernel_log.collect_follow import Follower

MIB = 1 << 20
MEMORY_SHARE = 2  # at most half of what is available
EACH_S_MIB, MAX_MIB = 16, 2048  # per core: for each second, and at most; more could not be tested in the time
MAX_LINES = 1000  # of the kernel log
MAX_READS = 50  # of 2000 records each


def stress_ng(node: Node) -> object:
    """The output of `stress-ng --verify`, and relevant kernel log lines since its start. Raises Absent, Denied.

    The workers share the configured memory; they write no files, but need a folder in which they could.
    """
    budget_s, cores = int(node.settings["stress_s"]), len(os.sched_getaffinity(0))
    memory_mib = cores * min(available_bytes() // MEMORY_SHARE // cores // MIB, EACH_S_MIB * budget_s, MAX_MIB)
    program = find(node, "stress-ng", named=named(node))
    log = Follower(node, NO_CURSOR)
    workers = ("--cpu", str(cores), "--vm", str(cores), "--vm-bytes", f"{memory_mib}m", "--vm-keep")
    command = ("stress-ng", *workers, "--verify", "--metrics-brief", "--timeout", str(budget_s), "--temp-path", "/tmp")
    tool = Tool(node, *command, program=program, environment=environment(node))
    began = time.monotonic()
    output, late = communicate(tool, node.collector_s - END_S - ASK_S, ASK_S)
    return {
        "command": tool.line,
        "exit": None if late else tool.exit,
        "output": output,
        "seconds": round(time.monotonic() - began, 3),
        "cores": cores,
        "online": online_cpus(),
        "memory_mib": memory_mib,
        "budget_s": budget_s,
        **logged(log),
    }


def logged(log: Follower) -> dict[str, object]:
    """The relevant lines with their times, and how much of the log was lost or unreadable."""
    lines: list[list[object]] = []
    for _ in range(MAX_READS):
        lines += log.lines()
    return {"kernel": [line[1:] for line in lines[:MAX_LINES]], "kernel_lost": log.lost, "kernel_unread": log.why_not}
