"""Touches file systems side by side, each in a process that may hang without harm to the others."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections.abc import Sequence

from clusterproof.plugins.probe.reading import Node

SHARE = 0.6  # of the leaf's time, at most, for waiting
UNKNOWN = {"total_kib": None, "free_kib": None, "inodes": None, "inodes_free": None, "read_s": None}


def touch_all(node: Node, mounts: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """What each of these (path, device) answers: its sizes, the error it gives, or that it hangs."""
    pipe, writing = os.pipe()
    started = {_start(node, number, mount, writing): number for number, mount in enumerate(mounts)}
    os.close(writing)
    answers = _answers(pipe, len(mounts), time.monotonic() + min(node.mount_s, SHARE * node.leaf_s))
    for pid, number in started.items():
        if number not in answers:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    return [{"alive": "hung", **UNKNOWN, **answers.get(number, {})} for number in range(len(mounts))]


def _start(node: Node, number: int, mount: tuple[str, str], writing: int) -> int:
    """Fork a process that touches one mount and writes one line, short enough that a pipe takes it as one."""
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(int(node.leaf_s) + 2)
            line = json.dumps([number, _touch(node, *mount)]).encode() + b"\n"
            os.write(writing, line)
        finally:
            os._exit(0)
    return pid


def _answers(pipe: int, count: int, until: float) -> dict[int, dict[str, object]]:
    """The answers that come in time, by number."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    answers: dict[int, dict[str, object]] = {}
    told = b""
    while len(answers) < count and poll.poll(1000 * max(0.0, until - time.monotonic())):
        heard = os.read(pipe, 65536)
        if not heard:
            break
        *lines, told = (told + heard).split(b"\n")
        answers.update(json.loads(line) for line in lines)
    return answers


def _touch(node: Node, path: str, device: str) -> dict[str, object]:
    """Ask one file system for its sizes and for the first entry of its folder."""
    full = node.root + path
    start = time.monotonic()
    try:
        if node.root and _device(full) != device:
            return {"alive": "hidden"}  # mounted on the node, and not visible under this root
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
        "read_s": round(time.monotonic() - start, 4),
    }


def _device(path: str) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _look_into(path: str) -> None:
    """Read a folder's beginning; that this user may not, or that it is a file, is an answer too."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except (PermissionError, NotADirectoryError):
        pass
