"""The leaf `slurm`: the cluster as Slurm's own commands tell of it, on a host where they are."""

from __future__ import annotations

import os
import re

from clusterproof.plugins.probe.reading import Absent, Broke, Node
from clusterproof.plugins.probe.tools import Tool

MAX_BYTES = 32 * 1024 * 1024  # of one command's output: 20,000 nodes
MAX_JOBS = 20_000
KEYS = {
    "name": "NodeName",
    "host": "NodeHostName",
    "address": "NodeAddr",
    "state": "State",
    "gres": "Gres",
    "partitions": "Partitions",
    "features": "ActiveFeatures",
}
REASON = re.compile(r" Reason=(.{0,600}?)(?: \[([^\[\]@]{1,64})@([^\[\]]{1,40})\])?\s*(?:$| [A-Z][A-Za-z]{2,30}=)")
SETTING = re.compile(r"^(\S{1,60})\s*=\s?(.*)$")


def read(node: Node) -> object:
    """Nodes, partitions, jobs that run, the configuration, and how the network is known to Slurm."""
    config = [found for found in map(SETTING.match, _lines(node, "scontrol", "show", "config")) if found]
    return {
        "nodes": [_node(line) for line in _lines(node, "scontrol", "-o", "show", "node") if "NodeName=" in line],
        "partitions": [_partition(line) for line in _lines(node, "scontrol", "-o", "show", "partition")],
        "jobs": [line.split("|") for line in _lines(node, "squeue", "-h", "-t", "R", "-o", "%i|%A|%N")[:MAX_JOBS]],
        "config": {found[1]: found[2].strip()[:300] for found in config},
        "topology": _topology(node),
        "job": os.environ.get("SLURM_JOB_ID", ""),  # in which this is asked
    }


def _lines(node: Node, *words: str) -> list[str]:
    """What a command prints. Raises Absent, Broke."""
    tool = Tool(node, *words)
    output = bytearray()
    for chunk in tool.chunks():
        output += chunk[: MAX_BYTES - len(output)]
    text = output.decode("utf-8", "replace")
    if tool.exit:
        raise Broke(f"{tool.line} ended with {tool.exit}: {' '.join(text.split())[:300]}")
    return text.splitlines()


def _node(line: str) -> dict[str, str]:
    """One node; what scontrol writes as (null) is empty, as what it does not write."""
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    told = {ours: words.get(theirs, "") for ours, theirs in KEYS.items()}
    reason = REASON.search(line)
    told["reason"], told["reason_user"], told["reason_time"] = reason.groups("") if reason else ("", "", "")
    return {key: "" if value == "(null)" else value[:4000] for key, value in told.items()}


def _partition(line: str) -> dict[str, str]:
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return {key.lower(): words.get(key, "") for key in ("PartitionName", "Nodes", "Default", "State")}


def _topology(node: Node) -> list[str] | None:
    """How switches or blocks hold the nodes; null where Slurm has no topology."""
    try:
        lines = _lines(node, "scontrol", "show", "topology")
    except (Absent, Broke):
        return None
    return [line[:4000] for line in lines if "=" in line][:4096] or None
