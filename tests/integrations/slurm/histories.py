"""A node whose kernel log, Slurm and checks a test steers: runs its scripts one after another in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.integrations.slurm import call as calls
from clusterproof.integrations.slurm import control, health_check, main, our_drains
from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.control import NodeState, SlurmError
from clusterproof.integrations.slurm.drains import Drain
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.records import Log
from clusterproof.integrations.slurm.settings import Settings, fingerprint_of
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import CheckFinding, CheckRun, Cursor
from clusterproof.plugins.core.record import replace

XID = "gpu.no_xid"
FULL = "1 of 4 nodes of partition gpu are already drained by clusterproof"


class History:
    """One node. Its kernel log is a count of lines, some of which are Xids; a run fails on any Xid that it reads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = State(str(folder / "state"), str(folder / "runtime"))
        self.state.prepare()
        self.settings = replace(Settings("drain"), reuse_s=0)
        self.slurm = NodeState(frozenset({"IDLE"}), "", ())
        self.jobs: set[str] = set()
        self.full_before = self.full_after = ""
        self.returns = "1"  # ReturnToService
        self.failing: set[str] = set()  # commands of Slurm that do not answer
        self.lines = 0
        self.xids: list[int] = []
        self.drains: list[str] = []  # the scripts that have drained the node, in order
        for module, name, value in (
            (main, "_run", lambda _, __, begins: self._run(begins)),
            (health_check, "check", lambda _, __, ___, begins, *____: self._run(begins)),
            (health_check, "full_before_claim", lambda *_: self.full_before),
            (health_check, "full_after_claim", lambda *_: self.full_after),
            (health_check, "full_partition", lambda *_, **__: (self.full_before, 4)),
            (health_check, "wait_random_time", lambda *_: None),
            (our_drains, "evaluated_by_the_log", XID.__eq__),
            (control, "node_state", lambda _: self.slurm),
            (control, "jobs_on", self._jobs),
            (control, "drain", self._drain),
            (control, "resume", self._resume),
            (control, "config", lambda: {"SlurmUser": "slurm(64030)", "ReturnToService": self.returns}),
            (calls, "explain", lambda *_: None),
            (calls, "leave", self._leave),
        ):
            monkeypatch.setattr(module, name, value)

    def call(self, occasion: str, job: str = "") -> Call:
        """Handle a call from one of its scripts."""
        return Call(occasion, "gpu001", Job(job, "1000" if job else ""), self.settings, self.state, Log("test", ""))

    def log(self, *, xid: bool = False) -> None:
        """The kernel logs a line."""
        self.lines += 1
        self.xids += [self.lines] * xid

    def prolog(self, job: str) -> None:
        """A job begins, if Slurm has the node in use."""
        self.jobs.add(job)
        call = self.call("prolog", job)
        self._end(call, main.prolog(call), "Prolog error")

    def epilog(self, job: str) -> None:
        """A job ends, and slurmctld is told."""
        call = self.call("epilog", job)
        self._end(call, main.epilog(call), "Epilog error")
        self.jobs.discard(job)

    def health_check(self) -> None:
        """Run a health check."""
        health_check.health_check(self.call("health-check"))

    def by_hand(self, state: str, by: str = "root") -> None:
        """Somebody takes the node out of service."""
        self.slurm = NodeState(frozenset(state.split("+")), "maintenance", (), f"maintenance [{by}@{self.lines}]", by)

    def resume(self) -> None:
        """The node is resumed."""
        self.slurm = NodeState(frozenset({"IDLE"}), "", ())

    def drained_by_slurm(self, reason: str) -> None:
        """Slurm drains the node for a failed script; an existing reason stays."""
        if not self.slurm.is_drained:
            self.slurm = NodeState(frozenset({"DRAIN"}), reason, (), f"{reason} [slurm@{self.lines}]", "slurm")

    def wait(self) -> None:
        """Let enough time pass that Slurm no longer acts on earlier failures."""
        for name in self.state.names("drained"):
            record = self.state.read(name)
            self.state.write(name, {**record, "at": record["at"] - 100})

    def _run(self, begins: Cursor | None) -> CheckRun:
        first = begins[1] if begins else 0
        findings = [CheckFinding(XID, "fail", "Xid 79")] if any(line > first for line in self.xids) else []
        self.log()
        ends = (boot_id(), self.lines, float(self.lines))
        return CheckRun(
            boot_id(), since_boot_s(), 0.0, 5, tuple(findings), begins, ends, basis=fingerprint_of(self.settings)
        )

    def _end(self, call: Call, drain: Drain | None, reason: str) -> None:
        with pytest.raises(SystemExit) as left:
            calls.end(call, drain)
        if left.value.code:
            self.drains.append(f"{call.occasion} {call.job.id}")
            self.drained_by_slurm(reason)

    def _leave(self, status: int) -> None:
        raise SystemExit(status)

    def _drain(self, _: str, reason: str) -> None:
        self._ask("scontrol")
        if not self.slurm.is_drained:  # otherwise it is a failed script's reason
            self.drains.append("health-check")
        self.slurm = NodeState(frozenset({"DRAIN"}), reason, (), f"{reason} [root@{self.lines}]", "root")

    def _resume(self, _: str) -> None:
        self._ask("scontrol")
        self.resume()
        self._ask("scontrol, after it has resumed the node")

    def _jobs(self, _: str) -> frozenset[str]:
        self._ask("squeue")
        return frozenset(self.jobs)

    def _ask(self, command: str) -> None:
        if command in self.failing:
            raise SlurmError(f"{command}: timed out")
