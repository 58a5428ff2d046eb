"""What jobs left behind: processes of ended jobs, and files in /dev/shm whose owner has no process."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.host.collect_owner import ROOT, daemon_users, in_turn, is_daemon, owner
from clusterproof.plugins.evidence.storage.collect_mounts import unmounted

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

STEP = "slurmstepd"  # there is one for every step of a job that runs here
TITLE = Pattern(r"slurmstepd: \[(\d+)")
JOB = Pattern(r"(?:^|\0)SLURM_JOB_ID=(\d{1,12})(?:\0|$)")
STARTED_HERE = Pattern(r"(?:^|\0)SLURMD_NODENAME=")  # by a step, which salloc's own shell is not
# A control group made by slurmstepd: processes cannot leave it, and users cannot create that path.
GROUP = Pattern(
    r"(?m)^\d+:[^:]*:/(?:slurm[^/\n]*/uid_\d+|(?:system\.slice/)?[^/\n]*slurmstepd\.scope)/job_(\d{1,12})(?:/|$)"
)
SHM = "/dev/shm"
MAX_PROCESSES = 64
MAX_FILES = 100_000


def read(node: Node) -> object:
    """The jobs that run here, processes of others, and what owners without a process have in /dev/shm.

    What a process can keep waiting is read last, one after the other: its command line and its environment.
    """
    daemons = daemon_users(node)
    owners: set[int] = set()
    processes, unread = _processes(node, owners)
    shm = _shm(node, owners)
    node.so_far({"shm": shm})
    steps = [pid for pid, uid, name in processes if name.startswith(STEP) and uid in daemons]
    running, doubted, refused = _steps(node, steps, daemons)
    unread += refused
    node.so_far({"running": running, "left": [], "left_out": 0})
    left: list[dict[str, Any]] = []
    for pid, uid, name in processes:
        if uid == ROOT or pid in steps:  # root's are prologs, epilogs and daemons, and no job's
            continue
        node.at(f"process {pid} ({name})")
        try:
            job, is_sure = _job(node, pid)
        except OSError as problem:
            unread += isinstance(problem, PermissionError)  # else it has ended meanwhile
            continue
        unread += job in doubted
        if job and job not in (*running, *doubted):
            left.append({"pid": int(pid), "name": name, "uid": uid, "job": job, "is_sure": is_sure})
            node.so_far({"left": left[-1:]})
    left.sort(key=lambda process: not process["is_sure"])
    return {
        "running": running,
        "left": in_turn(left, "uid", MAX_PROCESSES),
        "left_out": max(0, len(left) - MAX_PROCESSES),
        "unread": unread,
        "shm": shm,
    }


def _processes(node: Node, owners: set[int]) -> tuple[list[tuple[str, int, str]], int]:
    """Each process with its user and its name, and how many may not be read; adds whoever has one to the owners."""
    processes, unread = [], 0
    for pid in node.pids():
        try:
            uid = owner(node, pid)
            owners.add(uid)
            processes.append((pid, uid, node.read(f"/proc/{pid}/comm").strip()))
        except OSError as problem:
            unread += isinstance(problem, PermissionError)  # else it has ended meanwhile
    return processes, unread


def _steps(node: Node, pids: list[str], daemons: frozenset[int]) -> tuple[list[str], set[str], int]:
    """The jobs of these steps, those of what may be one, as only root may know, and how many may not be read."""
    running: set[str] = set()
    doubted: set[str] = set()
    refused = 0
    for pid in pids:
        node.at(f"process {pid} ({STEP})")
        titled = None
        try:
            titled = TITLE.match(node.read(f"/proc/{pid}/cmdline"))
            if is_daemon(node, pid, STEP, daemons):
                running.update(titled.groups() if titled else ())
        except PermissionError:
            refused += titled is None
            doubted.update(titled.groups() if titled else ())
        except OSError:
            continue  # it has ended meanwhile
    return sorted(running, key=int), doubted - running, refused


def _job(node: Node, pid: str) -> tuple[str, bool]:
    """The job that a process was started for: certain by control group, else from its environment. Raises OSError.

    A process can change its own environment.
    """
    try:
        group = GROUP.search(node.read(f"/proc/{pid}/cgroup"))
    except FileNotFoundError:
        group = None
    if group:
        return group[1], True
    environment = node.read(f"/proc/{pid}/environ")
    job = JOB.search(environment) if STARTED_HERE.search(environment) else None
    return (job[1] if job else ""), False


def _shm(node: Node, owners: set[int]) -> object:
    """The files in /dev/shm of each owner without a process, largest first."""
    now = time.time()
    by_uid: dict[int, dict[str, float]] = {}
    try:
        names = unmounted(node, SHM)
    except OSError as problem:
        return error(problem)
    for name in names[:MAX_FILES]:
        try:
            file = os.lstat(node.path(f"{SHM}/{name}"))
        except OSError:
            continue  # it was removed meanwhile
        if file.st_uid in owners or file.st_uid == ROOT:
            continue
        row = by_uid.setdefault(file.st_uid, {"uid": file.st_uid, "count": 0, "kib": 0, "oldest_s": 0.0})
        row["count"] += 1
        row["kib"] += file.st_blocks // 2
        row["oldest_s"] = max(row["oldest_s"], round(now - file.st_mtime, 1))
    if not by_uid and len(names) > MAX_FILES:
        return {"error": "E2BIG", "text": f"{SHM}: more than {MAX_FILES} files"}
    return sorted(by_uid.values(), key=lambda row: -row["kib"])
