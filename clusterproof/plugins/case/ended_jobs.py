"""Asks this machine's Slurm which jobs ended in a period, when they ran, and on how many GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.case import CaseError, Job, Span, one_line, scheduler
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.slurm import COLUMNS, Ask
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record, replace

ALL_COLUMNS = f"{COLUMNS},AllocTRES"
_GPUS = re.compile(r"(?:^|[|,= ])gres/gpu=(\d{1,7})(?=[,|\s]|$)")  # the total of all types
_JOB_ID = re.compile(r"JobId=(\d{1,12})\b")
_ALLOCATED = re.compile(r"^\s{0,12}(?:Alloc)?TRES=(\S{1,4000})", re.MULTILINE)  # depending on Slurm's version


@record
class EndedJob:
    """A job that ended; `gpus` is None if its record counts none; `rows` are sacct's own, if available."""

    job: Job
    gpus: int | None = None
    rows: str = ""

    @property
    def has_run(self) -> bool:
        """Whether it ever had nodes; a job cancelled in the queue had none."""
        return bool(self.job.nodes) or Span(0.0, self.job.ran.begins).is_before(
            Span(self.job.ran.ends), scheduler.RESOLUTION_S
        )

    @property
    def gpu_hours(self) -> float | None:
        """How long it had its GPUs; None if unknown."""
        ran = self.job.ran
        if self.gpus is None or ran.begins is None or ran.ends is None:
            return None
        return self.gpus * max(ran.ends - scheduler.RESOLUTION_S - ran.begins, 0.0) / 3600


def ended_jobs(begins: float, ends: float, query: Ask) -> tuple[tuple[EndedJob, ...], list[str]]:
    """The jobs that ended between two times, by end, and what is unknown: older jobs, or some of them.

    Raises CaseError if Slurm does not answer.
    """
    since = f"{datetime.fromtimestamp(begins, timezone.utc):%Y-%m-%dT%H:%M:%S}"
    status, text = query(("sacct", "-a", "-X", "-P", "-S", since, "-o", ALL_COLUMNS))
    missing: list[str] = []
    listed = list(_of_sacct(text))
    if status:
        missing.append(f"sacct: {_first_line(text)}: only scontrol knows jobs, and forgets each after MinJobAge")
        failed, counted = query(("squeue", "-h", "-t", "all", "-o", "%A"))
        status, shown = query(("scontrol", "show", "job"))
        if status or failed:
            why = f"scontrol: {_first_line(shown)}" if status else f"squeue: {_first_line(counted)}"
            raise CaseError(f"no job can be listed: sacct: {_first_line(text)}; {why}")
        listed, unread = _of_scontrol(shown, frozenset(counted.split()))
        missing += unread
    jobs: dict[str, EndedJob] = {}
    for job in listed:
        number = job.job.number.partition("+")[0]
        jobs[number] = (
            _joined(jobs[number], job) if number in jobs else replace(job, job=replace(job.job, number=number))
        )
    within = [job for job in jobs.values() if _has_ended(job.job) and scheduler.ended_between(job.job, begins, ends)]
    ran = sorted((job for job in within if job.has_run), key=lambda job: job.job.ran.ends or 0.0)
    if len(ran) < len(within):
        missing.append(f"{number_of(len(within) - len(ran), 'job')} that ended before it had a node")
    return tuple(ran), missing


def _has_ended(job: Job) -> bool:
    """Whether it is completely over: while a job is completing, Slurm does not yet say how it ended."""
    return scheduler.has_ended(job) and job.state != "COMPLETING"


def _of_sacct(text: str) -> Iterator[EndedJob]:
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("JobID|")]
    for line in lines[heads[0] + 1 :] if heads else ():
        yield from _read(f"{lines[heads[0]]}\n{line}\n", line)


def _of_scontrol(text: str, queued: Collection[str]) -> tuple[list[EndedJob], list[str]]:
    """The jobs that squeue lists and that have exactly one record, and remarks on the others.

    The name of a job may contain lines like Slurm's own, such as another record.
    """
    records: dict[str, list[str]] = {}
    for block in scheduler.blocks(text):
        if match := _JOB_ID.match(block):
            records.setdefault(match[1], []).append(block)
    ended: list[EndedJob] = []
    unread: list[str] = []
    for number, own in records.items():
        allocated = _ALLOCATED.findall(own[0])
        read = [job for job in _read(own[0], *allocated) if job.job.state] if len(own) == 1 else []
        if read and number in queued:
            ended += read
        elif not read or _has_ended(read[0].job):  # else it was submitted a moment ago
            unread.append(f"job {number}: {scheduler.OWNER_LINES}")
    return ended, unread


def _read(text: str, *allocated: str) -> Iterator[EndedJob]:
    """The job in a record, and its GPUs if the record states the allocation once."""
    gpus = _GPUS.search(allocated[0]) if len(allocated) == 1 else None
    rows = "" if _JOB_ID.match(text) else text
    for job, _ in scheduler.read(text, "", Clock(0)):
        yield EndedJob(job, int(gpus[1]) if gpus else None, rows)


def _joined(whole: EndedJob, part: EndedJob) -> EndedJob:
    """A job with another one of its components."""
    job, other = whole.job, part.job
    first = other if scheduler.has_completed(job) else job
    nodes = tuple(dict.fromkeys((*job.nodes, *other.nodes)))
    ended_at = [time for time in (job.ran.ends, other.ran.ends) if time is not None]
    ran = Span(job.ran.begins, max(ended_at) if len(ended_at) == 2 else None)
    gpus = [count for count in (whole.gpus, part.gpus) if count is not None]
    rows = f"{whole.rows}{part.rows.partition(chr(10))[2]}"
    return EndedJob(replace(first, number=job.number, nodes=nodes, ran=ran), sum(gpus) if gpus else None, rows)


def _first_line(text: str) -> str:
    """The first line of an answer that is no header."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip() and "|" not in line]
    return one_line(lines[0] if lines else "no answer", 120)
