"""What jobs left behind: processes of ended jobs, and files in /dev/shm whose owner has no process."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.host.collect_owner import ROOT, daemon_users, in_turn, is_daemon, owner
from clusterproof.plugins.evidence.storage.collect_mounts import unmounted

STEP = "slurmstepd"  # each step of a running job has one
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
    """The running jobs, processes of other jobs, and /dev/shm usage by owners without a process."""
    running: set[str] = set()
    owners: set[int] = set()
    daemons = daemon_users(node)
    started: list[dict[str, object]] = []
    unread = 0
    doubted: set[str] = set()  # of possible steps: only root may know
    for pid in node.names("/proc"):
        if not pid.isdecimal():
            continue
        try:
            uid = owner(node, pid)
            owners.add(uid)
            name = node.read(f"/proc/{pid}/comm").strip()
            if name.startswith(STEP) and uid in daemons:
                titled = TITLE.match(node.read(f"/proc/{pid}/cmdline"))
                try:
                    (running if is_daemon(node, pid, STEP, daemons) else set()).update(
                        titled.groups() if titled else ()
                    )
                except PermissionError:
                    doubted.update(titled.groups() if titled else ())
            elif uid != ROOT:  # its processes are prologs, epilogs and daemons, not a job's
                job, is_sure = _job(node, pid)
                started += [{"pid": int(pid), "name": name, "uid": uid, "job": job, "is_sure": is_sure}] if job else []
        except PermissionError:
            unread += 1
        except OSError:
            continue  # it has ended meanwhile
    unread += sum(process["job"] in doubted - running for process in started)
    left = [process for process in started if process["job"] not in running | doubted]
    left.sort(key=lambda process: not process["is_sure"])
    return {
        "running": sorted(running, key=int),
        "left": in_turn(left, "uid", MAX_PROCESSES),
        "left_out": max(0, len(left) - MAX_PROCESSES),
        "unread": unread,
        "shm": _shm(node, owners),
    }


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
