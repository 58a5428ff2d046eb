"""What Slurm says of a job: `scontrol show job`, `sacct -P`, and sacct's table as people paste it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterproof.plugins.case.records import Event, Job, Span, label
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.catalog.causes import sign_of
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import NodesetError, expand

LOOKED_AT = 200_000  # characters
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w{0,40})=(\S{1,4000})")
_STATE = re.compile(
    r"\b(?:COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL|OUT_OF_ME|PREEMPTED|BOOT_FAIL|DEADLINE|REVOKED|RUNNING)"
)
_ROW = re.compile(r"\s{0,20}(\d{1,12}(?:_\d{1,8})?)(?:\s|\|)")
OWN_LINES = ("JobId", "JobState", "Requeue", "StartTime", "NodeList")
_NO_NODES = ("", "(null)", "None assigned", "Unknown")


def is_of_job(text: str) -> bool:
    """Whether it is a record of a job that Slurm wrote."""
    head = text[:LOOKED_AT]
    return bool(("JobId=" in head and "JobState=" in head) or ("JobID" in head and _STATE.search(head)))


def read(text: str, source: str, clock: Clock) -> tuple[Job, tuple[Event, ...]]:
    """The job, and how it ended where its state says it."""
    fields = dict(_fields(text[:LOOKED_AT]))
    state = fields.get("State", "").split(" ")[0].rstrip("+")
    ended = clock.of(fields.get("End", ""))
    job = Job(
        fields.get("JobID", ""),
        fields.get("State", ""),
        fields.get("ExitCode", ""),
        _nodes(fields.get("NodeList", "")),
        Span(clock.of(fields.get("Start", "")).begins, ended.ends),
    )
    line = f"JobState={state}"
    sign = sign_of("scheduler", line)
    if not sign:
        return job, ()
    words = printable(f"Slurm: {fields.get('State', state)}, exit code {job.exit_code or 'not known'}")
    return job, (Event(sign.name, words, source, ended, job.nodes[0] if _is_one_failed(job, state) else ""),)


def _is_one_failed(job: Job, state: str) -> bool:
    return state == "NODE_FAIL" and len(job.nodes) == 1


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """The fields of a job by the names that sacct gives them."""
    if "JobState=" in text:
        yield from _of_scontrol(text)
        return
    lines = [line for line in text.splitlines() if line.strip()]
    head = next((number for number, line in enumerate(lines) if "JobID" in line and "State" in line), None)
    if head is None:
        return
    rows = [line for line in lines[head + 1 :] if _ROW.match(line)]  # of the job itself: steps have a point
    if not rows:
        return
    if "|" in lines[head]:
        yield from zip(lines[head].split("|"), rows[0].split("|"), strict=False)
    else:
        yield from _columns(lines[head], lines[head + 1], rows[0])


def _of_scontrol(text: str) -> Iterator[tuple[str, str]]:
    """By the lines that hold no text of the job's owner: a job may be called `JobState=COMPLETED`."""
    names = {"JobId": "JobID", "JobState": "State", "StartTime": "Start", "EndTime": "End"}
    for line in text.splitlines():
        pairs = _PAIR.findall(line)
        if pairs and pairs[0][0] in OWN_LINES:
            own = pairs[:1] if pairs[0][0] == "JobId" else pairs
            yield from ((names.get(name, name), value) for name, value in own)


def _columns(names: str, rule: str, row: str) -> Iterator[tuple[str, str]]:
    """A table: the rule of minus signs under the names says how wide each column is."""
    at = 0
    for width in map(len, rule.split(" ")):
        yield names[at : at + width].strip(), row[at : at + width].strip()
        at += width + 1


def _nodes(text: str) -> tuple[str, ...]:
    if text in _NO_NODES:
        return ()
    try:
        return tuple(map(label, expand(text)))
    except NodesetError:
        return ()
