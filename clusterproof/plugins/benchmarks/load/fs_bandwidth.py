"""How fast this node writes to and reads from a folder that the user names: `fio`, past the node's own cache."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.benchmarks.load.tool import END_S, document_in, measured

MIB = 1024 * 1024
JOBS = 8  # threads of one process: each job of fio that is a process leaves its group, and would outlive its collector
FILE_MIB = 4096  # that they write together, and then read, at most
RUN_S = 20  # for writing, and for reading, at most
FREE = 4  # times the file must fit into what is free: this test is not to fill a file system
PLAIN = ("--direct=1", "--ioengine=psync", "--bs=1M", "--thread", "--fallocate=none", "--output-format=json")
PREFIX = ".clusterproof-"


def read(node: Node) -> object:
    """Bytes and seconds of a sequential write and of a read of what was written."""
    folder = node.settings["fs_folder"]
    if not os.path.isdir(node.path(folder)):
        raise Absent(f"no folder {folder}")
    size_mib = int(node.settings.get("fs_mib", FILE_MIB)) // JOBS
    require_space(node, folder, size_mib)
    node.at(folder)
    with scratch_file(node.path(folder)) as path:
        inside = path[len(node.root) :] if node.root else path
        written = phase(node, inside, "write", size_mib)
        least_mib = min(job["bytes"] for job in written) // MIB
        if not least_mib:
            raise Broke(f"{folder}: a job wrote less than 1 MiB in {RUN_S} s")
        read_back = phase(node, inside, "read", least_mib, size_mib)
    return {"folder": folder, "write": total(written), "read": total(read_back)}


def require_space(node: Node, folder: str, size_mib: int) -> None:
    """Write nothing where little is free. Raises Broke."""
    space = os.statvfs(node.path(folder))
    free_mib = space.f_bavail * space.f_frsize // MIB
    needed_mib = FREE * JOBS * size_mib
    if free_mib < needed_mib:
        raise Broke(f"{folder} has {free_mib} MiB free; expected {needed_mib} before {JOBS * size_mib} are written")


def phase(node: Node, path: str, direction: str, size_mib: int, apart_mib: int = 0) -> list[dict[str, int]]:
    """What each job of a run of fio did. Raises Absent, Broke, TimedOut."""
    words: tuple[str, ...] = (f"--name={direction}", f"--filename={path}", f"--rw={direction}", f"--size={size_mib}M")
    apart = f"--offset_increment={apart_mib or size_mib}M"
    flush = ("--end_fsync=1",) if direction == "write" else ()
    words += (apart, f"--numjobs={JOBS}", f"--runtime={RUN_S}", *PLAIN, *flush)
    ran = measured(node, "fio", *words, timeout_s=(node.collector_s - END_S) / 2)
    if ran["exit"]:
        raise Broke(f"fio ended its {direction} with {ran['exit']}: {' '.join(str(ran['output']).split())[:200]}")
    data = document_in(ran)
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list) or len(jobs) != JOBS:
        raise Broke(f"fio reported nothing about its {JOBS} jobs")
    return [{"bytes": job[direction]["io_bytes"], "ms": job[direction]["runtime"]} for job in jobs]


def total(jobs: list[dict[str, int]]) -> dict[str, object]:
    """All bytes, and the seconds of the job that took longest."""
    return {"bytes": sum(job["bytes"] for job in jobs), "seconds": max(job["ms"] for job in jobs) / 1000}


@contextlib.contextmanager
def scratch_file(folder: str) -> Iterator[str]:
    """A new file in a folder, only for this user, as its path. Raises OSError.

    Removed at the end by this process, or, where it is killed first, by another that waits for just that.
    """
    path = os.path.join(folder, PREFIX + secrets.token_hex(6))
    lifeline = watched(path)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        yield path
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(lifeline)


def watched(path: str) -> int:
    """Have a path removed as soon as the descriptor that this returns is closed, by whatever end of its holders."""
    waiting, lifeline = os.pipe()
    is_watched, watches = os.pipe()
    os.set_inheritable(lifeline, True)  # what writes into the file holds on to it too
    if not os.fork():
        try:
            watch(path, waiting, watches)
        finally:
            os._exit(0)
    os.close(waiting)
    os.close(watches)
    os.read(is_watched, 1)
    os.close(is_watched)
    return lifeline


def watch(path: str, waiting: int, watches: int) -> None:
    """Leave the collector's group, which is killed as a whole; wait; remove."""
    os.setsid()
    signal.alarm(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.write(watches, b".")
    os.closerange(3, waiting)
    os.closerange(waiting + 1, 1024)
    os.read(waiting, 1)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
