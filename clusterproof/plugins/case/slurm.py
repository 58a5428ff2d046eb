"""Asks this machine's Slurm about one job: its record, its nodes and its output."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

from clusterproof.plugins.case import CaseError, Event, MissingKind, Span, label, node_log, one_line, scheduler
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.folder import Reader, clock_of
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.nodeset import fold

NUMBER = re.compile(r"[1-9]\d{0,11}(?:_\d{1,9}|\+\d{1,6})?", re.ASCII)
LIMIT_S = 30.0  # for a controller that does not answer
MAX_BYTES = 64 << 20  # of an answer: about 400,000 jobs
UTC_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S", "LC_ALL": "C"}  # all times are UTC
COLUMNS = "JobID,State,ExitCode,DerivedExitCode,Start,End,NodeList"
NOT_INSTALLED = 127
NODES = ("sinfo", "-N", "-h", "-o", "%N|%T|%H|%E")
_PLACE = re.compile(r"^\s{0,12}(StdOut|StdErr)=(\S.*)$", re.MULTILINE)
_OWNER = re.compile(r"^\s{0,12}UserId=[^\n]{1,256}?\((\d{1,10})\)(?= GroupId=|\s*$)", re.MULTILINE)
_BEGINS = re.compile(r"^(?:JobId=|JobID\|)", re.MULTILINE)
_DOWN = re.compile(r"down|fail|not_resp|unk", re.IGNORECASE)
_OUT = re.compile(rf"{_DOWN.pattern}|drain|inval", re.IGNORECASE)
_SILENT = re.compile(r"not respon|unexpectedly rebooted", re.IGNORECASE)
_MARKED = re.compile(r"gres/\S{1,40} count (?:reported lower|too low)|Action:(?:Reboot|Replace)$", re.IGNORECASE)
PROLOG_FAILED = "prolog_failed"  # a sign

Ask: TypeAlias = Callable[[Sequence[str]], tuple[int, str]]


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """The exit code and output of a Slurm command; it is killed if it takes too long."""
    program = shutil.which(argv[0])
    if not program:
        return NOT_INSTALLED, f"{argv[0]} is not installed here"
    with subprocess.Popen(
        [program, *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={key: value for key, value in os.environ.items() if not key.startswith("SINFO_")} | UTC_ENVIRONMENT,
    ) as running:
        until, output, stdout = time.monotonic() + LIMIT_S, bytearray(), running.stdout
        while stdout and select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            output += (piece := os.read(stdout.fileno(), 1 << 16))
            if not piece or len(output) >= MAX_BYTES:  # else it may be endless
                break
        try:
            running.wait(max(0.0, until - time.monotonic()) if len(output) < MAX_BYTES else 0.0)
        except subprocess.TimeoutExpired:
            running.kill()  # what a wrapper has started may hold the output open: its end is not waited for
    return running.returncode, output.decode("utf-8", "replace")


def read_job(number: str, builder: CaseBuilder, offset_s: float, query: Ask = run_command) -> None:
    """Add what Slurm knows about a job. Raises CaseError if it knows none, or the job still runs."""
    clock = Clock(datetime.now(timezone.utc).year)  # Slurm's own times are UTC, as requested
    shown, record = query(("scontrol", "show", "job", number))
    if not shown and not _is_slurms_own(record, number, query):
        shown, record = 1, scheduler.OWNER_LINES
    kept, row = query(("sacct", "-j", number, "-P", "-o", COLUMNS))
    before = len(builder.jobs)
    for text, name in ((row, "sacct"), (record, "scontrol")):
        _taken(text, name, builder, clock)
    builder.settle(number)
    known = builder.jobs[before:]
    if not known:
        is_unknown = (shown and "invalid job id" in record.lower()) or (not kept and not _rows(row))
        answers = f"scontrol: {_line(record)}; sacct: {_line(row)}"
        if is_unknown:
            raise CaseError(f"Slurm knows no job {number}: {answers}")
        raise CaseError(f"Slurm could not be asked for job {number}: {answers}")
    runs = next((job.state for job in known if not scheduler.has_ended(job)), "")
    if runs:
        raise CaseError(f"job {number} is {runs}; expected one that has ended")
    if kept:
        why = f"sacct: {_line(row)}: only scontrol knows the job, and forgets it after MinJobAge"
        builder.lack(one_line(why, 400), MissingKind.ACCOUNTING)
    if shown:
        builder.lack(f"scontrol: {_line(record)}: where its output is, is not known; --logs FOLDER names it")
    nodes = next((job.nodes for job in known if job.nodes), ())
    ended = next((job.ran.ends for job in known if job.ran.ends is not None), None)
    _read_nodes(nodes, builder, clock, query, ended)
    _read_output(record if not shown else "", builder, offset_s, ended)
    if nodes and not builder.nodes_with_log:
        builder.lack(one_line(node_log.how_to_get_it(nodes, known[0].ran), 400), MissingKind.COMMAND)


def _is_slurms_own(record: str, number: str, query: Ask) -> bool:
    """Whether the owner's text does not imitate Slurm's: squeue says how many jobs there are."""
    jobs = len(scheduler.blocks(record))
    count = query(("squeue", "-h", "-t", "all", "-j", number, "-o", "%A"))[1] if jobs > 1 else number
    return not scheduler.is_forged(record) and jobs == len(count.split())


def _taken(text: str, name: str, builder: CaseBuilder, clock: Clock) -> None:
    begins = _BEGINS.search(text)  # after a command's warnings
    records = scheduler.read(text[begins.start() :], name, clock) if begins else ()
    if records:
        builder.take_records(records, text)


def _read_nodes(nodes: Sequence[str], builder: CaseBuilder, clock: Clock, query: Ask, ended: float | None) -> None:
    """Nodes that the job lost: slurmctld says since when, and why; not nodes lost at another time."""
    if not nodes:
        return
    status, text = query((*NODES, "-n", fold(nodes)))
    if status:
        builder.lack(f"the state of its nodes: sinfo: {_line(text)}")
        return
    rows: Mapping[str, list[str]] = {row[0]: row for line in text.splitlines() if len(row := line.split("|", 3)) == 4}
    for name, state, since, why in (row for row in rows.values() if label(row[0]) in nodes):
        went = clock.of(since)
        sign = _lost_by(state, why)
        if sign and not _is_of_another_time(sign, went.begins, ended):
            state_in_words = one_line(f"{state} since {since}: {why}")
            when = Span(ends=went.ends) if sign == PROLOG_FAILED else went  # then Slurm cancels its job
            builder.events.append(Event(sign, state_in_words, "sinfo", when, label(name)))


def _lost_by(state: str, why: str) -> str:
    """The sign for Slurm's own reason, or HyperPod's; empty if a node is up, or a person drained it."""
    if "drain" in state and why.lower().startswith("prolog error"):  # since 24.11 a resumed node keeps its reason
        return PROLOG_FAILED
    if is_out(state) and _MARKED.match(why):
        return "node_marked"
    return "node_failed" if _DOWN.search(state) and _SILENT.search(why) else ""


def _is_of_another_time(sign: str, went: float | None, ended: float | None) -> bool:
    """Whether a node was lost long after the job's end, or a prolog failed at another time than that end."""
    if went is None or ended is None:
        return False
    return abs(went - ended) > limits().lag_s if sign == PROLOG_FAILED else went - ended > limits().before_s


def is_out(state: str) -> bool:
    """Whether this state in sinfo means that a node is gone, or gets no jobs."""
    return bool(_OUT.search(state))


def _read_output(record: str, builder: CaseBuilder, offset_s: float, ended: float | None) -> None:
    """The output named in a job's record: its owner's file, in a folder that may be a link."""
    owner = _OWNER.search(record)
    paths = dict.fromkeys(path.strip() for _, path in _PLACE.findall(record))
    for path in map(Path, paths):
        if not path.is_absolute() or str(path) == os.devnull:
            continue
        if not owner:
            builder.lack(f"{one_line(path.name)}: the record does not say whose file it is, and it is not read")
            continue
        reader = Reader(path.parent, builder, clock_of(ended, offset_s))
        lacking = len(builder.lacks)
        text = reader.text(path, int(owner[1]))
        if text is not None:
            reader.take_output(path, text)
        elif len(builder.lacks) == lacking:
            builder.lack(f"{one_line(path.name)}: it is no text, and is not read")


def _line(text: str) -> str:
    """The first line of an answer, except column names."""
    return one_line(next(iter(_rows(text)), "no answer"), 120)


def _rows(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("JobID|")]
