"""Asks the Slurm of this machine of one job: its record, the nodes that went down, and the output that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from threading import Timer
from typing import TypeAlias

from clusterproof.plugins.case import node_log, scheduler
from clusterproof.plugins.case.folder import Reader
from clusterproof.plugins.case.found import Found
from clusterproof.plugins.case.records import CaseError, Event, label, one_line
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.nodeset import fold

NUMBER = re.compile(r"[1-9]\d{0,11}(?:_\d{1,9}|\+\d{1,6})?", re.ASCII)
LIMIT_S = 30.0  # of a controller that does not answer
MAX_BYTES = 64 << 20  # of an answer: some 400,000 jobs
BY_UTC = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S", "LC_ALL": "C"}  # so that no time is of a zone
COLUMNS = "JobID,State,ExitCode,DerivedExitCode,Start,End,NodeList"
NOT_INSTALLED = 127
NODES = ("sinfo", "-N", "-h", "-o", "%N|%T|%H|%E")
_PLACE = re.compile(r"^\s{0,12}(StdOut|StdErr)=(\S.*)$", re.MULTILINE)
_OWNER = re.compile(r"^\s{0,12}UserId=\S{1,100}\((\d{1,10})\)", re.MULTILINE)
_BEGINS = re.compile(r"^(?:JobId=|JobID\|)", re.MULTILINE)
_DOWN = re.compile(r"down|fail|not_resp|unk", re.IGNORECASE)
_SILENT = re.compile(r"not respon", re.IGNORECASE)

Ask: TypeAlias = Callable[[Sequence[str]], tuple[int, str]]


def ask(words: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command of Slurm's, and what it prints; it is ended where it takes too long."""
    program = shutil.which(words[0])
    if not program:
        return NOT_INSTALLED, f"{words[0]} is not installed here"
    with subprocess.Popen(
        [program, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **BY_UTC},
    ) as running:
        timer = Timer(LIMIT_S, running.kill)
        timer.start()
        try:
            data = running.stdout.read(MAX_BYTES) if running.stdout else b""
            if len(data) == MAX_BYTES:
                running.kill()  # it may print for ever
            running.wait()
        finally:
            timer.cancel()
    return running.returncode, data.decode("utf-8", "replace")


def read_job(number: str, found: Found, offset_s: float, asked: Ask = ask) -> None:
    """Add what Slurm knows of a job. Raises CaseError where it knows none, or the job still runs."""
    clock = Clock(datetime.now(timezone.utc).year)  # Slurm's own times are by UTC, as it was asked for them
    shown, record = asked(("scontrol", "show", "job", number))
    if not shown and not _is_slurms_own(record, number, asked):
        shown, record = 1, scheduler.OF_OWNER
    kept, row = asked(("sacct", "-j", number, "-P", "-o", COLUMNS))
    before = len(found.jobs)
    for text, name in ((row, "sacct"), (record, "scontrol")):
        _taken(text, name, found, clock)
    found.settle(number)
    known = found.jobs[before:]
    if not known:
        raise CaseError(f"Slurm knows no job {number}: scontrol: {_line(record)}; sacct: {_line(row)}")
    runs = next((job.state for job in known if not scheduler.has_ended(job)), "")
    if runs:
        raise CaseError(f"job {number} is {runs}; expected one that has ended")
    if kept:
        found.missing.append(f"sacct: {_line(row)}: only scontrol knows the job, and forgets it after MinJobAge")
    if shown:
        found.missing.append(f"scontrol: {_line(record)}: where its output is, is not known; --logs FOLDER names it")
    nodes = next((job.nodes for job in known if job.nodes), ())
    ended = next((job.ran.ends for job in known if job.ran.ends is not None), None)
    _read_nodes(nodes, found, clock, asked, ended)
    _read_output(record if not shown else "", found, offset_s)
    if nodes and not found.nodes_with_log:
        found.missing.append(node_log.how_to_get_it(nodes, known[0].ran))


def _is_slurms_own(record: str, number: str, asked: Ask) -> bool:
    """Whether no words of the job's owner stand in place of Slurm's: of several jobs squeue says how many there are."""
    jobs = len(scheduler.blocks(record))
    count = asked(("squeue", "-h", "-t", "all", "-j", number, "-o", "%A"))[1] if jobs > 1 else number
    return not scheduler.is_forged(record) and jobs == len(count.split())


def _taken(text: str, name: str, found: Found, clock: Clock) -> None:
    begins = _BEGINS.search(text)  # behind what a command warns of
    records = scheduler.read(text[begins.start() :], name, clock) if begins else ()
    if records:
        found.records.extend(records)
        found.count("record of Slurm")


def _read_nodes(nodes: Sequence[str], found: Found, clock: Clock, asked: Ask, ended: float | None) -> None:
    """Nodes of the job that are down: slurmctld says since when, and why; not of those that went long after it."""
    if not nodes:
        return
    status, text = asked((*NODES, "-n", fold(nodes)))
    if status:
        found.missing.append(f"the state of its nodes: sinfo: {_line(text)}")
        return
    rows: Mapping[str, list[str]] = {row[0]: row for line in text.splitlines() if len(row := line.split("|", 3)) == 4}
    for name, state, since, why in (row for row in rows.values() if label(row[0]) in nodes):
        went = clock.of(since).begins
        is_later = None not in (went, ended) and (went or 0.0) > (ended or 0.0) + limits().before_s
        if is_down(state) and _SILENT.search(why) and not is_later:
            words = one_line(f"{state} since {since}: {why}")
            found.events.append(Event("node_failed", words, "sinfo", clock.of(since), label(name)))


def is_down(state: str) -> bool:
    """Whether a node in this state of sinfo's is no longer there."""
    return bool(_DOWN.search(state))


def _read_output(record: str, found: Found, offset_s: float) -> None:
    """The output that the record of a job names: a file of its owner, in a folder that may be a link."""
    owner = _OWNER.search(record)
    paths = dict.fromkeys(path.strip() for _, path in _PLACE.findall(record))
    for path in map(Path, paths):
        if not path.is_absolute() or str(path) == os.devnull:
            continue
        reader = Reader(path.parent, found, Clock(datetime.now(timezone.utc).year, offset_s))
        text = reader.text(path, int(owner[1]) if owner else None)
        if text is not None:
            reader.take_output(path, text)


def _line(text: str) -> str:
    """The first line of an answer; the names of columns are none."""
    lines = (line.strip() for line in text.splitlines() if line.strip() and not line.startswith("JobID|"))
    return one_line(next(lines, "no answer"), 120)
