"""Which jobs of this machine's Slurm ended in a time, and on how many GPUs they ran."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.case import scheduler
from clusterproof.plugins.case.records import CaseError, Job, Span, one_line
from clusterproof.plugins.case.slurm import COLUMNS, Ask
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record, replace

_GPUS = re.compile(r"(?:^|[|,= ])gres/gpu=(\d{1,7})(?=[,|\s]|$)")  # of all types together
_JOB_ID = re.compile(r"JobId=(\d{1,12})\b")
_ALLOCATED = re.compile(r"^\s{0,12}(?:Alloc)?TRES=(\S{1,4000})", re.MULTILINE)  # by Slurm's age, and one of them
WITHOUT_ACCOUNTING = "only scontrol knows"


@record
class Ended:
    """A job that ended; `gpus` is None where its record counts none; `rows` are sacct's own, where it has them."""

    job: Job
    gpus: int | None = None
    rows: str = ""

    @property
    def has_run(self) -> bool:
        """Whether it ever had nodes; one that was cancelled in its queue had none."""
        return bool(self.job.nodes) or Span(0.0, self.job.ran.begins).is_before(
            Span(self.job.ran.ends), scheduler.RESOLUTION_S
        )

    @property
    def gpu_hours(self) -> float | None:
        """How long it had its GPUs; None where that is not known."""
        ran = self.job.ran
        if self.gpus is None or ran.begins is None or ran.ends is None:
            return None
        return self.gpus * max(ran.ends - scheduler.RESOLUTION_S - ran.begins, 0.0) / 3600


def ended_jobs(begins: float, ends: float, asked: Ask) -> tuple[tuple[Ended, ...], list[str]]:
    """The jobs that ended between two times, by their ends, and what is not known of them: no older ones, or some.

    Raises CaseError where Slurm answers nothing.
    """
    since = f"{datetime.fromtimestamp(begins, timezone.utc):%Y-%m-%dT%H:%M:%S}"
    status, text = asked(("sacct", "-a", "-X", "-P", "-S", since, "-o", f"{COLUMNS},AllocTRES"))
    missing: list[str] = []
    found = list(_of_sacct(text))
    if status:
        missing.append(f"sacct: {_said(text)}: {WITHOUT_ACCOUNTING} jobs, and forgets each after MinJobAge")
        failed, counted = asked(("squeue", "-h", "-t", "all", "-o", "%A"))
        status, shown = asked(("scontrol", "show", "job"))
        if status or failed:
            why = f"scontrol: {_said(shown)}" if status else f"squeue: {_said(counted)}"
            raise CaseError(f"no job can be listed: sacct: {_said(text)}; {why}")
        found, unread = _of_scontrol(shown, frozenset(counted.split()))
        missing += unread
    jobs: dict[str, Ended] = {}
    for one in found:
        number = one.job.number.partition("+")[0]
        jobs[number] = (
            _joined(jobs[number], one) if number in jobs else replace(one, job=replace(one.job, number=number))
        )
    within = [one for one in jobs.values() if _has_ended(one.job) and scheduler.ended_between(one.job, begins, ends)]
    ran = sorted((one for one in within if one.has_run), key=lambda one: one.job.ran.ends or 0.0)
    if len(ran) < len(within):
        missing.append(f"{number_of(len(within) - len(ran), 'job')} that ended before it had a node")
    return tuple(ran), missing


def _has_ended(job: Job) -> bool:
    """Whether nothing of it is left: of one that completes now, Slurm does not yet say how it ended."""
    return scheduler.has_ended(job) and job.state != "COMPLETING"


def _of_sacct(text: str) -> Iterator[Ended]:
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("JobID|")]
    for line in lines[heads[0] + 1 :] if heads else ():
        yield from _read(f"{lines[heads[0]]}\n{line}\n", line)


def _of_scontrol(text: str, known: Collection[str]) -> tuple[list[Ended], list[str]]:
    """The jobs that squeue has too and of which there is one record, and what is said of the others.

    The name of a job may have lines like Slurm's own, a further record among them.
    """
    records: dict[str, list[str]] = {}
    for block in scheduler.blocks(text):
        if said := _JOB_ID.match(block):
            records.setdefault(said[1], []).append(block)
    ended: list[Ended] = []
    unread: list[str] = []
    for number, own in records.items():
        allocated = _ALLOCATED.findall(own[0])
        read = [one for one in _read(own[0], *allocated) if one.job.state] if len(own) == 1 else []
        if read and number in known:
            ended += read
        elif not read or _has_ended(read[0].job):  # else it was submitted a moment ago
            unread.append(f"job {number}: {scheduler.OF_OWNER}")
    return ended, unread


def _read(text: str, *allocated: str) -> Iterator[Ended]:
    """The job of a record, and its GPUs where the record says once what it was allocated."""
    gpus = _GPUS.search(allocated[0]) if len(allocated) == 1 else None
    rows = "" if _JOB_ID.match(text) else text
    for job, _ in scheduler.read(text, "", Clock(0)):
        yield Ended(job, int(gpus[1]) if gpus else None, rows)


def _joined(whole: Ended, part: Ended) -> Ended:
    """A job with one more of its components."""
    job, other = whole.job, part.job
    first = other if scheduler.has_completed(job) else job
    nodes = tuple(dict.fromkeys((*job.nodes, *other.nodes)))
    ends = [time for time in (job.ran.ends, other.ran.ends) if time is not None]
    ran = Span(job.ran.begins, max(ends) if len(ends) == 2 else None)
    gpus = [count for count in (whole.gpus, part.gpus) if count is not None]
    rows = f"{whole.rows}{part.rows.partition(chr(10))[2]}"
    return Ended(replace(first, number=job.number, nodes=nodes, ran=ran), sum(gpus) if gpus else None, rows)


def _said(text: str) -> str:
    """The first line of an answer that is no name of columns."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip() and "|" not in line]
    return one_line(lines[0] if lines else "no answer", 120)
