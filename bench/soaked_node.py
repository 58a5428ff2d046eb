"""One node of the soak: what happens to it, event by event, and how the health checks react."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from random import Random
from threading import Event

from clusterproof.integrations.slurm.control import parse_node
from clusterproof.integrations.slurm.versions import HOME
from tests.faults import BY_NAME
from tests.integrations.slurm.reasons import REASONS
from tests.integrations.slurm.scripts import STATE, Scripted, eventually
from tests.testbed.clock import set_clock
from tests.testbed.node import Node, healthy_p5

NOBODY = 65534
PAUSE_S = 5.0
STANDING = (
    "a GPU that is lost",
    "two GPUs lost at once",
    "a GPU that asks for a reset",
    "uncorrected errors in DRAM",
    "a row remapping that failed",
    "an NVLink that is down",
)
XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
STATE_DISK = "/var/lib/clusterproof"
CLOCKS_S = (-120, 0, 7200)  # offsets of the node's clock
SWITCHES = 5
SWITCH = (f"{HOME}/bin/python", "-m", "clusterproof.integrations.slurm.versions")
SCRIPTS = ("prolog", "epilog", "health-check")
INCONCLUSIVE = re.compile(" incomplete: | no verdict")
TIMEOUT_S = 300.0


@dataclass
class Tally:
    """What was done, and what should not have happened."""

    jobs: int = 0
    faults: int = 0
    upgrades: int = 0
    reasons: int = 0
    sick_missed: int = 0
    healthy_left_drained: int = 0
    admin_touched: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing happened that should not have."""
        return not (self.sick_missed or self.healthy_left_drained or self.admin_touched)

    def figures(self) -> dict[str, int]:
        """By name, for JSON."""
        return asdict(self)

    def __add__(self, other: Tally) -> Tally:
        mine, its = self.figures(), other.figures()
        return Tally(**{name: mine[name] + its[name] for name in mine})


@dataclass
class SoakedNode:
    """A node and its findings. Only the node's own thread calls these methods, one at a time."""

    slurm: Scripted
    name: str
    random: Random
    is_over: Event
    tally: Tally = field(default_factory=Tally)
    _words: str = ""

    @property
    def node(self) -> Node:
        """The fake node."""
        return self.slurm.node(self.name)

    def live(self) -> None:
        """Fall sick and recover, or be drained by an administrator, until time is up; at least one fault."""
        happens = self.falls_sick
        while not (self.is_over.is_set() and self.tally.faults):
            happens()
            self.is_over.wait(self.random.uniform(0, PAUSE_S))
            happens = self.random.choice(
                (
                    self.falls_sick,
                    self.falls_sick_with_a_full_disk,
                    self.falls_sick_while_its_clock_is_set,
                    self.keeps_what_a_job_left,
                    self.logs_an_xid,
                    self.is_looked_after,
                    self.is_upgraded,
                )
            )

    def falls_sick(self) -> None:
        """Break some hardware, and mend it."""
        self.breaks()
        self.is_to_be_drained()
        if self.random.random() < 0.3:
            self.administrator_drains()
            self.mend()
            self.administrator_resumes()
        else:
            self.mend()
        self.is_to_be_free()

    def falls_sick_with_a_full_disk(self) -> None:
        """The same, with the state's disk full before the fault and free again after the recovery."""
        self.node.run(["/bin/sh", "-c", f"cat /dev/zero >{STATE_DISK}/full"])
        self.breaks()
        self.is_to_be_drained()
        self.node.run(["rm", f"{STATE_DISK}/full"])
        self.mend()
        self.is_to_be_free()

    def falls_sick_while_its_clock_is_set(self) -> None:
        """The same, with the node's clock off, and set right only at the next such event."""
        set_clock(self.node, self.random.choice(CLOCKS_S))
        self.breaks()
        set_clock(self.node, self.random.choice(CLOCKS_S))
        self.is_to_be_drained()
        self.mend()
        set_clock(self.node, self.random.choice(CLOCKS_S))
        self.is_to_be_free()

    def is_upgraded(self) -> None:
        """Switch between the versions while jobs start and end; no job may be drained because of that."""
        for _ in range(SWITCHES):
            switched = self.node.run([*SWITCH, "rollback"], timeout=TIMEOUT_S)
            if switched.returncode:
                raise RuntimeError(switched.stderr.decode(errors="replace"))
            self.tally.upgrades += 1
        self.is_to_be_free()

    def keeps_what_a_job_left(self) -> None:
        """A job leaves a process behind, which is killed later."""
        seconds = self.random.randint(100_000, 999_999)  # identifies the process later
        left = f"sleep {seconds}"
        job = self.slurm.submit(self.name, user=NOBODY, script=f"(setsid {left} >/dev/null 2>&1 &) #")
        try:
            eventually(lambda: self._completes(job), TIMEOUT_S)
        except TimeoutError:
            self._report(f"job {job} does not end: {self.slurm.bed.output_of('scontrol', 'show', 'job', job)}")
            raise
        self.tally.faults += 1
        self.is_to_be_drained()
        for number in self.slurm.processes(self.name, left).split():
            self.node.run(["kill", "-9", number])
        self.is_to_be_free()

    def logs_an_xid(self) -> None:
        """The driver logs that a GPU has fallen off the bus; an administrator examines the node and resumes it."""
        file = self.node.root / "dev/kmsg"
        _, sequence, time_us, _ = file.read_text().splitlines()[-1].split(",", 3)
        with file.open("a") as log:
            log.write(f"3,{int(sequence) + 1},{int(time_us) + 1_000_000},-;{XID}\n")
        self.tally.faults += 1
        self.is_to_be_drained()
        self._resume()
        self.is_to_be_free()

    def is_looked_after(self) -> None:
        """An administrator drains a healthy node, which may fall sick meanwhile."""
        self.administrator_drains()
        if self.random.random() < 0.5:
            self.breaks()
            self.is_to_be_drained()
            self.mend()
        self.administrator_resumes()
        self.is_to_be_free()

    def stay_sick(self) -> None:
        """Break permanently."""
        self.breaks()
        self.is_to_be_drained()

    def stay_well(self) -> None:
        """Pass one more health check."""
        self.is_to_be_free()

    def breaks(self) -> None:
        """Have the driver answer as on a sick node."""
        fault = BY_NAME[self.random.choice(STANDING)]
        self.slurm.nvml(self.name, fault.put(healthy_p5(self.name)))
        self.tally.faults += 1

    def mend(self) -> None:
        """Have the driver answer as on a healthy node."""
        self.slurm.nvml(self.name, healthy_p5(self.name))

    def administrator_drains(self) -> None:
        """Drain with an administrator's reason, whether or not the node is already drained."""
        self._words = f"{self.random.choice(REASONS)} ({self.random.randint(100, 999)})"
        self.tally.reasons += 1
        self.slurm.bed.output_of("scontrol", "update", f"NodeName={self.name}", "State=DRAIN", f"Reason={self._words}")

    def administrator_resumes(self) -> None:
        """Resume after another health check, which must leave the administrator's drain alone."""
        self._is_checked()
        shown = parse_node(self.slurm.bed.output_of("scontrol", "show", "node", self.name))
        if not shown.is_drained or shown.reason != self._words:
            self.tally.admin_touched += 1
            self._report(f"an administrator drained it for {self._words!r}")
        self._resume()

    def is_to_be_drained(self) -> None:
        """Expect the node drained by the end of the next health check."""
        self._is_checked()
        if not self._is_drained:
            self.tally.sick_missed += 1
            self._report("it is sick")

    def is_to_be_free(self) -> None:
        """Expect the node free after the first check since the last drain; one begun earlier may still drain it."""
        self._scripts_end()
        while self._is_drained:
            before = self._reason
            self._is_checked()
            if self._is_drained and self._reason == before:
                self.tally.healthy_left_drained += 1
                self._report("it is well")
                self._resume()

    def _completes(self, job: str) -> str:
        """Whether a job completes; meanwhile, a node drained for an earlier fault must become free again."""
        was_drained = self._is_drained
        state = self.slurm.field(job, "JobState")
        if was_drained and state == "PENDING":
            self.is_to_be_free()
        if state == "PENDING" and self.slurm.field(job, "Restarts") != "0":  # a requeued job would wait two minutes
            self.slurm.bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        return "done" if state == "COMPLETED" else ""

    def _resume(self) -> None:
        """Resume a drained node: no job is left on it that could drain it again for what was examined."""
        eventually(lambda: "idle" if self.slurm.bed.state(self.name) == "IDLE+DRAIN" else "", TIMEOUT_S)
        self._scripts_end()
        self.slurm.bed.output_of("scontrol", "update", f"NodeName={self.name}", "State=RESUME")

    @property
    def _is_drained(self) -> bool:
        return "DRAIN" in self.slurm.bed.state(self.name)

    @property
    def _reason(self) -> str:
        return self.slurm.bed.reason(self.name)

    def _scripts_end(self) -> None:
        """Wait for running scripts, whose verdict is about the earlier state."""
        begun = self._scripts()
        eventually(lambda: "" if begun & self._scripts() else "ended", TIMEOUT_S)

    def _scripts(self) -> set[str]:
        patterns = [f"{started}{script}" for script in SCRIPTS for started in ("main() ", "/bin/clusterproof-")]
        return set(self.slurm.processes(self.name, *patterns).split())

    def _is_checked(self) -> None:
        """Run the health check until it either finds a fault or knows that there is none."""
        is_clear = False
        while not is_clear:
            before = len(self.slurm.logged(self.name))
            logged = self.slurm.once_more(self.name)[before:]
            lines = [line for line in logged.splitlines() if ": health-check: " in line]
            is_clear = any(" fail: " in line for line in lines) or bool(
                lines and not any(map(INCONCLUSIVE.search, lines))
            )

    def _report(self, what: str) -> None:
        logged = "\n    ".join(self.slurm.logged(self.name).splitlines()[-30:])
        files = sorted((self.node.root / STATE).rglob("*.json"))
        kept = "\n    ".join(f"{file.stem}: {file.read_text()[:800]}" for file in files if file.parent.name != "jobs")
        state = f"{self.name} is {self.slurm.bed.state(self.name)} ({self._reason}), and {what}"
        print(f"{state}:\n    {logged}\n    {kept}", flush=True)
