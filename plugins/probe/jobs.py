"""What jobs have left: processes whose job runs here no more, and files in /dev/shm whose owner has no process."""

from __future__ import annotations

import os
import re
import time

from clusterproof.plugins.probe.reading import Node, error

STEP = "slurmstepd"  # there is one for every step of a job that runs here
TITLE = re.compile(r"slurmstepd: \[(\d+)")
JOB = re.compile(r"(?:^|\0)SLURM_JOB_ID=(\d{1,12})(?:\0|$)")
SHM = "/dev/shm"
MAX_PROCESSES = 64
MAX_FILES = 10_000
ROOT = 0  # its processes are prologs, epilogs and daemons, and no job's


def read(node: Node) -> object:
    """The jobs that run here, processes of others, and what owners without a process have in /dev/shm."""
    running: set[str] = set()
    owners: set[int] = set()
    started: list[dict[str, object]] = []
    unread = 0
    for pid in node.names("/proc"):
        if not pid.isdigit():
            continue
        try:
            owner = os.stat(node.path(f"/proc/{pid}")).st_uid
            owners.add(owner)
            name = node.read(f"/proc/{pid}/comm").strip()
            if name.startswith(STEP):
                titled = TITLE.match(node.read(f"/proc/{pid}/cmdline"))
                running.update(titled.groups() if titled else ())
            elif owner != ROOT:
                job = JOB.search(node.read(f"/proc/{pid}/environ"))
                started += [{"pid": int(pid), "name": name, "uid": owner, "job": job[1]}] if job else []
        except PermissionError:
            unread += 1
        except OSError:
            continue  # it has ended meanwhile
    left = [process for process in started if process["job"] not in running]
    return {
        "running": sorted(running, key=int),
        "left": left[:MAX_PROCESSES],
        "left_out": max(0, len(left) - MAX_PROCESSES),
        "unread": unread,
        "shm": _shm(node, owners),
    }


def _shm(node: Node, owners: set[int]) -> object:
    """What lies in /dev/shm of each owner who has no process, largest first."""
    now = time.time()
    found: dict[int, dict[str, float]] = {}
    try:
        names = node.names(SHM)[:MAX_FILES]
    except OSError as problem:
        return error(problem)
    for name in names:
        try:
            file = os.lstat(node.path(f"{SHM}/{name}"))
        except OSError:
            continue  # it was removed meanwhile
        if file.st_uid in owners or file.st_uid == ROOT:
            continue
        told = found.setdefault(file.st_uid, {"uid": file.st_uid, "count": 0, "kib": 0, "oldest_s": 0.0})
        told["count"] += 1
        told["kib"] += file.st_blocks // 2
        told["oldest_s"] = max(told["oldest_s"], round(now - file.st_mtime, 1))
    return sorted(found.values(), key=lambda told: -told["kib"])
