"""A file written to a folder that the user names, and read back, with fio, bypassing the node's own cache."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.agent.tools import find, user_of
from clusterproof.plugins.benchmarks.load.tool import END_S, document_in, folders, measured, named

KIB, MIB = 1024, 1024 * 1024  # the former in fio's `io_bytes` before version 3, which added `io_kbytes`
JOBS = 8  # threads of one process: fio's worker processes leave its group, and would outlive the collector
FILE_MIB = 4096  # maximum that they write together, and then read
RUN_S = 20  # maximum for writing, and for reading
FREE = 4  # the file must fit into the free space so many times: this test must not fill a file system
PLAIN = ("--direct=1", "--ioengine=psync", "--bs=1M", "--thread", "--fallocate=none", "--output-format=json")
PREFIX = ".clusterproof-"


def fs_bandwidth(node: Node) -> object:
    """Bytes and seconds of a sequential write and of reading it back. Raises Absent, Broke."""
    folder = node.settings["fs_folder"]
    if not os.path.isdir(node.path(folder)):
        raise Absent(f"no folder {folder}")
    size_mib = int(node.settings.get("fs_mib", FILE_MIB)) // JOBS
    require_space(node, folder, size_mib)
    node.at(folder)
    runs_as = user_of(node, find(node, "fio", folders(node), named(node))) if named(node) else os.geteuid()
    with scratch_file(node.path(folder), runs_as) as (path, name):
        written = phase(node, path, name, "write", size_mib)
        least_mib = min(job["bytes"] for job in written) // MIB
        if not least_mib:
            raise Broke(f"{folder}: a job wrote less than 1 MiB in {RUN_S} s")
        read_back = phase(node, path, name, "read", least_mib, size_mib)
    return {"folder": folder, "write": total(written), "read": total(read_back)}


def require_space(node: Node, folder: str, size_mib: int) -> None:
    """Write nothing if little space is free. Raises Broke."""
    space = os.statvfs(node.path(folder))
    free_mib = space.f_bavail * space.f_frsize // MIB
    needed_mib = FREE * JOBS * size_mib
    if free_mib < needed_mib:
        raise Broke(f"{folder} has {free_mib} MiB free; expected {needed_mib} before {JOBS * size_mib} are written")


def phase(node: Node, path: str, name: str, direction: str, size_mib: int, apart_mib: int = 0) -> list[dict[str, int]]:
    """The results of each job of a fio run. Raises Absent, Broke, TimedOut."""
    arguments: tuple[str, ...] = (
        f"--name={direction}",
        f"--filename={path}",
        f"--description={name}",
        f"--rw={direction}",
        f"--size={size_mib}M",
    )
    apart = f"--offset_increment={apart_mib or size_mib}M"
    own = ("--end_fsync=1", "--create_on_open=1") if direction == "write" else ()  # else it makes the file anew
    arguments += (apart, f"--numjobs={JOBS}", f"--runtime={RUN_S}", *PLAIN, *own)
    ran = measured(node, "fio", *arguments, timeout_s=(node.collector_s - END_S) / 2)
    if ran["exit"]:
        raise Broke(f"fio ended its {direction} with {ran['exit']}: {' '.join(str(ran['output']).split())[:200]}")
    data = document_in(ran)
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list) or len(jobs) != JOBS:
        raise Broke(f"fio reported nothing about its {JOBS} jobs")
    done = [job[direction] for job in jobs]
    return [{"bytes": of["io_bytes"] * (1 if "io_kbytes" in of else KIB), "ms": of["runtime"]} for of in done]


def total(jobs: list[dict[str, int]]) -> dict[str, object]:
    """The total bytes, and the seconds of the slowest job."""
    return {"bytes": sum(job["bytes"] for job in jobs), "seconds": max(job["ms"] for job in jobs) / 1000}


@contextlib.contextmanager
def scratch_file(folder: str, user: int) -> Iterator[tuple[str, str]]:
    """Create a file in a folder, readable only by that user, and yield a path to it, and its name. Raises OSError.

    The path leads a child to this file, and to no other that a user of the folder gives its name. It is removed at the
    end by this process, or if that is killed, by another that waits for this.
    """
    name = os.path.join(folder, PREFIX + secrets.token_hex(6))
    lifeline = watched(name)
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.set_inheritable(file, True)
            if user != os.geteuid():  # not of a file that the server gave to nobody, as with root_squash
                os.fchown(file, user, -1)
            yield f"/proc/self/fd/{file}", name
        finally:
            os.close(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        os.close(lifeline)


def watched(path: str) -> int:
    """Have a path removed as soon as the returned descriptor is closed, however its holders end."""
    waiting, lifeline = os.pipe()
    is_watched, watches = os.pipe()
    os.set_inheritable(lifeline, True)  # the writing program holds it open too
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
    """Leave the collector's group, which is killed as a whole; wait; remove the file."""
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
