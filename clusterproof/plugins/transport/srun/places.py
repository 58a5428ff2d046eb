"""Which nodes Slurm would start a command on, and how to group them.

Travels to the submit host; standard library only, for Python 3.8.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TypedDict

FOLDERS = "/opt/slurm/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin:/cm/shared/apps/slurm/current/bin"
FOLDERS += ":/usr/local/bin:/usr/bin:/bin"
KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER")  # of a job's environment: anything else would affect srun
STEERING = ("SLURM_", "SRUN_", "SBATCH_", "SQUEUE_", "SCANCEL_")  # would limit what squeue lists and scancel cancels
UNUSABLE = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "FUTURE", "INVAL", "NOT_RESPONDING", "UNKNOWN"}
UNUSABLE |= {"POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "POWER", "REBOOT_ISSUED", "INVALID_REG"}
ASK_S = 10.0  # for scontrol and squeue
# A job that is being signalled, was stopped or releases nodes is temporarily not R; a suspended job takes no step.
TAKING_STEPS = "R,SI,ST,RS"
MIN_MEMORY_MIB = 1024  # memory for the step, if nodes are configured with memory at all
GPUS = re.compile(r"\bgpu(?::[^:,(\s]+)?:(\d+)")
MARKS = r"[+*~#!%$@^-]"  # after a state
CONSTRAINS = re.compile(r"^ConstrainDevices\s*=\s*yes", re.MULTILINE | re.IGNORECASE)


class Request(TypedDict):
    """The request to the submit host: a command for these nodes, or for all if none is named."""

    name: str  # prefix of the jobs' names
    names: list[str]
    partition: str
    job: str  # the job whose nodes to use, if given
    options: list[str]  # for srun, as the user typed them
    wait_s: float  # for Slurm to allocate nodes
    minutes: int  # time limit of a job
    whole_s: float
    mark: str  # precedes the name that a task reports for itself
    end: str  # the end marker of an answer
    most_bytes: int  # limit for one node
    command: str


class Launch(TypedDict):
    """One srun: its nodes, and what it requests from Slurm; `job` is empty if it needs a job of its own."""

    job: str
    partition: str
    gpus: str
    memory: bool
    nodes: list[str]


class NodeAnswer(TypedDict, total=False):
    """A node's output; or a word for why there is none, and Slurm's reason."""

    output: str
    why: str
    detail: str


def ask(*command: str) -> tuple[int, str]:
    """The output of a Slurm command. Raises FileNotFoundError, TimeoutExpired."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, timeout=ASK_S, env=clean())
    return done.returncode, done.stdout.decode("utf-8", "replace")


def clean() -> dict[str, str]:
    """This environment without the variables that affect Slurm's commands."""
    ours = os.environ.items()
    return {key: value for key, value in ours if key in KEPT_VARIABLES or not key.startswith(STEERING)}


def nodes_of(listing: str) -> dict[str, dict[str, str]]:
    """Parse `scontrol -o show node`: the fields and the reason of each node."""
    records = {}
    for line in listing.splitlines():
        fields, _, reason = line.partition(" Reason=")  # the reason's text may resemble any of the fields
        record = dict(word.split("=", 1) for word in fields.split() if "=" in word)
        if "NodeName" in record:
            reason = re.split(r"(?<=\]) [A-Z][A-Za-z]{2,30}=", reason)[0]  # comments after Slurm's own stamp
            records[record["NodeName"]] = {**record, "Reason": reason.strip()[:200]}
    return records


def is_usable(record: dict[str, str]) -> bool:
    """Whether Slurm starts jobs on a node in this state."""
    state = record.get("State", "UNKNOWN")
    return not (UNUSABLE & set(re.split(MARKS, state)) or "*" in state)


def is_full(record: dict[str, str]) -> bool:
    """Whether all CPUs of the node are allocated."""
    return record.get("CPUAlloc") == record.get("CPUEfctv", record.get("CPUTot")) or not is_usable(record)


def own_jobs(full: list[dict[str, str]], wanted: str) -> dict[str, str]:
    """For each node, a job of this user that takes steps; preferring the requested one, or the one this runs in."""
    inside = wanted or os.environ.get("SLURM_JOB_ID", "")
    jobs: dict[str, str] = {}
    if not (full or inside):
        return jobs
    user = str(os.getuid())
    for line in ask("squeue", "-h", "-t", TAKING_STEPS, "-u", user, "-o", "%A %N")[1].splitlines():
        job, _, nodes = line.partition(" ")
        for name in ask("scontrol", "show", "hostnames", nodes)[1].split():
            if job == inside or (name not in jobs and any(record["NodeName"] == name for record in full)):
                jobs[name] = job
    return jobs


def plan(
    names: list[str], records: dict[str, dict[str, str]], jobs: dict[str, str], constrains: bool, partition: str
) -> tuple[list[Launch], dict[str, NodeAnswer]]:
    """The sruns to start, each for all nodes that can go together; and the nodes that Slurm allocates to nobody."""
    refused: dict[str, NodeAnswer] = {}
    groups: dict[tuple[str, str, str, bool], list[str]] = {}
    for name in names:
        record = records.get(name)
        if record is None:
            refused[name] = {"why": "unknown", "detail": f"Slurm knows no node {name}"}
        elif name in jobs:
            groups.setdefault((jobs[name], "", "", False), []).append(name)
        elif not is_usable(record):
            reason = f": {record['Reason']}" if record["Reason"] else ""
            why = "drained" if "DRAIN" in record.get("State", "") and "DOWN" not in record["State"] else "down"
            refused[name] = {"why": why, "detail": f"Slurm reports it as {record.get('State')}{reason}"}
        else:
            gpus = sum(map(int, GPUS.findall(record.get("Gres", ""))))  # of all types
            wanted = str(gpus) if gpus and constrains and record["State"].startswith("IDLE") else ""
            own = record.get("Partitions", "").split(",")
            memory = record.get("RealMemory", "0").isdecimal() and int(record.get("RealMemory", "0")) > MIN_MEMORY_MIB
            groups.setdefault(("", partition if partition in own else own[0], wanted, memory), []).append(name)
    launches: list[Launch] = [
        {"job": job, "partition": chosen, "gpus": gpus, "memory": memory, "nodes": nodes}
        for (job, chosen, gpus, memory), nodes in groups.items()
    ]
    return launches, refused
