"""The verdict of one run on a node, small enough to be kept for the next job, and which findings drain the node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.integrations.slurm.job import Job
from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import as_json, record, replace

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

PREFIX = "clusterproof: "
MAX_REASON = 240  # characters; sinfo shows them in one column
MIN_NAMES = 80  # of these, for the names of further checks, however long the first finding is

# Failures of these checks mean that something did not answer in time. If that time was cut short, they prove nothing.
TIME_CHECKS = frozenset({"node.evidence_complete", "gpu.driver_answers_in_time"})
# A health check only drains for these if a second run confirms it.
SEEN_TWICE = TIME_CHECKS | {"storage.mounts_alive", "neuron.devices_answer"}
# These are about use: on a shared node the GPUs of other jobs do not concern this one.
USE_CHECKS = frozenset({"gpu.no_leftover_processes", "neuron.no_leftover_processes"})

NO_JOB = Job()
WORDS = ("check", "verdict", "message")  # what is stored of a finding that drained a node

_GPU = Pattern(r"\bGPU (\d{1,3})\b")
LEFT, LEAKED = OF_JOBS = "host.job_leftovers", "host.shm_leaked"  # left by an ended job or its user

Cursor = tuple[str, int, float]  # position in the kernel log: boot id, sequence number, seconds since boot


@record
class LeftoverOwner:
    """Whose leftovers a finding is about: a job id, a user id, or both where a process claims its job."""

    job: str = ""
    uid: str = ""

    def may_be(self, job: Job) -> bool:
        """Whether it is this job or its user, as far as either is known."""
        return self.job in ("", job.id) and (not job.uid or self.uid in ("", job.uid))


@record
class CheckFinding:
    """One check that did not pass; `devices` such as `GPU 3`, `owners` of what jobs have left."""

    check: str
    verdict: str  # fail, concern, incomplete
    message: str
    devices: tuple[str, ...] = ()
    owners: tuple[LeftoverOwner, ...] = ()

    @property
    def gpus(self) -> frozenset[int]:
        """Its GPUs; if it is about the whole node, those named in the message, which decides no drain."""
        return frozenset(int(number) for name in self.devices or [self.message] for number in _GPU.findall(name))

    @property
    def names_jobs(self) -> bool:
        """Whether it names jobs itself."""
        return self.check == LEFT

    def is_left_by(self, job: Job) -> bool:
        """Whether this job, or its user, left it; a process that only claims the job must be its user's."""
        if self.check in OF_JOBS and (job.id if self.check == LEFT else job.uid):
            return any(owner.may_be(job) for owner in self.owners)
        return True

    @property
    def line(self) -> str:
        """`gpu.gpu_count: NVML counts 7 GPUs; expected 8`, on one line."""
        return f"{self.check}: {' '.join(self.message.split())}"


@record
class CheckRun:
    """One run of the checks: when it ended (seconds since boot), how many checks ran, and their findings.

    The kernel log was read from the cursor `begins` (None: all of this boot) to `ends`. A run `is_late` if it had to
    wait for others, and had less time. `basis` is what it depends on, from `fingerprint_of`.
    """

    boot_id: str
    at: float
    took_s: float
    checked: int
    findings: tuple[CheckFinding, ...]
    begins: Cursor | None
    ends: Cursor | None
    is_late: bool = False
    basis: str = ""

    @property
    def began(self) -> float:
        """When it began, in seconds since boot."""
        return self.at - self.took_s

    def of(self, verdict: str) -> tuple[CheckFinding, ...]:
        """The findings with that verdict."""
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    @property
    def is_reusable(self) -> bool:
        """Whether it may serve further jobs: no faults, and all evidence in time."""
        return not self.of("fail") and not any(finding.check == "node.evidence_complete" for finding in self.findings)

    @property
    def is_blind_to_jobs(self) -> bool:
        """Whether it could not see what jobs have left."""
        return any(finding.check in OF_JOBS for finding in self.of("incomplete"))

    @property
    def is_passing(self) -> bool:
        """Whether something was checked, nothing failed and nothing is unknown."""
        return self.checked > 0 and not self.of("fail") and not self.of("incomplete")

    def to_json(self) -> dict[str, Any]:
        """The record for `run_of`."""
        record: dict[str, Any] = as_json(self)
        return record


def run_of(record: Mapping[str, Any]) -> CheckRun | None:
    """The run in a record; None if it has none."""
    try:
        findings = findings_of(record["findings"])
        if findings is None:
            return None
        return CheckRun(
            str(record["boot_id"]),
            float(record["at"]),
            float(record["took_s"]),
            int(record["checked"]),
            findings,
            cursor_of(record["begins"]),
            cursor_of(record["ends"]),
            bool(record.get("is_late")),
            str(record.get("basis", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def findings_of(records: Any) -> tuple[CheckFinding, ...] | None:
    """Parse findings from JSON; None if invalid. Those of a drain, and older ones, have only texts."""
    try:
        return tuple(_finding_of(record) for record in records)
    except (KeyError, TypeError, AttributeError):
        return None


def _finding_of(record: Mapping[str, Any]) -> CheckFinding:
    owners = tuple(LeftoverOwner(str(owner["job"]), str(owner["uid"])) for owner in record.get("owners", ()))
    check, verdict, message = (str(record[key]) for key in WORDS)
    return CheckFinding(check, verdict, message, tuple(map(str, record.get("devices", ()))), owners)


def cursor_of(fields: object) -> Cursor | None:
    """Parse a cursor from JSON; None if invalid."""
    if not isinstance(fields, (list, tuple)) or len(fields) != 3:
        return None
    boot_id, sequence, seconds = fields
    if not isinstance(boot_id, str) or isinstance(sequence, bool) or not isinstance(sequence, int):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        return None
    return boot_id, sequence, float(seconds)


def later(cursor: Cursor | None, other: Cursor | None) -> Cursor | None:
    """The later cursor; one of another boot than `other`'s is ignored."""
    if cursor is None or other is None or cursor[0] != other[0]:
        return other or cursor
    return max(cursor, other, key=lambda each: each[1:])


def reaches(cursor: Cursor | None, other: Cursor | None) -> bool:
    """Whether a log that was read from one cursor contains everything from the other on."""
    return cursor is None or (other is not None and cursor[0] == other[0] and cursor[1:] <= other[1:])


def draining(
    run: CheckRun, job: Job, *, late_drains: bool = False, is_epilog: bool = False
) -> tuple[CheckFinding, ...]:
    """The findings that are a reason to drain: failures, and by choice evidence that did not arrive in time.

    Evidence that a run did not wait for because it started late is not the node's fault.
    """
    late_drains = late_drains and not run.is_late
    late = tuple(finding for finding in run.of("incomplete") if late_drains and finding.check in TIME_CHECKS)
    return tuple(
        finding
        for finding in run.of("fail") + late
        if not (finding.check in USE_CHECKS and is_of_others(finding, job))
        and not (is_epilog and not finding.is_left_by(job))
    )


def cut_short(finding: CheckFinding) -> CheckFinding:
    """The text for evidence that had less time than the suite's default."""
    if finding.check in TIME_CHECKS and finding.verdict == "fail":
        return replace(finding, verdict="incomplete")
    return finding


def is_of_others(finding: CheckFinding, job: Job) -> bool:
    """Whether a finding names GPUs, but none of the job's."""
    return bool(job.gpus is not None and finding.gpus and finding.gpus.isdisjoint(job.gpus))


def reason_of(findings: Iterable[CheckFinding], job: Job = NO_JOB) -> str:
    """The reason for a drain: one line, with the first finding's evidence, and the others' names or number.

    A job is named if one of its GPUs may be meant, never if only others' are. The text says whose epilog found it, not
    that the job ran: a job that another node refused had no processes here.
    """
    first, *others = findings
    names = list(dict.fromkeys(other.check for other in others if other.check != first.check))
    after = f" (epilog of {job.label})" if job.id and not first.names_jobs and not is_of_others(first, job) else ""
    max_length = MAX_REASON - len(PREFIX) - len(after)
    more = _also(names, max(MIN_NAMES, max_length - len(first.line)))
    return PREFIX + shortened(first.line, max_length - len(more)) + more + after


def _also(names: list[str], most: int) -> str:
    """`; also gpu.no_xid and 3 more`: the first of these names, and how many more there are."""
    for shown in range(len(names), -1, -1):
        left = [f"and {len(names) - shown} more"] if shown < len(names) else []
        more = " ".join(([f"; also {', '.join(names[:shown])}"] if shown else [";"]) + left)
        if len(more) <= most:
            return shortened(more, most) if names else ""
    return ""


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, on one line that is safe on any terminal."""
    shown = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
