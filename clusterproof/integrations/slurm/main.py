"""What Slurm's three scripts start, by the occasion on their command line; `explain` follows one that failed."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread

from clusterproof.integrations.slurm import before_and_after
from clusterproof.integrations.slurm.call import Call, Turn, end, give_up, leave
from clusterproof.integrations.slurm.drains import Drain, drain_of
from clusterproof.integrations.slurm.job import job_of, node_of
from clusterproof.integrations.slurm.moment import since_boot_s
from clusterproof.integrations.slurm.records import ERROR, WARNING, Log
from clusterproof.integrations.slurm.settings import SettingsError, read_settings
from clusterproof.integrations.slurm.state import BESIDE, State

OLDEST = (3, 10)  # Python, of a package that somebody has forced upon an older one


def main() -> None:
    """Answer one call, and end this process: by 0, or by DRAIN where the node is to be drained."""
    gc.disable()  # it ends soon
    occasion = sys.argv[1]
    node = node_of(os.environ)
    if occasion in ("check-installation", "rehearse"):
        leave(look(occasion, node))
    job = job_of(os.environ)
    log = Log(" ".join(filter(None, (occasion, job.words))))
    if sys.version_info < OLDEST:
        log(f"no verdict: Python {sys.version.split()[0]}; expected 3.10 or newer (install.md)", ERROR)
        leave(0)
    try:
        settings = read_settings()
    except SettingsError as wrong:
        log(f"does nothing: {wrong}", ERROR)
        leave(0)
    if settings.mode == "off":
        leave(0)
    call = Call(occasion, node, job, settings, State(settings.state, BESIDE), log, *came(sys.argv[2:]))
    unusable = call.state.prepare()
    if unusable:
        log(unusable, WARNING)
    answer(call)


def came(arguments: list[str]) -> tuple[float, Turn]:
    """When the script began (by the monotonic clock), how long it has waited, and the lock that it has.

    It says so in hundredths of a second since boot; one of before says nothing.
    """
    if len(arguments) != 3:
        return time.monotonic(), Turn()
    began_s, now_s = (int(word) / 100 for word in arguments[:2])
    lock = int(arguments[2]) if arguments[2].isdecimal() else None
    return time.monotonic() - (since_boot_s() - began_s), Turn(now_s - began_s, lock)


def look(occasion: str, node: str) -> int:
    """Only print what a call would find; the exit code."""
    from clusterproof.integrations.slurm import installation, rehearsal

    if occasion == "check-installation":
        return installation.check_installation(node)
    rehearsal.rehearse(sys.argv[2], read_settings())
    return 0


def answer(call: Call) -> None:
    """Do what is called for; at the deadline another thread ends this process, whatever this one waits for."""
    once = allocate_lock()
    if call.occasion != "explain":
        start_new_thread(watch, (call, once))
    try:
        drain = act(call)
    except Exception as problem:  # whatever breaks here is not the node's fault
        call.log(f"no verdict: {type(problem).__name__}: {problem}", ERROR)
        call.leave_to_health_check()
        drain = None
    with once:
        end(call, drain)


def act(call: Call) -> Drain | None:
    """What to drain for, which only a prolog and an epilog may answer."""
    if call.occasion == "prolog":
        return before_and_after.prolog(call)
    if call.occasion == "epilog":
        return before_and_after.epilog(call)
    from clusterproof.integrations.slurm import health_check

    if call.occasion == "explain":
        health_check.explain(call, drain_of(json.loads(sys.stdin.readline())))
    else:
        health_check.health_check(call)
    return None


def watch(call: Call, once: LockType) -> None:
    """Wait for the deadline, and answer then."""
    time.sleep(call.left_s)
    with once:
        give_up(call)
