"""What a run of the checks said of this node, small enough to be kept for the next job, and what of it drains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from clusterproof.integrations.slurm.job import Job

PREFIX = "clusterproof: "
MAX_REASON = 240  # characters; sinfo shows them in one column

# A fail of these says that something did not answer in its time. Where that is cut short, it proves nothing.
OF_TIME = frozenset({"node.evidence_complete", "gpu.driver_answers_in_time"})
# These speak of what is in use: on a shared node the GPUs of other jobs are no business of this one.
OF_USE = frozenset({"gpu.no_leftover_processes", "neuron.no_leftover_processes"})

NO_JOB = Job()

_GPU = re.compile(r"\bGPU (\d{1,3})\b")
_JOB = re.compile(r"\bjob (\d+)\b")
_USER = re.compile(r"\buser (\d+)\b")

Cursor = tuple[str, int, float]  # of the kernel log: boot id, sequence number, seconds since boot


@dataclass(frozen=True, slots=True)
class Finding:
    """One check that did not pass."""

    check: str
    verdict: str  # fail, concern, incomplete
    message: str

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs that it names."""
        return frozenset(int(number) for number in _GPU.findall(self.message))

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that it names."""
        return frozenset(_JOB.findall(self.message))

    @property
    def users(self) -> frozenset[str]:
        """The users that it names, by their numbers."""
        return frozenset(_USER.findall(self.message))

    @property
    def words(self) -> str:
        """`gpu.gpu_count: NVML counts 7 GPUs; expected 8`, in one line."""
        return f"{self.check}: {' '.join(self.message.split())}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run: when it was done (seconds since boot), how much was checked, what was found.

    The kernel log was read from the cursor `begins` (None: all of this boot) to `ends`.
    """

    boot_id: str
    at: float
    took_s: float
    checked: int
    findings: tuple[Finding, ...]
    begins: Cursor | None
    ends: Cursor | None

    @property
    def began(self) -> float:
        """When it began, in seconds since boot."""
        return self.at - self.took_s

    def of(self, verdict: str) -> tuple[Finding, ...]:
        """The findings with that verdict."""
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    @property
    def is_reusable(self) -> bool:
        """Whether it may serve further jobs: no fault was found, and all evidence came in its time."""
        return not self.of("fail") and not any(finding.check == "node.evidence_complete" for finding in self.findings)

    @property
    def is_passing(self) -> bool:
        """Whether something was checked, nothing failed and nothing is unknown."""
        return self.checked > 0 and not self.of("fail") and not self.of("incomplete")

    def to_json(self) -> dict[str, Any]:
        """The record that `run_of` reads."""
        return asdict(self)


def run_of(record: Mapping[str, Any]) -> Run | None:
    """The run that a record holds; None where it holds none."""
    try:
        findings = tuple(Finding(**{key: str(value) for key, value in told.items()}) for told in record["findings"])
        return Run(
            str(record["boot_id"]),
            float(record["at"]),
            float(record["took_s"]),
            int(record["checked"]),
            findings,
            cursor_of(record["begins"]),
            cursor_of(record["ends"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain of ours: its reason, and from where the kernel log was judged for it.

    `at` is in seconds since 1970, as it outlives a reboot; `is_told` is whether Slurm has the reason.
    """

    reason: str
    begins: Cursor | None
    at: float
    is_told: bool = False

    def to_json(self) -> dict[str, Any]:
        """The record that `drain_of` reads."""
        return asdict(self)


def drain_of(record: Mapping[str, Any]) -> Drain | None:
    """The drain that a record holds; None where it holds none."""
    reason, at = record.get("reason"), record.get("at")
    if not isinstance(reason, str) or not reason.startswith(PREFIX) or not isinstance(at, (int, float)):
        return None
    return Drain(reason, cursor_of(record.get("begins")), float(at), bool(record.get("is_told")))


def cursor_of(told: object) -> Cursor | None:
    """A cursor out of JSON; None where it is none."""
    if not isinstance(told, (list, tuple)) or len(told) != 3:
        return None
    boot_id, sequence, seconds = told
    if not isinstance(boot_id, str) or isinstance(sequence, bool) or not isinstance(sequence, int):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        return None
    return boot_id, sequence, float(seconds)


def later(one: Cursor | None, other: Cursor | None) -> Cursor | None:
    """The cursor that is further on; that of another boot than `other`'s counts for nothing."""
    if one is None or other is None or one[0] != other[0]:
        return other or one
    return max(one, other, key=lambda cursor: cursor[1:])


def reaches(one: Cursor | None, other: Cursor | None) -> bool:
    """Whether a log that was read from one cursor on holds all from the other on."""
    return one is None or (other is not None and one[0] == other[0] and one[1:] <= other[1:])


def draining(run: Run, job: Job, *, late_drains: bool = False, is_epilog: bool = False) -> tuple[Finding, ...]:
    """The findings that are a reason to drain: fails, and by choice what did not answer in its time."""
    late = tuple(finding for finding in run.of("incomplete") if late_drains and finding.check in OF_TIME)
    return tuple(
        finding
        for finding in run.of("fail") + late
        if not (finding.check in OF_USE and is_of_others(finding, job))
        and not (is_epilog and is_left_by_others(finding, job))
    )


def cut_short(finding: Finding) -> Finding:
    """What a finding says where evidence had less time than the suite gives it."""
    if finding.check in OF_TIME and finding.verdict == "fail":
        return replace(finding, verdict="incomplete")
    return finding


def is_of_others(finding: Finding, job: Job) -> bool:
    """Whether a finding names GPUs, and none of the job's."""
    return bool(job.gpus is not None and finding.gpus and finding.gpus.isdisjoint(job.gpus))


def is_left_by_others(finding: Finding, job: Job) -> bool:
    """Whether a finding names jobs or users, and neither this job nor its user."""
    told = ((job.id, finding.jobs), (job.uid, finding.users))
    return any(own and named and own not in named for own, named in told)


def reason_of(findings: Iterable[Finding], job: Job = NO_JOB) -> str:
    """The reason for a drain: one line, with the first finding's evidence and the names of the others.

    A job is named where one of its GPUs may be meant, and never where only those of others are.
    """
    first, *others = findings
    more = f"; also {', '.join(finding.check for finding in others)}" if others else ""
    after = f" (after {job.words})" if job.id and not first.jobs and not is_of_others(first, job) else ""
    room = MAX_REASON - len(PREFIX) - len(after)
    return PREFIX + shortened(first.words + more, room) + after


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, in one line that any terminal can show."""
    shown = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
