"""One call of a script by Slurm: its subject, and what all scripts share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.integrations.slurm.drains import Drain, release, remember
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.records import CRITICAL, ERROR, INFO, WARNING, Log, why_no_drain, why_not_resumed
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import (
    MAX_REASON,
    NO_JOB,
    CheckFinding,
    CheckRun,
    Cursor,
    cursor_of,
    draining,
    later,
    reaches,
    reason_of,
    shortened,
)
from clusterproof.plugins.core.record import field, record, replace

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import NoReturn

VERDICT = "verdict"  # the record of the last run before a job
PROGRAM = "from clusterproof.integrations.slurm.start import main; main()"  # as the scripts start it
DRAIN = 3  # the exit code that tells a script to drain the node
LATE_S = 0.5  # of waiting for other runs, from which on late evidence is not the node's fault
MAX_LOGGED = 20  # findings of one run
LEVELS = {"fail": ERROR, "incomplete": WARNING, "concern": WARNING}


class LockWait:
    """How long a call has waited for other runs, and since when (by the monotonic clock).

    `lock` is the descriptor of the lock for a run, if the script already has it.
    """

    __slots__ = ("lock", "waited_s", "waits_since")

    def __init__(self, waited_s: float = 0.0, lock: int | None = None) -> None:
        self.waited_s = waited_s
        self.waits_since: float | None = None
        self.lock = lock

    @property
    def is_late(self) -> bool:
        """Whether waiting took time that its own evidence would have needed."""
        waits_since = self.waits_since
        now_s = time.monotonic() - waits_since if waits_since is not None else 0.0
        return self.waited_s + now_s > LATE_S


@record
class Call:
    """One call of a script: its occasion, its job, and when it began."""

    occasion: str
    node: str
    job: Job
    settings: Settings
    state: State
    log: Log
    began: float = field(default_factory=time.monotonic)
    lock_wait: LockWait = field(default_factory=LockWait)

    @property
    def left_s(self) -> float:
        """Seconds left until the deadline."""
        return max(0.0, self.settings.deadline_of(self.occasion) - (time.monotonic() - self.began))

    @property
    def cursor(self) -> Cursor | None:
        """How far the kernel log has been evaluated; None if never."""
        return cursor_of(self.state.read("cursor").get("cursor"))

    @property
    def began_s(self) -> float:
        """When the call began, in seconds since boot."""
        return since_boot_s() - (time.monotonic() - self.began)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Ensure that only one run at a time happens on this node."""
        if self.lock_wait.lock is not None:
            yield
            with contextlib.suppress(OSError):
                fcntl.flock(self.lock_wait.lock, fcntl.LOCK_UN)  # also releases it for the script, which owns it
            return
        self.lock_wait.waits_since = began = time.monotonic()
        with self.state.locked():
            self.lock_wait.waited_s += time.monotonic() - began
            self.lock_wait.waits_since = None
            yield

    def drained_for(self, run: CheckRun) -> tuple[CheckFinding, ...]:
        """What findings of a run a prolog or an epilog drains the node for."""
        return draining(
            run, self.job, late_drains=self.settings.at_deadline == "drain", is_epilog=self.occasion == "epilog"
        )

    def drain(self, findings: Iterable[CheckFinding], begins: Cursor | None, ends: Cursor | None = None) -> Drain:
        """The drain that this script requests, and which part of the kernel log it evaluated."""
        drained_for = tuple(findings)
        reason = reason_of(drained_for, self.job if self.occasion == "epilog" else NO_JOB)
        kept = tuple(replace(finding, message=shortened(finding.message, MAX_REASON)) for finding in drained_for)
        return Drain(
            self.occasion,
            self.job.id,
            kept,
            reason,
            begins,
            since_boot_s(),
            uid=self.job.uid,
            ends=ends,
            boot_id=boot_id(),
        )

    def remember(self, name: str, record: Mapping[str, object]) -> bool:
        """Write a record; whether it was stored: if not, only what it would have saved is lost."""
        try:
            why = self.state.write(name, record)
        except OSError as problem:
            self.log(f"{name} is not remembered: {problem.strerror}", WARNING)
            return False
        if why:
            self.log(f"{name} is remembered until a reboot only: {self.state.folder}: {why}", WARNING)
        return True

    def remember_drain(self, drain: Drain) -> bool:
        """Remember a drain; whether that was possible: if not, nobody would resume the node."""
        try:
            remember(self.state, drain)
        except OSError as problem:
            why = f"cannot remember it ({self.state.folder}: {problem.strerror}) and so only observes"
            self.log(f"would drain, but {why}: {drain.reason}", ERROR)
            return False
        return True

    def advance(self, begins: Cursor | None, ends: Cursor | None) -> None:
        """Mark the kernel log up to there as evaluated: it drains nothing, or has already done so.

        The part before it stays due if it was still to be evaluated.
        """
        with self.state.locked("cursor.lock"):
            furthest = later(self.cursor, ends)
            if furthest and reaches(begins, self.cursor):
                self.remember("cursor", {"cursor": furthest})

    def go_back(self, begins: Cursor | None) -> None:
        """Evaluate the kernel log since that cursor again; None: all of this boot."""
        with self.state.locked("cursor.lock"):
            if begins is None:
                self.state.forget("cursor")
            elif later(begins, self.cursor) != begins:
                self.remember("cursor", {"cursor": begins})

    def leave_to_health_check(self) -> None:
        """For an epilog without a verdict: let the next health check find what its job has left."""
        if self.occasion == "epilog" and self.job.id:
            record = {"is_unevaluated": True, "uid": self.job.uid, "boot_id": boot_id(), "at": since_boot_s()}
            self.remember(self.job.record, record)

    def log_run(self, run: CheckRun) -> None:
        """Log a run's findings, failures first; of too many, how many more there are."""
        summary = ", ".join(f"{len(run.of(word))} {word}" for word in LEVELS if run.of(word)) or "all pass"
        self.log(f"{run.checked} checks in {run.took_s:.2f} s: {summary}", INFO)
        findings = [finding for word in LEVELS for finding in run.of(word)]
        for finding in findings[:MAX_LOGGED]:
            self.log(f"{finding.verdict}: {finding.line}", LEVELS[finding.verdict])
        left_out = [finding.verdict for finding in findings[MAX_LOGGED:]]
        if left_out:
            kinds = ", ".join(f"{left_out.count(word)} {word}" for word in LEVELS if word in left_out)
            self.log(f"{len(left_out)} more findings, {kinds}", LEVELS[left_out[0]])


def end(call: Call, drain: Drain | None) -> None:
    """End a prolog or an epilog, and this process: with DRAIN if there is a drain and the mode allows it.

    If the drain cannot be remembered, or enough nodes are drained, it only observes.
    """
    if drain is None:
        leave(0)
    if not call.settings.drains:
        call.log(f"would drain, but only observes: {drain.reason}", ERROR)
        call.advance(drain.begins, drain.ends)
        leave(0)
    if not call.remember_drain(drain):
        leave(0)
    why = why_no_drain(call.state)
    if why:
        release(call.state, (drain,))
        call.log(f"would drain, but {why}: {drain.reason}", CRITICAL)
        leave(0)
    call.advance(drain.begins, drain.ends)
    call.log(f"drains: {drain.reason}", ERROR)
    why_kept = why_not_resumed(call.state)
    if why_kept and call.settings.health_check.resume:
        call.log(f"only an administrator will resume it: {why_kept}", WARNING)
    if call.occasion == "prolog" and call.job.id:
        call.remember(call.job.record, {"is_refused": True, "boot_id": drain.boot_id, "at": drain.at})
    print(drain.reason, flush=True)  # noqa: T201 - slurmd logs what a script that fails has printed
    explain(call, drain)
    leave(DRAIN)


def explain(call: Call, drain: Drain) -> None:
    """Start a process that gives Slurm our reason once Slurm has drained the node for the failed script."""
    import subprocess  # rarely needed

    command = [sys.executable, "-I", "-c", PROGRAM, "explain"]
    nothing = subprocess.DEVNULL
    try:
        left = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True, text=True
        )
        print(json.dumps(replace(drain, findings=()).to_json()), file=left.stdin, flush=True)
    except OSError as problem:
        call.log(f"Slurm will not get the reason: {problem.strerror}", WARNING)


def leave(status: int) -> NoReturn:
    """Exit at once, without waiting for threads that hang in the kernel, or for the interpreter's cleanup."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def exit_at_deadline(call: Call) -> None:
    """Exit at the deadline, as configured; a call that waited for others blames no node."""
    is_late, deadline_s = call.lock_wait.is_late, call.settings.deadline_of(call.occasion)
    more = ", as others were checking" if is_late else ""
    late = CheckFinding("node.evidence_complete", "incomplete", f"no verdict within {deadline_s:g} s{more}")
    call.log(f"{late.verdict}: {late.line}", ERROR)
    call.leave_to_health_check()
    drains = call.settings.at_deadline == "drain" and call.occasion != "health-check" and not is_late
    end(call, call.drain((late,), call.cursor) if drains else None)
