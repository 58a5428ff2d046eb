"""What Slurm reports about a job: `scontrol show job`, `sacct -P`, and sacct's table as people paste it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from clusterproof.plugins.case import CaseError, Event, Job, Span, label
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.catalog.causes import RESOURCES, limits, sign_of
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.core.record import replace

LOOKED_AT = 200_000  # characters
RESOLUTION_S = 1.0  # of Slurm's times: an end is within that second
RUNS = ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED")
COMPLETED = ("COMPLETED", "0:0")
FAILED = "FAILED"
EXTERN = "extern"  # a step of what is not the job's program, such as logins
SUCCEEDED = ("Complete", "Completed", "Succeeded")  # how Kubernetes, Kubeflow and HyperPod call success
_PAIR = re.compile(rf"(?:^|\s)([A-Za-z]\w{{0,40}})=(\S{{1,{LOOKED_AT}}})")  # a list of nodes may be long
_NUMBERS = re.compile(
    r"JobId=(\d{1,12})(?: ArrayJobId=(\d{1,12}) ArrayTaskId=(\S{1,200}))?"
    r"(?: HetJobId=(\d{1,12}) HetJobOffset=(\d{1,6}))?"
)
_OF_SCONTROL = re.compile(r"\s{0,12}(?:[A-Za-z][\w/:-]{0,60}=|NtasksPerTRES:)")  # prefixes of its lines
_TYPED = re.compile(r"\s{0,20}(?:[\w@:~/.\[\]() -]{0,100}[$#%] ?)?(?:sacct|scontrol) .{0,500}\n")  # as people paste it
_SCRIPT = re.compile(r"^\s{0,12}BatchScript=", re.MULTILINE)  # from here on the owner's text
_JOB_NUMBER = r"\d{1,12}(?:_(?:\d{1,9}|\[[\d,%:-]{1,200}\])|\+\d{1,6})?"  # of a job, a task of an array, or a component
_ROW = re.compile(rf"\s{{0,20}}({_JOB_NUMBER})(?:\s|\||$)")
_STEP_ROW = re.compile(r"\s{0,20}\d{1,12}(?:_\d{1,9}|\+\d{1,6})?\.")
_NUMBER = re.compile(_JOB_NUMBER, re.ASCII)
_HEAD = re.compile(r"\s{0,20}JobID[\s|].{0,2000}\bState\b")
_RULE = re.compile(r"[- ]{3,4000}")
_STATE = re.compile(r"[A-Z][A-Z_]{1,40}\+?(?: by \d{1,10})?")
_CODE = re.compile(r"\d{1,5}:\d{1,5}")
OWN_LINES = ("UserId", "JobState", "Requeue", "StartTime", "NodeList")  # the first fields, each once in a record
OWNER_LINES = "what the owner of the job wrote has lines like Slurm's own"
_COMPONENT = re.compile(r"^JobId=\d{1,12} HetJobId=(\d{1,12})|^\s{0,20}(\d{1,12})\+\d{1,6}[.\s|]", re.MULTILINE)
_OWN_LINE = re.compile(rf"^\s{{0,12}}({'|'.join(OWN_LINES)})=", re.MULTILINE)
_BLOCK = re.compile(r"^(?=JobId=)", re.MULTILINE)
_NO_NODES = ("", "(null)", "None assigned", "Unknown")
Record: TypeAlias = tuple[Job, tuple[Event, ...]]


def is_record(text: str) -> bool:
    """Whether all of it was written by Slurm about jobs; a header alone counts too."""
    lines = _lines(_record(text))
    if not lines:
        return False
    if lines[0].startswith("JobId="):
        return all(map(_OF_SCONTROL.match, lines)) and any("JobState=" in line for line in lines)
    return bool(_HEAD.match(lines[0])) and all(
        _ROW.match(line) or _STEP_ROW.match(line) or _RULE.fullmatch(line) for line in lines[1:]
    )


def read(text: str, source: str, clock: Clock) -> tuple[Record, ...]:
    """The jobs in a record, array tasks separately, and how each ended if its state shows it.

    The components of a heterogeneous job are merged, with the nodes of all. Empty if the record may be forged.
    """
    if is_forged(text):
        return ()
    parts: dict[str, list[Record]] = {}
    own = _record(text)[:LOOKED_AT]
    for fields in _records(own, _ROW):
        job, events = _job(fields, source, clock)
        if job.number:
            parts.setdefault(job.number.partition("+")[0], []).append((job, events))
    steps: dict[str, list[Mapping[str, str]]] = {}
    for fields in _records(own, _STEP_ROW):
        steps.setdefault(re.split(r"[+.]", fields.get("JobID", "").strip())[0], []).append(fields)
    return tuple(
        (job, (*events, *_out_of_memory(job, steps.get(job.number, ()), source, clock)))
        for job, events in (_merged_parts(number, records) for number, records in parts.items())
    )


def of_one_job(records: Iterable[Record], number: str) -> tuple[list[Record], list[str]]:
    """The records of the job with this number, else of the first task that failed; and the other tasks.

    Raises CaseError if they are of several jobs.
    """
    records = list(records)
    numbers = list(dict.fromkeys(job.number for job, _ in records))
    jobs = dict.fromkeys(task.partition("_")[0] for task in numbers)
    wanted = number.partition("+")[0]
    if wanted not in numbers:
        if len(jobs) > 1:
            raise CaseError(f"records of the jobs {listed(jobs)}; expected those of one job")
        if wanted and len(numbers) > 1:
            raise CaseError(f"job {number} is an array; expected one of its tasks: {listed(numbers)}")
        wanted = next((job.number for job, _ in records if not has_completed(job)), numbers[0] if numbers else "")
    others = [task for task in numbers if task != wanted]
    return [record for record in records if record[0].number == wanted], others


def is_forged(text: str) -> bool:
    """Whether the owner's text may imitate Slurm's: a job name may contain line breaks and columns."""
    text = _record(text)[:LOOKED_AT]
    if text.lstrip().startswith("JobId="):
        own = list(map(_OWN_LINE.findall, blocks(text)))
        return any(len(names) != len(set(names)) for names in own)
    lines = _lines(text)
    return len({line.count("|") for line in (lines if len(text) < LOOKED_AT else lines[:-1])}) > 1


def has_cut_nodes(text: str) -> bool:
    """Whether a list of nodes is cut off, as sacct's table cuts what is wider than its column: `gpu[001-0+`."""
    lists = (fields.get("NodeList", "") for fields in _records(_record(text)[:LOOKED_AT], _ROW))
    return any(nodes.endswith("+") and not nodes.startswith("None ") for nodes in lists)


def heterogeneous_jobs(text: str) -> set[str]:
    """The heterogeneous jobs in a record: each component has a number of its own, which the kernel uses."""
    return {match[1] or match[2] for match in _COMPONENT.finditer(_record(text)[:LOOKED_AT])}


def is_of_job(named: Collection[str], number: str, has_parts: bool) -> bool | None:
    """Whether control groups of these jobs are the job's own.

    The kernel knows no task of an array, and no component of a heterogeneous job, by its number.
    """
    if not named or not number:
        return None
    return True if number in named else False if number.isdecimal() and not has_parts else None


def blocks(text: str) -> list[str]:
    """The records of single jobs in scontrol's output."""
    return [part for part in _BLOCK.split(text) if part.strip()]


def has_ended(job: Job) -> bool:
    """Whether its record is from after its end."""
    return not job.state.startswith(RUNS)


def ended_between(job: Job, begins: float, ends: float) -> bool:
    """Whether it ended between two times; it may have ended in the second second itself."""
    return job.ran.ends is not None and begins <= job.ran.ends and job.ran.ends - RESOLUTION_S <= ends


def has_completed(job: Job) -> bool:
    """Whether Slurm, or Kubernetes, reports success for all of it."""
    return (job.state, job.exit_code) == COMPLETED or job.state in SUCCEEDED


def _lines(text: str) -> list[str]:
    """The lines that Slurm wrote: a job's name may contain other line ends of Python, such as `\\r`."""
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _record(text: str) -> str:
    """The record alone: without the command that printed it, and without the job's script."""
    typed, script = _TYPED.match(text), _SCRIPT.search(text)
    return text[typed.end() if typed else 0 : script.start() if script else len(text)]


def _merged_parts(number: str, parts: Sequence[Record]) -> Record:
    first = next((job for job, _ in parts if not has_completed(job)), parts[0][0])
    nodes = tuple(dict.fromkeys(node for job, _ in parts for node in job.nodes))
    return replace(first, number=number, nodes=nodes), tuple(event for _, events in parts for event in events)


def _job(fields: Mapping[str, str], source: str, clock: Clock) -> Record:
    full_state = _STATE.match(fields.get("State", ""))
    code = _CODE.fullmatch(fields.get("ExitCode", ""))
    number = _NUMBER.fullmatch(fields.get("JobID", "").strip())
    job = Job(
        number[0] if number else "",
        full_state[0] if full_state else "",
        code[0] if code else "",
        _nodes(fields.get("NodeList", "")),
        Span(clock.of(fields.get("Start", "")).begins),
    )
    if not has_ended(job):
        return job, ()  # its end is when its limit would be
    ended = clock.of(fields.get("End", ""))
    job = replace(job, ran=Span(job.ran.begins, ended.ends))
    state = job.state.split(" ")[0].rstrip("+")
    sign = sign_of("scheduler", f"JobState={state}") if state else None
    if not sign:
        return job, ()
    state_in_words = f"Slurm: {job.state}, exit code {job.exit_code or 'not known'}"
    return job, (Event(sign.name, state_in_words, source, ended, job.nodes[0] if _is_one_failed(job, state) else ""),)


def _out_of_memory(job: Job, steps: Iterable[Mapping[str, str]], source: str, clock: Clock) -> Iterator[Event]:
    """Steps killed at their memory limit as the job failed: the job's own state is that of its script."""
    if job.state != FAILED or job.ran.ends is None:
        return
    for fields in steps:
        step = fields.get("JobID", "").strip().rpartition(".")[2]
        state = _STATE.match(fields.get("State", ""))
        sign = sign_of("scheduler", f"JobState={state[0]}") if state else None
        ended = clock.of(fields.get("End", ""))
        is_of_end = ended.begins is not None and ended.begins >= job.ran.ends - limits().teardown_s
        if step != EXTERN and sign and sign.cause == RESOURCES and is_of_end:
            nodes = _nodes(fields.get("NodeList", ""))
            words = f"Slurm: step {step}: {state[0] if state else ''}"
            yield Event(sign.name, words, source, ended, nodes[0] if len(nodes) == 1 else "")


def _is_one_failed(job: Job, state: str) -> bool:
    return state == "NODE_FAIL" and len(job.nodes) == 1


def _records(text: str, form: re.Pattern[str]) -> Iterator[Mapping[str, str]]:
    """The fields of each job, or of each of their steps, by sacct's names."""
    if text.lstrip().startswith("JobId="):
        yield from map(_first_of_each, map(_of_scontrol, blocks(text) if form is _ROW else ()))
        return
    lines = _lines(text)
    if not lines or not _HEAD.match(lines[0]):
        return
    for row in filter(form.match, lines[1:]):  # steps have a point in their id
        if "|" in lines[0]:
            yield _first_of_each(zip(lines[0].split("|"), row.split("|"), strict=False))
        else:
            yield _first_of_each(_columns(lines[0], lines[1], row))


def _first_of_each(fields: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The first value of each field: later ones may be the owner's text."""
    return dict(reversed(list(fields)))


def _of_scontrol(text: str) -> Iterator[tuple[str, str]]:
    """From lines without text of the job's owner: a job may be named `JobState=COMPLETED`."""
    names = {"JobState": "State", "StartTime": "Start", "EndTime": "End"}
    if match := _NUMBERS.match(text):
        job, array, task, whole, part = match.groups()
        yield "JobID", f"{array}_{task}" if array and task else f"{whole}+{part}" if whole else job
    for line in _lines(text):
        pairs = _PAIR.findall(line)
        if pairs and pairs[0][0] in OWN_LINES:
            yield from ((names.get(name, name), value) for name, value in pairs)


def _columns(names: str, rule: str, row: str) -> Iterator[tuple[str, str]]:
    """A table: the line of minus signs under the names shows each column's width."""
    at = 0
    for width in map(len, rule.split(" ")):
        yield names[at : at + width].strip(), row[at : at + width].strip()
        at += width + 1


def _nodes(text: str) -> tuple[str, ...]:
    if text in _NO_NODES:
        return ()
    try:
        return tuple(filter(None, map(label, expand(text))))
    except NodesetError:
        return ()
