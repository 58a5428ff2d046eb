"""Process groups: how to start and to end one, and what /proc says of its processes, read without blocking."""

from __future__ import annotations

import os
import re
import resource
import signal

MAX_FRAMES = 24
FRAME = re.compile(r"(?m)^\[<[0-9a-f]*>\] (\w{1,80})")


def living(group: int) -> tuple[str, list[str]]:
    """Describes a process of a group that is still alive, preferably one in state D; empty if there is none."""
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
    """Whether for most of this time a process waited for a CPU rather than for anything else."""
    data, fields = _read(f"/proc/{pid}/schedstat").split(), stat_fields(_read(f"/proc/{pid}/stat"))
    if len(data) < 2 or len(fields) < 3:
        return False  # the kernel does not report it, or it has ended
    ran_s, queued_s = (int(number) / 1e9 for number in data[:2])  # excludes the current wait
    return queued_s > elapsed_s / 2 or (fields[2] == "R" and ran_s < elapsed_s / 2)


def waited_s(pid: str) -> float:
    """How long a process has waited for a CPU; 0.0 if the kernel does not report it."""
    data = _read(f"/proc/{pid}/schedstat").split()
    return int(data[1]) / 1e9 if len(data) > 1 else 0.0


def functions(wait: str, stack: str) -> list[str]:
    """The kernel functions that a process is in, innermost first, from its wchan and, for root, its stack."""
    return [*([wait] if wait.strip("0") else []), *FRAME.findall(stack)[:MAX_FRAMES]]


def _processes() -> list[tuple[int, str, str, int, int]]:
    data = (stat_fields(_read(f"/proc/{pid}/stat")) for pid in os.listdir("/proc") if pid.isdecimal())
    return [(int(f[0]), f[1], f[2], int(f[4]), int(f[5])) for f in data if f]


def stat_fields(stat: str) -> list[str]:
    """The fields of /proc/PID/stat, whatever the process is called; empty if it is gone."""
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


def kill(pid: int) -> None:
    """Send SIGKILL to a process and to its group, which does not exist until the process has created it."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except OSError:
            continue


def detach(kept: tuple[int, ...], *signals: int) -> None:
    """Leave the parent's session, and close all descriptors except these, which would keep the connection open."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, *signals):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))  # 1: no core dump, not even through a pipe
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1024)
