"""Starts, reads and ends process groups, using only files of /proc whose reading cannot block."""

from __future__ import annotations

import os
import re
import resource
import signal

MAX_FRAMES = 24
FRAME = re.compile(r"(?m)^\[<[0-9a-f]*>\] (\w{1,80})")


def living(group: int) -> tuple[str, list[str]]:
    """Words for a process of a group that lives on, one in state D first, and what it is in; empty where none does."""
    processes = sorted(
        (state != "D", pid, name, state)
        for pid, name, state, its_group, session in _processes()
        if group in (its_group, session) and state not in "ZX"
    )
    if not processes:
        return "", []
    _, pid, name, state = processes[0]
    waits = functions(_read(f"/proc/{pid}/wchan"), _read(f"/proc/{pid}/stack"))
    return f"process {pid} ({name}) in state {state}" + (f", waiting in {waits[0]}" if waits else ""), waits


def is_starved(pid: int, elapsed_s: float) -> bool:
    """Whether a process has waited for a processor, rather than for anything else, for most of this time."""
    data, fields = _read(f"/proc/{pid}/schedstat").split(), stat_fields(_read(f"/proc/{pid}/stat"))
    if len(data) < 2 or len(fields) < 3:
        return False  # the kernel does not report it, or it has ended
    ran_s, queued_s = (int(number) / 1e9 for number in data[:2])  # without the time since it last waited
    return queued_s > elapsed_s / 2 or (fields[2] == "R" and ran_s < elapsed_s / 2)


def waited_s(pid: str) -> float:
    """How long a process has waited for a processor; 0.0 where the kernel does not report it."""
    data = _read(f"/proc/{pid}/schedstat").split()
    return int(data[1]) / 1e9 if len(data) > 1 else 0.0


def functions(wait: str, stack: str) -> list[str]:
    """The kernel's functions that a process is in, innermost first, by its wchan and, for root, its stack."""
    return [*([wait] if wait.strip("0") else []), *FRAME.findall(stack)[:MAX_FRAMES]]


def _processes() -> list[tuple[int, str, str, int, int]]:
    data = (stat_fields(_read(f"/proc/{pid}/stat")) for pid in os.listdir("/proc") if pid.isdecimal())
    return [(int(f[0]), f[1], f[2], int(f[4]), int(f[5])) for f in data if f]


def stat_fields(stat: str) -> list[str]:
    """The fields of a /proc/PID/stat, whatever the process calls itself; none where it is gone."""
    pid, opened, rest = stat.partition(" (")
    name, closed, fields = rest.rpartition(") ")
    return [pid, name, *fields.split()] if opened and closed else []


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def detach(kept: tuple[int, ...], *signals: int) -> None:
    """Leave the parent's session, holding nothing of it open that would keep the connection, but these descriptors."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, *signals):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))  # 1: no core, not even through a pipe
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1024)
