"""One call of a script by Slurm: what it is about, and what every script does alike."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field

from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.log import ERROR, INFO, WARNING, Log
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import Cursor, Drain, Finding, Run, cursor_of, drain_of, later, reason_of

DRAIN = 3  # the exit code by which a script knows that the node is to be drained
EXPLAIN_S = 60.0  # how long to wait for Slurm to drain a node for a script that failed
MOST_LOGGED = 20  # findings of one run
LEVELS = {"fail": ERROR, "incomplete": WARNING, "concern": WARNING}


@dataclass(frozen=True, slots=True)
class Call:
    """What a script is called for, and when."""

    occasion: str
    node: str
    job: Job
    settings: Settings
    state: State
    log: Log
    began: float = field(default_factory=time.monotonic)

    @property
    def deadline_s(self) -> float:
        """Seconds from the start of this call to its own deadline."""
        is_health_check = self.occasion == "health-check"
        return self.settings.health_check.deadline_s if is_health_check else self.settings.deadline_s

    @property
    def left_s(self) -> float:
        """Seconds that are left of it."""
        return max(0.0, self.deadline_s - (time.monotonic() - self.began))

    @property
    def cursor(self) -> Cursor | None:
        """How far the kernel log has been judged; None where it never was."""
        return cursor_of(self.state.read("cursor").get("cursor"))

    @property
    def drained(self) -> Drain | None:
        """The drain of ours, as far as this node knows."""
        return drain_of(self.state.read("drained"))

    def remember(self, name: str, record: dict[str, object]) -> None:
        """Write a record; a disk that is full costs what it would have saved, and nothing else."""
        try:
            self.state.write(name, record)
        except OSError as problem:
            self.log(f"{name} is not remembered: {problem.strerror}", WARNING)

    def advance(self, ends: Cursor | None) -> None:
        """What the kernel had logged until then has been judged, and will not be again."""
        furthest = later(self.cursor, ends)
        if furthest:
            self.remember("cursor", {"cursor": furthest})

    def tell(self, run: Run) -> None:
        """Log what a run found."""
        found = ", ".join(f"{len(run.of(word))} {word}" for word in LEVELS if run.of(word)) or "all pass"
        self.log(f"{run.checked} checks in {run.took_s:.2f} s: {found}", INFO)
        for finding in run.findings[:MOST_LOGGED]:
            self.log(f"{finding.verdict}: {finding.words}", LEVELS[finding.verdict])


def end(call: Call, reason: str, begins: Cursor | None = None) -> None:
    """End a prolog or an epilog, and this process: by DRAIN where there is a reason and the mode is to drain."""
    if not reason:
        leave(0)
    if not call.settings.drains:
        call.log(f"would drain, but only observes: {reason}", ERROR)
        leave(0)
    call.log(f"drains: {reason}", ERROR)
    waiting = call.drained
    call.remember("drained", Drain(reason, begins, time.time()).to_json())
    print(reason, flush=True)  # noqa: T201 - slurmd logs what a script that fails has printed
    if waiting is None or waiting.is_told or time.time() - waiting.at > EXPLAIN_S:
        explain(call)
    leave(DRAIN)


def explain(call: Call) -> None:
    """Leave behind a process that gives Slurm our reason once it has drained the node for the script that failed."""
    import subprocess  # few calls come here

    command = [sys.executable, "-I", "-c", "from clusterproof.integrations.slurm.main import main; main()", "explain"]
    nothing = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as problem:
        call.log(f"Slurm will not be told the reason: {problem.strerror}", WARNING)


def leave(status: int) -> None:
    """End at once: a thread that hangs in the kernel is not waited for, nor is the interpreter's end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def give_up(call: Call) -> None:
    """End this process at its deadline, as the settings say."""
    late = Finding("node.evidence_complete", "incomplete", f"no verdict within {call.deadline_s:g} s")
    call.log(f"{late.verdict}: {late.words}", ERROR)
    drains = call.settings.at_deadline == "drain" and call.occasion != "health-check"
    end(call, reason_of((late,)) if drains else "")
