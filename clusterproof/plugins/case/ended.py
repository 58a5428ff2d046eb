"""Which jobs of this machine's Slurm ended in a time, and on how many GPUs they ran."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.case import scheduler
from clusterproof.plugins.case.records import CaseError, Job, Span, one_line
from clusterproof.plugins.case.slurm import COLUMNS, Ask
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.core.record import record, replace

_GPUS = re.compile(r"(?:^|[|,= ])gres/gpu=(\d{1,7})(?=[,|\s]|$)", re.MULTILINE)  # of all types together
_JOB_ID = re.compile(r"JobId=(\d{1,12})\b")
_ROW_OF = "AllocTRES"
WITHOUT_ACCOUNTING = "only scontrol knows"


@record
class Ended:
    """A job that ended; `gpus` is None where its record counts none."""

    job: Job
    gpus: int | None = None

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
    status, text = asked(("sacct", "-a", "-X", "-P", "-S", since, "-o", f"{COLUMNS},{_ROW_OF}"))
    missing: list[str] = []
    found = list(_of_sacct(text))
    if status:
        missing.append(f"sacct: {_said(text)}: {WITHOUT_ACCOUNTING} jobs, and forgets each after MinJobAge")
        counts = Counter(asked(("squeue", "-h", "-t", "all", "-o", "%A"))[1].split())
        status, shown = asked(("scontrol", "show", "job"))
        if status:
            raise CaseError(f"no job can be listed: sacct: {_said(text)}; scontrol: {_said(shown)}")
        found, unread = _of_scontrol(shown, counts)
        missing += unread
    jobs: dict[str, Ended] = {}
    for one in found:
        number = one.job.number.partition("+")[0]
        jobs[number] = (
            _joined(jobs[number], one) if number in jobs else replace(one, job=replace(one.job, number=number))
        )
    within = (
        one for one in jobs.values() if scheduler.has_ended(one.job) and begins <= (one.job.ran.ends or 0.0) <= ends
    )
    return tuple(sorted(within, key=lambda one: one.job.ran.ends or 0.0)), missing


def _of_sacct(text: str) -> Iterator[Ended]:
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("JobID|")]
    for line in lines[heads[0] + 1 :] if heads else ():
        yield from _read(f"{lines[heads[0]]}\n{line}", line)


def _of_scontrol(text: str, counts: Mapping[str, int]) -> tuple[list[Ended], list[str]]:
    """The jobs of whose records squeue counts as many as there are, and what is said of the others.

    The name of a job may have lines like Slurm's own, a further record among them.
    """
    records: dict[str, list[str]] = {}
    for block in scheduler.blocks(text):
        if said := _JOB_ID.match(block):
            records.setdefault(said[1], []).append(block)
    ended: list[Ended] = []
    unread: list[str] = []
    for number, own in records.items():
        read = [one for one in _read(own[0], own[0]) if one.job.state] if len(own) == counts.get(number, 0) else []
        ended += read
        if not read:
            unread.append(f"job {number}: {scheduler.OF_OWNER}")
    return ended, unread


def _read(text: str, counted: str) -> Iterator[Ended]:
    gpus = _GPUS.search(counted)
    for job, _ in scheduler.read(text, "", Clock(0)):
        yield Ended(job, int(gpus[1]) if gpus else None)


def _joined(whole: Ended, part: Ended) -> Ended:
    """A job with one more of its components."""
    job, other = whole.job, part.job
    first = other if scheduler.has_completed(job) else job
    nodes = tuple(dict.fromkeys((*job.nodes, *other.nodes)))
    ends = [time for time in (job.ran.ends, other.ran.ends) if time is not None]
    ran = Span(job.ran.begins, max(ends) if len(ends) == 2 else None)
    gpus = [count for count in (whole.gpus, part.gpus) if count is not None]
    return Ended(replace(first, number=job.number, nodes=nodes, ran=ran), sum(gpus) if gpus else None)


def _said(text: str) -> str:
    """The first line of an answer that is no name of columns."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip() and "|" not in line]
    return one_line(lines[0] if lines else "no answer", 120)
