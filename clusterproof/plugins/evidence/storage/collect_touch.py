"""Accesses file systems in processes of their own, so that one that hangs does not hold up the others."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections.abc import Sequence

from clusterproof.plugins.agent.process_group import is_starved, waited_s
from clusterproof.plugins.agent.reading import Node

SHARE = 0.6  # most of the collector's time to spend waiting
IN_TURN_S = 0.1  # for one process to access all of them, which is enough on most nodes
UNKNOWN = {"total_kib": None, "free_kib": None, "inodes": None, "inodes_free": None, "read_s": None}
LEFT: set[int] = set()  # killed processes that may still hang in a file system


def are_left() -> bool:
    """Whether any killed process still hangs."""
    LEFT.difference_update([pid for pid in LEFT if os.waitpid(pid, os.WNOHANG)[0]])
    return bool(LEFT)


def touch_all(node: Node, mounts: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """The answer of each mount (path, device, empty if unknown): its sizes, an error, or that it hangs.

    One process accesses them in turn; when it waits too long, each of the remaining ones gets its own process.
    """
    numbers = range(len(mounts))
    timeout_s = min(node.mount_s, SHARE * node.collector_s)
    in_turn = _start(node, mounts, numbers)
    answers = _answers([in_turn], len(mounts), time.monotonic() + IN_TURN_S)
    waiting = [number for number in numbers if number not in answers]
    started = {number: _start(node, mounts, [number]) for number in waiting[1:]}
    started.update((number, in_turn) for number in waiting[:1])
    if started:
        answers.update(_answers(list(started.values()), len(started), time.monotonic() + timeout_s))
    for number, (pid, _) in started.items():
        if number not in answers:
            answers[number] = {"alive": "slow" if is_starved(pid, timeout_s) else "hung"}
    for pid, pipe in {in_turn, *started.values()}:
        os.kill(pid, signal.SIGKILL)
        if not os.waitpid(pid, os.WNOHANG)[0]:
            LEFT.add(pid)
        os.close(pipe)
    return [{**UNKNOWN, **answers[number]} for number in numbers]


def _start(node: Node, mounts: Sequence[tuple[str, str]], numbers: Sequence[int]) -> tuple[int, int]:
    """Fork a process that accesses these mounts in turn: its pid, and the pipe to which it writes a line for each."""
    pipe, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(int(node.collector_s) + 2)
            for number in numbers:
                os.write(writing, json.dumps([number, _touch(node, *mounts[number])]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    return pid, pipe


def _answers(started: Sequence[tuple[int, int]], count: int, until: float) -> dict[int, dict[str, object]]:
    """The answers that arrive in time, by number. Each line is short enough for a pipe to carry it in one piece."""
    poll = select.poll()
    for _, pipe in started:
        poll.register(pipe, select.POLLIN)
    answers: dict[int, dict[str, object]] = {}
    open_pipes = len(started)
    while len(answers) < count and open_pipes:
        ready = poll.poll(1000 * max(0.0, until - time.monotonic()))
        for pipe, _ in ready:
            received = os.read(pipe, 65536)
            answers.update(json.loads(line) for line in received.splitlines())
            if not received:
                poll.unregister(pipe)
                open_pipes -= 1
        if not ready:
            break
    return answers


def _touch(node: Node, path: str, device: str) -> dict[str, object]:
    """Ask one file system for its sizes and for the first entry of its folder."""
    full = node.root + path
    start = _clock_s()
    try:
        if _is_gone(node, device):
            return {"alive": "ENODEV"}  # its cached folders are no sign of life
        if node.root and not (_device(full) == device if device else os.path.ismount(full)):
            return {"alive": "hidden"}  # mounted on the node, but not visible under this root directory
        sizes = os.statvfs(full)
        _look_into(full)
    except OSError as problem:
        return {"alive": errno.errorcode.get(problem.errno or 0, str(problem.errno))}
    return {
        "alive": "yes",
        "total_kib": (sizes.f_blocks - sizes.f_bfree + sizes.f_bavail) * sizes.f_frsize // 1024,
        "free_kib": sizes.f_bavail * sizes.f_frsize // 1024,
        "inodes": sizes.f_files,
        "inodes_free": sizes.f_ffree,
        "read_s": round(_clock_s() - start, 4),
    }


def _clock_s() -> float:
    """A clock that stops while this process waits for a CPU."""
    return time.monotonic() - waited_s("self")


def _is_gone(node: Node, device: str) -> bool:
    """Whether the disk below was pulled out, or given up by its driver, while mounted."""
    blocks = f"{node.root}/sys/dev/block"
    return not device.startswith("0:") and os.path.isdir(blocks) and not os.path.exists(f"{blocks}/{device}")


def _device(path: str) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _look_into(path: str) -> None:
    """Read a folder's first entry; a permission error, or that it is a file, is an answer too."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except (PermissionError, NotADirectoryError):
        pass
