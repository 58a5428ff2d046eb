"""The processes of one group, as /proc tells of them; reads nothing that can block."""

from __future__ import annotations

import os


def living(group: int) -> str:
    """Words for a process of a group that lives on, one in state D first; empty where none does."""
    found = sorted(
        (state != "D", pid, name, state)
        for pid, name, state, its_group, session in _processes()
        if group in (its_group, session) and state not in "ZX"
    )
    if not found:
        return ""
    _, pid, name, state = found[0]
    wait = _read(f"/proc/{pid}/wchan")
    return f"process {pid} ({name}) in state {state}" + (f", waiting in {wait}" if wait.strip("0") else "")


def _processes() -> list[tuple[int, str, str, int, int]]:
    told = (stat_fields(_read(f"/proc/{pid}/stat")) for pid in os.listdir("/proc") if pid.isdigit())
    return [(int(f[0]), f[1], f[2], int(f[4]), int(f[5])) for f in told if f]


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
