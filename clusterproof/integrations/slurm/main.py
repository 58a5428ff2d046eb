"""The entry point of Slurm's three scripts, with the occasion as argument; `explain` follows up a failed one.

Prolog and epilog, around each job, do not query Slurm; they answer what to drain for, or nothing.

A run leaves a file for the shell scripts in /run/clusterproof, from which they can answer calls without starting
Python. There is one for each occasion, with these lines, as `read` sees them: the boot; the Python that ran; the
deadline, the times (in hundredths of a second since boot) of the verdict and until when it is fresh, and whether it
drains nothing; a job's record; and each file that the verdict depends on, as printed by `stat -c '%i %s %.9Z %n'`,
or with dashes before its name if it is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread

from clusterproof.integrations.slurm.call import VERDICT, Call, LockWait, end, exit_at_deadline, leave
from clusterproof.integrations.slurm.drains import Drain, begin_after_looks, drain_of, remembered_drains
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import job_of, node_of
from clusterproof.integrations.slurm.records import ERROR, WARNING, Log
from clusterproof.integrations.slurm.settings import FILE, SettingsError, files_of, fingerprint_of, read_settings
from clusterproof.integrations.slurm.state import RUNTIME_FOLDER, State
from clusterproof.integrations.slurm.verdict import NO_JOB, CheckRun, Cursor, cursor_of, draining, reaches, run_of
from clusterproof.plugins.core.record import replace

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_S = 24 * 3600  # a policy's rules end at the end of a day

EPILOG = "epilog"  # the record of the last epilog's run
RAN = "clusterproof.integrations.slurm.checking"  # only loaded by a run
SPARE_S = 1.5  # of the deadline must be left to prepare later calls


def leave_for_scripts(call: Call, run: CheckRun, name: str, of_job: Mapping[str, object]) -> None:
    """Write it after a run's record; `of_job` is the record for jobs that it serves, or that has been written."""
    is_epilog = call.occasion == "epilog"
    at = run.began if is_epilog else run.at
    fresh_s = min(call.settings.reuse_s, _left_of_day_s()) if run.is_reusable and not is_epilog else 0
    findings = draining(run, NO_JOB, late_drains=call.settings.at_deadline == "drain", is_epilog=is_epilog)
    is_fine = "no" if findings or not of_job or (is_epilog and run.is_blind_to_jobs) else "yes"
    lines = [
        run.boot_id,
        sys.executable,
        f"{call.settings.deadline_s} {int(at * 100)} {int((at + fresh_s) * 100)} {is_fine}",
        json.dumps(of_job),
        *map(_shown, (*files_of(call.settings), FILE, f"{call.state.newest_folder(name)}/{name}.json")),
    ]
    call.state.leave(call.occasion, "".join(f"{line}\n" for line in lines).encode())


def _shown(file: str) -> str:
    with contextlib.suppress(OSError):
        status = os.stat(file)  # noqa: PTH116 - pathlib costs an import before each job
        seconds, nanoseconds = divmod(status.st_ctime_ns, 10**9)
        return f"{status.st_ino} {status.st_size} {seconds}.{nanoseconds:09d} {file}"
    return f"- - - {file}"


def _left_of_day_s() -> int:
    now = time.localtime()
    return DAY_S - now.tm_hour * 3600 - now.tm_min * 60 - now.tm_sec


def prolog(call: Call) -> Drain | None:
    """Before a job: use a fresh verdict, else run the checks."""
    came = call.began_s
    run = _fresh(call, came)
    if run is None or call.lock_wait.lock is not None:
        with call.alone():
            run = run or _fresh(call, came) or _checked(call, came)
            leave_for_scripts(call, run, VERDICT, _of_job(run))
    if run.at < came:
        call.log(f"the verdict of {came - run.at:.0f} s ago")
    findings = call.drained_for(run)
    if call.job.id:
        call.state.remove_old()
        call.remember(call.job.record, _of_job(run))
    return call.drain(findings, run.begins, run.ends) if findings else None


def epilog(call: Call) -> Drain | None:
    """After a job: what it left, and the kernel log since its start. Nothing if our prolog did not admit it.

    Jobs that end concurrently and wait for a run share the verdict of the next run, which starts after all arrived.
    """
    came = call.began_s
    record = call.state.read(call.job.record)
    if record.get("is_refused"):
        call.state.forget(call.job.record)
        return None
    begins = begin_after_looks(
        call.state, cursor_of(record.get("cursor")) or call.cursor, remembered_drains(call.state)
    )
    run = _since(call, came, begins)
    if run is None:
        with call.alone():
            run = _since(call, came, begins)
            if run is None:
                run = _run("epilog", call, begins)
                call.remember(EPILOG, run.to_json())
                leave_for_scripts(call, run, EPILOG, record)
                if not call.drained_for(run):
                    call.advance(begins, run.ends)
                if run.findings:
                    call.state.forget(VERDICT)  # the next job must not reuse an outdated verdict
    if run.is_blind_to_jobs:
        call.leave_to_health_check()
    else:
        call.state.forget(call.job.record)
    findings = call.drained_for(run)
    return call.drain(findings, begins, run.ends) if findings else None


def _since(call: Call, came: float, begins: Cursor | None) -> CheckRun | None:
    """The last epilog's run, if it began after this call, and read all of the log since that cursor."""
    run = run_of(call.state.read(EPILOG))
    if run is None or run.boot_id != boot_id() or run.basis != fingerprint_of(call.settings):
        return None
    return run if run.began >= came and reaches(run.begins, begins) else None


def _checked(call: Call, came: float) -> CheckRun:
    """The verdict of a new run. Recent failures are evaluated again, by the current rules."""
    last = run_of(call.state.read(VERDICT))
    is_held = last and last.boot_id == boot_id() and last.of("fail") and came - last.at < call.settings.reuse_s
    run = _run("prolog", call, last.begins if last and is_held else call.cursor)
    call.remember(VERDICT, run.to_json())
    if not call.drained_for(run):
        call.advance(run.begins, run.ends)
    return run


def _of_job(run: CheckRun) -> dict[str, object]:
    """The record of a job that a run has admitted, until its epilog."""
    return {"cursor": run.ends, "boot_id": run.boot_id, "at": run.at}


def _run(occasion: str, call: Call, begins: Cursor | None) -> CheckRun:
    from clusterproof.integrations.slurm.checking import check  # not needed for a fresh verdict
    from clusterproof.integrations.slurm.standby import part_of

    fingerprint = fingerprint_of(call.settings)  # before the policy is read: later changes do not count for this run
    run = check((occasion,), call.settings, call.left_s, begins, call.log, nvml=part_of(call.state))
    call.log_run(run)
    return replace(run, is_late=call.lock_wait.is_late, basis=fingerprint)


def _fresh(call: Call, came: float) -> CheckRun | None:
    """The last run's verdict, if it was reached while this call waited, or is recent without faults.

    One with other settings, another policy or another version of clusterproof does not count.
    """
    run = run_of(call.state.read(VERDICT))
    if run is None or run.boot_id != boot_id() or run.at > since_boot_s() or run.basis != fingerprint_of(call.settings):
        return None
    is_young = came - run.at < call.settings.reuse_s and run.is_reusable
    return run if run.at >= came or is_young else None


OLDEST = (3, 10)  # minimum Python, in case the package was forced onto an older one


def main() -> None:
    """Answer one call, and exit: with 0, or with DRAIN if the node is to be drained."""
    occasion = sys.argv[1]
    node = node_of(os.environ)
    if occasion in ("check-installation", "rehearse"):
        leave(preview(occasion, node))
    job = job_of(os.environ)
    log = Log(" ".join(filter(None, (occasion, job.label))))
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
    call = Call(occasion, node, job, settings, State(settings.state, RUNTIME_FOLDER), log, *came(sys.argv[2:]))
    unusable = call.state.prepare()
    if unusable:
        log(unusable, WARNING)
    answer(call)


def came(arguments: list[str]) -> tuple[float, LockWait]:
    """When the script began (by the monotonic clock), how long it waited, and the lock that it holds.

    The script passes hundredths of a second since boot; earlier versions pass nothing.
    """
    if len(arguments) != 3:
        return time.monotonic(), LockWait()
    began_s, now_s = (int(word) / 100 for word in arguments[:2])
    lock = int(arguments[2]) if arguments[2].isdecimal() else None
    return time.monotonic() - (since_boot_s() - began_s), LockWait(now_s - began_s, lock)


def preview(occasion: str, node: str) -> int:
    """Only print what a call would find; returns the exit code."""
    from clusterproof.integrations.slurm import installation, rehearsal

    if occasion == "check-installation":
        return installation.check_installation(node)
    rehearsal.rehearse(sys.argv[2], read_settings())
    return 0


def answer(call: Call) -> None:
    """Answer the call; at the deadline another thread ends this process, whatever this one is waiting for."""
    once = allocate_lock()
    if call.occasion != "explain":
        start_new_thread(watch, (call, once))
    try:
        drain = act(call)
    except Exception as problem:  # an error here is not the node's fault
        call.log(f"no verdict: {type(problem).__name__}: {problem}", ERROR)
        call.leave_to_health_check()
        drain = None
    with once:
        if drain is None:
            keep_for_later(call)
        end(call, drain)


def keep_for_later(call: Call) -> None:
    """After a run, prepare later calls. Errors are ignored: this decides nothing."""
    if RAN not in sys.modules:
        return
    from clusterproof.integrations.slurm.standby import keep_code, keep_part, part_of

    with contextlib.suppress(Exception):
        keep_code(call.state, lambda: call.left_s > SPARE_S)
        if call.left_s > SPARE_S and not part_of(call.state):
            keep_part(call.state)


def act(call: Call) -> Drain | None:
    """The drain for the call; only a prolog and an epilog may return one."""
    if call.occasion == "prolog":
        return prolog(call)
    if call.occasion == "epilog":
        return epilog(call)
    from clusterproof.integrations.slurm import health_check
    from clusterproof.integrations.slurm.control import SlurmError

    if call.occasion == "explain":
        health_check.explain(call, drain_of(json.loads(sys.stdin.readline())))
    else:
        try:
            health_check.health_check(call)
        except SlurmError as problem:
            call.log(f"asks Slurm again at the next health check: {problem}", ERROR)
    return None


def watch(call: Call, once: LockType) -> None:
    """Wait for the deadline, and answer then."""
    time.sleep(call.left_s)
    with once:
        exit_at_deadline(call)
