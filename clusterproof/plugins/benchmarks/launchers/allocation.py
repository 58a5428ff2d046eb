"""Reserves Slurm nodes: uses a running job, or starts one for all nodes that Slurm allocates now.

Travels with `on_submit_host`; standard library only, for Python 3.8.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any

from clusterproof.plugins.benchmarks.launchers.pipes import wait
from clusterproof.plugins.transport.srun.places import GPUS, MARKS, TAKING_STEPS, ask, clean, is_usable, nodes_of

TICK_S = 0.5
OF_STEPS = ("--mpi", "--export", "--container", "--cpu-bind", "--label")  # options that salloc lacks
GRANTED = re.compile(r"Granted job allocation (\d+)")


def reserve(request: dict[str, Any]) -> dict[str, Any]:
    """A job that has the nodes: a running one, or a new one for all nodes that Slurm allocates now."""
    status, listing = ask("scontrol", "-o", "show", "node")
    if status:
        return {"wrong": f"scontrol: {' '.join(listing.split())[:300]}"}
    records = nodes_of(listing)
    names = request["names"] or list(records)
    addresses = {name: addresses_of(records[name]) for name in names if name in records}
    mpi = {"listed": ask("srun", "--mpi=list")[1][:4000], "config": ask("scontrol", "show", "config")[1][:60000]}
    if request["job"]:  # what may fail comes before: a job that was given would stay
        job, refused = of_job(request["job"], names)
    else:
        job, refused = allocate(request, names, records)
    return {"job": job, "is_ours": not request["job"], "refused": refused, "addresses": addresses, "mpi": mpi}


def addresses_of(record: dict[str, str]) -> list[str]:
    """The names by which other nodes reach it, as used by Slurm's own daemons."""
    return list(dict.fromkeys(record.get(key, record["NodeName"]) for key in ("NodeAddr", "NodeHostName")))


def of_job(job_id: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """The id of a job that takes steps, and nodes missing from it; or why it cannot be used, from its state."""
    rows = [
        line.split("|") for line in ask("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%t|%T|%A|%N")[1].splitlines()
    ]
    jobs = [row for row in rows if len(row) == 4]
    taking = [row for row in jobs if row[0] in TAKING_STEPS.split(",")]
    if not taking:
        seen = f"is {jobs[0][1].lower()}" if jobs else "is not known to Slurm"
        return "", dict.fromkeys(names, f"job {job_id} {seen}; expected one of squeue -t {TAKING_STEPS}")
    _, _, job, nodes = taking[0]
    own = ask("scontrol", "show", "hostnames", nodes)[1].split()
    return job, {name: f"not a node of job {job_id}" for name in names if name not in own}


def allocate(
    request: dict[str, Any], names: list[str], records: dict[str, dict[str, str]]
) -> tuple[str, dict[str, str]]:
    """Start a job on all nodes that are idle, or become so within the wait; says why Slurm does not give the others."""
    until = time.monotonic() + request["wait_s"]
    refused = {name: state_text(records.get(name)) for name in names if not is_usable(records.get(name, {}))}
    wanted = [name for name in names if name not in refused]
    partition = partition_of(wanted, records, request["partition"])
    for name in [name for name in wanted if partition not in records[name].get("Partitions", "").split(",")]:
        refused[name] = f"it is not in partition {partition}, where the others are"
    while not all(is_idle(records[name]) for name in wanted) and time.monotonic() < until:
        wait(TICK_S)
        records = nodes_of(ask("scontrol", "-o", "show", "node")[1])
    refused.update({name: f"busy: {state_text(records.get(name))}" for name in wanted if not is_idle(records[name])})
    free = [name for name in wanted if name not in refused]
    if not free:
        return "", refused
    job, why = salloc(request, free, partition, min(map(gpus_of, map(records.__getitem__, free))))
    return job, refused if job else {**refused, **dict.fromkeys(free, why)}


def is_idle(record: dict[str, str]) -> bool:
    """Whether a whole node is available now."""
    return is_usable(record) and re.split(MARKS, record.get("State", ""))[0] == "IDLE"


def state_text(record: dict[str, str] | None) -> str:
    """Slurm's description of a node that it does not allocate."""
    if not record:
        return "Slurm knows no such node"
    return f"Slurm reports it as {record.get('State')}" + (f": {record['Reason']}" if record["Reason"] else "")


def partition_of(names: list[str], records: dict[str, dict[str, str]], wanted: str) -> str:
    """The partition with most of the nodes."""
    partitions = [partition for name in names for partition in records[name].get("Partitions", "").split(",")]
    return wanted or max(partitions, key=partitions.count, default="")


def gpus_of(record: dict[str, str]) -> int:
    """The number of GPUs of a node."""
    match = GPUS.search(record.get("Gres", ""))
    return int(match[1]) if match else 0


def salloc(request: dict[str, Any], names: list[str], partition: str, gpus: int) -> tuple[str, str]:
    """Start a job on these whole nodes; or return why not. It ends by itself after its time limit."""
    command = ["salloc", "--no-shell", "--no-kill", "--exclusive", "--mem=0", f"--job-name={request['name']}"]
    command += [f"--nodelist={','.join(names)}", f"--nodes={len(names)}", f"--time={request['minutes']}"]
    command += [f"--partition={partition}"] if partition else []
    command += [f"--gres=gpu:{gpus}"] if gpus else []
    command += of_allocation(request["options"])
    salloc = subprocess.Popen(command, stdin=-3, stdout=-1, stderr=-2, env=clean())
    output = bytearray()
    assert salloc.stdout
    until = time.monotonic() + request["wait_s"]
    is_closed = False
    try:
        while time.monotonic() < until and not is_closed:
            if wait(until - time.monotonic(), salloc.stdout.fileno()):
                read = os.read(salloc.stdout.fileno(), 65536)
                output += read
                is_closed = not read
        granted = GRANTED.search(output.decode("utf-8", "replace"))
        if is_closed and granted:
            return granted[1], ""
        if is_closed:
            return "", " ".join(output.decode("utf-8", "replace").split())[:300]
        reason = ask("squeue", "-h", f"--name={request['name']}", "-o", "%r")[1].split("\n")[0][:100]
        return "", f"busy: no place within {request['wait_s']:g} s: {reason or 'no reason'}"
    finally:
        if not is_closed:
            salloc.terminate()
            ask("scancel", f"--name={request['name']}")
        salloc.stdout.close()


def of_allocation(options: list[str]) -> list[str]:
    """Those of srun's options that salloc supports too; a value may be a separate word."""
    kept: list[str] = []
    is_of_step = False
    for word in options:
        is_of_step = word.startswith(OF_STEPS) if word.startswith("-") else is_of_step
        kept += [] if is_of_step else [word]
    return kept
