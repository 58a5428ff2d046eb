"""The collector `slurm`: the cluster according to Slurm's commands, on a host that has them."""

from __future__ import annotations

import os
import re

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.agent.tools import find, lines, on_path

KEYS = {
    "name": "NodeName",
    "host": "NodeHostName",
    "address": "NodeAddr",
    "state": "State",
    "gres": "Gres",
    "partitions": "Partitions",
    "features": "ActiveFeatures",
}
# Slurm's own stamp after a reason's text: who set it and when; comments may follow.
STAMP = re.compile(r" \[([^\[\]]{1,64})@(\d[\d:T.-]{4,30}|Unknown)\]\s*(?:$| [A-Z][A-Za-z]{2,30}=)")
NEXT = re.compile(r"\s[A-Z][A-Za-z]{2,30}=")
MAX_REASON = 600  # characters
SETTING = re.compile(r"^(\S{1,60})\s*=\s?(.*)$")
# The settings that checks use; the others are not needed, and name hosts and people.
SETTINGS = re.compile(
    r"(Prolog|Epilog)(\[\d+\]|Timeout)?|Prolog(EpilogTimeout|Flags)|HealthCheck.*|Topology.*|SLURM_VERSION"
)
HELD = re.compile(
    r"(?:Switch|Block|Ring|Torus)Name=(\S{1,200})(?!\S)(?:(?!(?:Switch|Block)Name=).)*?\bNodes=(?!\(null\))(\S+)"
)
NOT_LOADED = "slurm_load_topo error: "  # with exit code 0, where slurmctld does not answer
ABOVE = re.compile(r" Switches=[^( ]")  # a switch that has switches below it
# Where sites install Slurm without adding it to everyone's PATH, as Base Command Manager does.
ELSEWHERE = ("/usr/local/slurm/bin", "/cm/local/apps/slurm/current/bin", "/cm/shared/apps/slurm/current/bin")
WHICH_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER")  # of the user's environment: srun goes by them too


def printed(node: Node, *command: str) -> list[str]:
    """The lines that a command of the user's Slurm prints. Raises Absent, Denied, Broke."""
    program = find(node, command[0], (*on_path(node), *ELSEWHERE))
    named = {key: os.environ[key] for key in WHICH_SLURM if key in os.environ}
    return lines(node, *command, program=program, environment=named)


def read(node: Node) -> object:
    """Nodes, partitions, settings, and Slurm's topology."""
    settings = [setting for setting in map(SETTING.match, printed(node, "scontrol", "show", "config")) if setting]
    return {
        "nodes": [_node(line) for line in printed(node, "scontrol", "-o", "show", "node") if "NodeName=" in line],
        "partitions": [
            _partition(line)
            for line in printed(node, "scontrol", "-o", "show", "partition")
            if "PartitionName=" in line
        ],
        "config": {setting[1]: setting[2].strip()[:300] for setting in settings if SETTINGS.fullmatch(setting[1])},
        "topology": _topology(node),
    }


def _node(line: str) -> dict[str, str]:
    """One node; what scontrol writes as (null) is empty, as what it does not write."""
    pairs, reason = _pairs(line), line.partition(" Reason=")[2]
    row = {ours: pairs.get(theirs, "") for ours, theirs in KEYS.items()}
    stamp = STAMP.search(reason)
    row["reason"] = (reason[: stamp.start()] if stamp else NEXT.split(reason)[0]).strip()[:MAX_REASON]
    row["reason_user"], row["reason_time"] = stamp.groups() if stamp else ("", "")
    return {key: "" if value == "(null)" else value[:4000] for key, value in row.items()}


def _pairs(line: str) -> dict[str, str]:
    """The values of a record by key; the text after a reason is a person's, and contains no keys."""
    return dict(word.split("=", 1) for word in line.partition(" Reason=")[0].split() if "=" in word)


def _partition(line: str) -> dict[str, object]:
    pairs = _pairs(line)
    return {
        "partition": pairs.get("PartitionName", ""),
        "state": pairs.get("State", ""),
        "is_default": pairs.get("Default") == "YES",
    }


def _topology(node: Node) -> object:
    """The nodes directly in each switch, block, ring or torus, as a nodeset; null without a topology; or an error."""
    try:
        rows = printed(node, "scontrol", "show", "topology")
    except Broke as problem:
        return {"error": str(problem)}
    for row in rows:
        if row.startswith(NOT_LOADED):
            return {"error": row.removeprefix(NOT_LOADED)}
    held = [line for line in map(HELD.search, rows) if line and not ABOVE.search(line.string)]
    return [{"switch": line[1], "nodes": line[2]} for line in held] or None
