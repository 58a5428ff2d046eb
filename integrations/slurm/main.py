"""What Slurm's three scripts start, by the occasion on their command line; `explain` follows one that failed."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from pathlib import Path

from clusterproof.integrations.slurm import before_and_after
from clusterproof.integrations.slurm.call import Call, end, give_up, leave
from clusterproof.integrations.slurm.job import job_of
from clusterproof.integrations.slurm.log import ERROR, WARNING, Log
from clusterproof.integrations.slurm.settings import SettingsError, read_settings
from clusterproof.integrations.slurm.state import State


def main() -> None:
    """Answer one call, and end this process: by 0, or by DRAIN where the node is to be drained."""
    gc.disable()  # it ends soon
    occasion = sys.argv[1]
    job = job_of(os.environ)
    log = Log(" ".join(filter(None, (occasion, job.words))))
    try:
        settings = read_settings()
    except SettingsError as wrong:
        log(f"does nothing: {wrong}", ERROR)
        leave(0)
    if settings.mode == "off":
        leave(0)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    call = Call(occasion, node, job, settings, State(Path(settings.state)), log)
    unusable = call.state.prepare()
    if unusable:
        log(unusable, WARNING)
    answer(call)


def answer(call: Call) -> None:
    """Do what is called for; at the deadline another thread ends this process, whatever this one waits for."""
    once = threading.Lock()
    if call.occasion != "explain":
        threading.Thread(target=watch, args=(call, once), daemon=True).start()
    try:
        reason, begins = act(call)
    except Exception as problem:  # whatever breaks here is no fault of the node's
        call.log(f"no verdict: {type(problem).__name__}: {problem}", ERROR)
        reason, begins = "", None
    with once:
        end(call, reason, begins)


def act(call: Call) -> before_and_after.Answer:
    """The reason to drain, which only a prolog and an epilog may have, and from where the kernel log was judged."""
    if call.occasion == "prolog":
        return before_and_after.prolog(call)
    if call.occasion == "epilog":
        return before_and_after.epilog(call)
    from clusterproof.integrations.slurm import health_check

    if call.occasion == "explain":
        health_check.explain(call)
    else:
        health_check.health_check(call)
    return "", None


def watch(call: Call, once: threading.Lock) -> None:
    """Wait for the deadline, and answer then."""
    threading.Event().wait(call.left_s)
    with once:
        give_up(call)
