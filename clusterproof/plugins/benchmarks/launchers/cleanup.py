"""Kills the processes of a run on this node, and nothing else.

Travels; standard library only, for Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

VARIABLE = "CLUSTERPROOF_RUN"  # in the environment of everything that is started
ARGUMENT = (
    "clusterproof_run"  # before the run in the arguments of mpirun's remote processes, which lack our environment
)
CLEANUP_S = 3.0
LOOK_S = 0.05


def clean_up(run: str) -> list[str]:
    """Kill every process of this user that belongs to a run; returns the names of those that survive SIGKILL."""
    until = time.monotonic() + CLEANUP_S
    while True:
        pids = of_run(run)
        if not pids or time.monotonic() > until:
            return [f"{name_of(pid)} ({pid})" for pid in pids]
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def of_run(run: str) -> list[int]:
    """This user's processes with the run's variable, except this one."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in numbers if pid != os.getpid() and is_of_run(pid, run)]


def is_of_run(pid: int, run: str) -> bool:
    """Whether a process is this user's, and has the run in its environment or arguments."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as environment, open(f"/proc/{pid}/cmdline", "rb") as arguments:
            if f"{VARIABLE}={run}".encode() in environment.read().split(b"\0"):
                return True
            return f"\0{ARGUMENT}\0{run}\0".encode() in arguments.read()
    except OSError:
        return False


def name_of(pid: int) -> str:
    """The name of a process."""
    try:
        with open(f"/proc/{pid}/comm") as name:
            return name.read().strip()
    except OSError:
        return "a process"


def guard(run: str, seconds: float) -> int:
    """Fork a process that cleans up once this one ends, in whatever way, or after that time.

    The returned descriptor holds it off: no other process may inherit it.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    try:
        stand_alone(reading)
        poll = select.poll()
        poll.register(reading, 0)
        poll.poll(1000 * seconds)
        clean_up(run)
    finally:
        os._exit(0)


def stand_alone(kept: int) -> None:
    """Leave the session, and close everything that would keep the connection open."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)
