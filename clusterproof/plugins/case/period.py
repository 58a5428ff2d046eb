"""Every job that died in a period: a case for each, and their total cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from clusterproof.plugins.case import COMPLETED, CaseError, Job, Missing, MissingKind
from clusterproof.plugins.case.advice import Case, opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.ended_jobs import ALL_COLUMNS, EndedJob, ended_jobs
from clusterproof.plugins.case.folder import collect, files_of, read_files
from clusterproof.plugins.case.log_file import node_of
from clusterproof.plugins.case.scheduler import FAILED, ended_between, has_completed
from clusterproof.plugins.case.slurm import NODES, Ask, is_out, read_job, run_command
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.kernel_log.window import window

MAX_CASES = 2_000  # on one page
MAX_KEPT = 1_000_000  # files in a folder with traces of many jobs
_NAMED = re.compile(  # not a date: slurm-2026-11-27.out
    r"(?<![A-Za-z0-9])(?:slurm-|job[-_])(?!(?:19|20)[0-9]{2}[-_][0-9]{2}[-_][0-9]{2})([0-9]+(?:_[0-9]+)?)(?![A-Za-z0-9])"
)
_BARE = re.compile(r"([0-9]+(?:_[0-9]+)?)(?:\.[A-Za-z][A-Za-z0-9]*)*")
_DATE = re.compile(  # folders: 2026/11/27, 2026/11; a year, or 20261127, above another numeric folder
    r"(?<![^/])(?:19|20)[0-9]{2}(?:(?:/[0-9]{2}){1,2}(?![^/])|(?:[0-9]{4})?(?=/[0-9]+(?:_[0-9]+)?/))"
)
MAX_ALIKE = 6  # lines about missing data
_ZONE = re.compile(r"(?:[zZ]|[+-]\d\d:?\d\d)\Z")
Done: TypeAlias = Callable[[int, int], None]
Some = TypeVar("Some")
NO_END = "no record says when it ended, and its cases count"


def nobody(_done: int, _of: int) -> None:
    """Ignores progress."""


def with_progress(items: Sequence[Some], done: Done) -> Iterator[Some]:
    """Yield each item, then report how many of how many are done."""
    for number, item in enumerate(items, 1):
        yield item
        done(number, len(items))


@record
class DeadJob:
    """A job that died."""

    number: str
    case: Case
    gpu_hours: float | None

    @property
    def cause(self) -> str:
        """Why it ended."""
        return self.case.verdict.cause


@record
class Period:
    """All jobs that ended between two times, in seconds since 1970; `ended` and `gpu_hours` cover all of them.

    GPU hours of jobs that died are an upper bound of the loss: what their last checkpoints saved is unknown.
    """

    begins: float
    ends: float
    ended: int
    gpu_hours: float
    died: tuple[DeadJob, ...]
    missing: tuple[str, ...]

    @property
    def died_gpu_hours(self) -> float:
        """The GPU hours of those that died, as far as known."""
        return sum(job.gpu_hours or 0.0 for job in self.died)


@record
class KeptFiles:
    """The files of a folder with traces of jobs, by the numbers in their names and by node."""

    folder: Path
    by_number: Mapping[str, Sequence[Path]]
    by_node: Mapping[str, Sequence[Path]]
    not_read: Sequence[str]

    @classmethod
    def below(cls, folder: Path) -> KeptFiles:
        """Index the files of a folder. Raises CaseError."""
        files, not_read = files_of(folder, MAX_KEPT)
        by_number: dict[str, list[Path]] = {}
        by_node: dict[str, list[Path]] = {}
        for path in files:
            by_node.setdefault(node_of(path, folder), []).append(path)
            for number in numbers_of(path.relative_to(folder).as_posix()):
                by_number.setdefault(number, []).append(path)
        return cls(folder, by_number, by_node, not_read)

    def of_job(self, job: Job) -> list[Path]:
        """Files named after the job, or in a folder named after it, and the kernel logs of its nodes."""
        of_nodes = (path for node in job.nodes for path in self.by_node.get(node, ()))
        return sorted({*self.by_number.get(job.number, ()), *of_nodes})


def numbers_of(path: str) -> set[str]:
    """The job of a file, from its path: `slurm-N`, `job-N` and `job_N`, else a folder or file name that is only N.

    Also N_M of an array. Of several numbers the largest is the job's: others are ranks, tasks, or parts of a date.
    """
    named = _NAMED.findall(path)
    *folders, name = _DATE.sub("", path).split("/")
    bare = _bare(folders) or _bare([name])  # files in a job's folder may be named by process or time
    job = max(map(_job, named or bare), default=0)
    return {number for number in (*named, *bare) if _job(number) == job}


def _bare(parts: Iterable[str]) -> list[str]:
    return [of[1] for part in parts if (of := _BARE.fullmatch(part))]


def _job(number: str) -> int:
    return int(number.partition("_")[0])


def since(text: str, now: float, offset_s: float = 0.0) -> float:
    """The start of a period such as 7d, 36h or 2026-03-01, with an offset from UTC. Raises CaseError."""
    try:
        wanted = window(text)
    except ValueError:
        wanted = None
    begins = None if wanted is None else now - wanted.last_s if wanted.last_s is not None else wanted.moment
    if begins is None:
        raise CaseError(f"--since is {text!r:.60}; expected 36h, 7d, or a time such as 2026-03-01T08:00")
    if wanted is not None and wanted.moment is not None and not _ZONE.search(text):
        begins -= offset_s
    if not 0 <= begins <= now:
        raise CaseError(f"--since is {text!r:.60}; expected a time between 1970 and now")
    return begins


def of_slurm(
    begins: float, ends: float, logs: Path | None, offset_s: float, query: Ask = run_command, done: Done = nobody
) -> Period:
    """The jobs of this machine's Slurm; `logs` is a folder with traces kept by hand. Raises CaseError."""
    kept = KeptFiles.below(logs) if logs else None
    jobs, missing = ended_jobs(begins, ends, query)
    missing += kept.not_read if kept else ()
    failed = [job for job in jobs if not has_completed(job.job)]
    newest = failed[-MAX_CASES:]
    known = _known(newest, query)
    died = tuple(_died(job, kept, offset_s, known) for job in with_progress(newest, done))
    without = [job for job in jobs if job.gpu_hours is None]
    if len(failed) > MAX_CASES:
        missing.append(f"{len(failed) - MAX_CASES} of the jobs that died, the older ones: ask for a shorter time")
    if without:
        missing.append(f"the GPU hours of {number_of(len(without), 'job')}, whose records count no GPUs or no times")
    hours = sum(job.gpu_hours or 0.0 for job in jobs)
    return Period(begins, ends, len(jobs), hours, died, (*missing, *_commonly_missing(died)))


def of_folder(folder: Path, begins: float, ends: float, offset_s: float, done: Done) -> Period:
    """A case for each subfolder, which holds one job's traces. Raises CaseError."""
    if not folder.is_dir():
        raise CaseError(f"{str(folder)!r:.120} is not a folder; expected one of folders, each of what one job left")
    cases, missing = [], []
    for path in with_progress(
        sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()), done
    ):
        try:
            case = opened_case(collect(path, offset_s))
        except CaseError as problem:
            missing.append(str(problem))
            continue
        job = case.collected.job
        if job.ran.ends is None:
            missing.append(f"{case.collected.name}: {NO_END}")
        if job.ran.ends is None or ended_between(job, begins, ends):
            cases.append(case)
    died = tuple(
        DeadJob(case.collected.job.number or case.collected.name, case, None)
        for case in cases
        if case.verdict.standing != COMPLETED
    )
    return Period(begins, ends, len(cases), 0.0, died, (*missing, *_commonly_missing(died)))


def _known(jobs: Sequence[EndedJob], query: Ask) -> Ask:
    """Cached Slurm answers for all jobs, their steps and nodes: only a job's own record is still requested."""
    rows = {job.job.number: job.rows for job in jobs if job.rows}
    for number, steps in _steps([job.job.number for job in jobs if job.rows and job.job.state == FAILED], query):
        rows[number] += steps
    status, text = query(NODES) if jobs else (0, "")
    out = [line for line in text.splitlines() if is_out("".join(line.split("|")[1:2]))]
    nodes = status, text if status else "\n".join(out)

    def known(argv: Sequence[str]) -> tuple[int, str]:
        if argv[0] == "sinfo":
            return nodes
        row = rows.get(argv[2]) if argv[0] == "sacct" else None
        return (0, row) if row else query(argv)

    return known


def _steps(numbers: Sequence[str], query: Ask) -> Iterator[tuple[str, str]]:
    """The rows of the steps of jobs that failed, which may say why."""
    status, text = query(("sacct", "-j", ",".join(numbers), "-P", "-o", ALL_COLUMNS)) if numbers else (1, "")
    for line in text.splitlines() if not status else ():
        number, dot, _ = line.partition("|")[0].partition(".")
        number = number.partition("+")[0]
        if dot and number in numbers:
            yield number, f"{line}\n"


def _died(ended: EndedJob, kept: KeptFiles | None, offset_s: float, query: Ask) -> DeadJob:
    builder = CaseBuilder()
    number = ended.job.number
    try:
        if kept:
            read_files(kept.folder, kept.of_job(ended.job), builder, offset_s, number, ended.job.ran.ends)
    except CaseError as problem:  # for example, a record there is of other jobs
        builder.records.clear()
        builder.lack(str(problem))
    try:
        read_job(number, builder, offset_s, query)
    except CaseError as problem:  # for example, Slurm forgot it a moment ago
        builder.jobs.append(ended.job)
        builder.lack(str(problem))
    return DeadJob(number, opened_case(joined(f"job {number}", builder)), ended.gpu_hours)


def _commonly_missing(died: tuple[DeadJob, ...]) -> Iterator[str]:
    """What many cases lack, once."""
    lacking = (_of_all(missing) for dead in died for missing in dead.case.collected.lacks)
    counts = Counter(filter(None, lacking))
    for what, count in counts.most_common(MAX_ALIKE):
        yield f"{number_of(count, 'job')}: {what}"
    if len(counts) > MAX_ALIKE:
        yield f"{number_of(len(counts) - MAX_ALIKE, 'further line')}: `clusterproof case JOB` has them"


def _of_all(missing: Missing) -> str:
    """A line about missing data without the job's nodes; empty for commands, and for what concerns all jobs."""
    if missing.kind in (MissingKind.COMMAND, MissingKind.ACCOUNTING):
        return ""
    return "no kernel log of some of its nodes" if missing.kind is MissingKind.LOGS_OF_SOME else missing.words
