"""Reads a folder of what a job left: each file by its form, bounded, and no link out of it followed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from clusterproof.plugins.captures.folder import prefix
from clusterproof.plugins.captures.text import plain
from clusterproof.plugins.case import node_log, output, pods, results, scheduler
from clusterproof.plugins.case.output import Place
from clusterproof.plugins.case.records import CaseError, Collected, Event, Fact, Job, Lead, Span, label
from clusterproof.plugins.case.stamps import Clock, year_in
from clusterproof.plugins.core.message import listed, number_of, printable
from clusterproof.plugins.core.opened import Budget, opened
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run.files import HEAD, RunFile, head_of
from clusterproof.plugins.training_run.formats.flight_recorder import is_dump, read_dump
from clusterproof.plugins.training_run.records import Dump, RunError
from clusterproof.plugins.training_run.rules.missing_ranks import missing

MAX_FILES = 20_000
MAX_DEPTH = 6  # folders in folders
HEAD_BYTES = 2 << 20  # of each file: how the job began
TAIL_BYTES = 6 << 20  # and how it ended
MAX_BYTES = 1 << 30  # of all files
LEFT_OUT = "[... left out ...]"

_KERNEL_LOG = re.compile(r"(?:^|[._-])(?:dmesg|kern|kernel|kmsg|journal(?:ctl)?)(?=[._-]|$)", re.IGNORECASE)
_SHARED_LOG = re.compile(r"(?:^|[._-])(?:messages|syslog)(?=[._-]|$)", re.IGNORECASE)
_SCHEDULER = re.compile(r"sacct|scontrol|job", re.IGNORECASE)
_OUTPUT = re.compile(r"\.(?:out|err|log|txt|stdout|stderr)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?:rank|task|proc)[_.-]?(\d{1,7})(?=[._-]|$)|^log\.(\d{1,7})$|^(\d{1,6})\.(?:out|err|log)$")
_SLURM_RANK = re.compile(r"\d{1,12}_(\d{1,7})_log\.(?:out|err)$")
_BEHIND = re.compile(r"(?:dmesg|kern|kernel|kmsg|journal(?:ctl)?)[._-]([A-Za-z0-9][A-Za-z0-9-]{0,200})")


@record
class Found:
    """What the files have so far."""

    jobs: list[Job] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    outputs: list[output.Output] = field(default_factory=list)
    dumps: dict[int, Dump] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)  # that have output of their own
    nodes_with_log: list[str] = field(default_factory=list)
    nodes_of_pods: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        """One more file of this form."""
        self.counts[what] = self.counts.get(what, 0) + 1


def collect(folder: Path, offset_s: float = 0.0) -> Collected:
    """What a folder has of a job. Raises CaseError."""
    if not folder.is_dir():
        raise CaseError(f"{str(folder)!r:.120} is no folder; expected the folder of what a job left, or a job's number")
    links: list[str] = []
    files = list(_files(folder, links))
    if not files:
        raise CaseError(f"{folder}: no file in it; expected the output of ranks, sacct, kernel logs of nodes")
    reader = _Reader(folder, Budget(MAX_BYTES), offset_s)
    reader.clock = Clock(_year(folder, files), offset_s)
    for path in files:
        reader.take(path, reader.text(path))
    if links:
        reader.found.missing.append(f"links are not followed: {listed(links)}")
    return joined(folder.resolve().name, reader.found)


def joined(name: str, found: Found) -> Collected:
    """All that was found, as one."""
    job = _one(found.jobs)
    nodes = job.nodes or tuple(dict.fromkeys(found.nodes_of_pods))
    job = Job(job.number, job.state, job.exit_code, nodes, job.ran)
    strangers = {fact.node for fact in found.facts if nodes and fact.node not in nodes}
    if strangers:
        found.missing.append(f"evidence of nodes on which this job did not run is left out: {listed(strangers)}")
    of_ranks: dict[int, str] = {}
    for each in found.outputs:
        of_ranks |= each.nodes_of_ranks
    events = [
        event
        if event.node or event.rank is None
        else Event(
            event.sign, event.words, event.source, event.when, of_ranks.get(event.rank, ""), event.rank, event.count,
            event.waited_s,
        )
        for event in (*found.events, *(event for each in found.outputs for event in each.events))
    ]  # fmt: skip
    last = [each.last for each in found.outputs if each.last is not None]
    progress = [each.progress for each in found.outputs if each.progress is not None]
    return Collected(
        name,
        job,
        tuple(events),
        tuple(fact for fact in found.facts if fact.node not in strangers),
        tuple(_leads(found, of_ranks)),
        of_ranks,
        tuple(dict.fromkeys(found.nodes_with_log)),
        max(progress, default=None),
        max(last, default=None),
        tuple(number_of(count, what, _many(what)) for what, count in found.counts.items()),
        (*found.missing, *_not_there(found, nodes)),
    )


class _Reader:
    def __init__(self, folder: Path, budget: Budget, offset_s: float) -> None:
        self.folder = folder
        self.budget = budget
        self.clock = Clock(1970, offset_s)
        self.found = Found()

    def text(self, path: Path) -> str | None:
        """The beginning and the end of a file; None where it cannot be read, or is no text."""
        try:
            with opened(path, self.folder) as file:
                size = os.fstat(file.fileno()).st_size
                data = file.read(HEAD_BYTES)
                if b"\0" in data[:HEAD] or data[:1] == b"\x80":
                    return None
                if size > HEAD_BYTES:
                    file.seek(max(HEAD_BYTES, size - TAIL_BYTES))
                    between = b"" if size <= HEAD_BYTES + TAIL_BYTES else f"\n{LEFT_OUT}\n".encode()
                    data += between + file.read(TAIL_BYTES)
            self.budget.take(len(data))
        except OSError as wrong:
            self.found.missing.append(f"{printable(path.name)}: {wrong.strerror or wrong}")
            return None
        return plain(data.decode("utf-8", "replace"))

    def take(self, path: Path, text: str | None) -> None:
        """Read a file by its form."""
        name = printable(str(path.relative_to(self.folder)))
        if text is None:
            self._dump(path, name)
        elif results.is_of(text):
            self.found.facts.extend(results.read(text, name))
            self.found.count("file of results")
        elif of_kubernetes := pods.objects(text) if text.lstrip().startswith("{") else []:
            for one in of_kubernetes:
                self.found.events.extend(pods.read(one, name, self.clock))
                self.found.nodes_of_pods.extend(filter(None, (pods.nodes(one),)))
            self.found.count("file of Kubernetes")
        elif text.lstrip().startswith("{") and is_dump(text[:HEAD].encode()):
            self._dump(path, name)
        elif _KERNEL_LOG.search(path.name):
            self._log(path, name, text)
        elif _SHARED_LOG.search(path.name):
            self.found.missing.append(
                f"{name}: no evidence, as any user can write lines like the kernel's there; expected dmesg or "
                "journalctl -k"
            )
        elif _SCHEDULER.search(path.name) and scheduler.is_of_job(text):
            job, events = scheduler.read(text, name, self.clock)
            self.found.jobs.append(job)
            self.found.events.extend(events)
            self.found.count("record of Slurm")
        elif _OUTPUT.search(path.name) or "." not in path.name or _RANK.search(path.name):
            self._output(path, name, text)
        else:
            self.found.missing.append(f"{name}: its form is not known")

    def _output(self, path: Path, name: str, text: str) -> None:
        rank = _rank(path.name)
        node = prefix(path.name) if rank is None and not path.name.startswith(("slurm", "job", "train")) else ""
        read = output.read(text.splitlines(), Place(name, rank, label(node)), self.clock)
        self.found.outputs.append(read)
        if rank is not None:
            self.found.ranks.add(rank)
        self.found.count("file of output")

    def _log(self, path: Path, name: str, text: str) -> None:
        if not node_log.is_log(text):
            self.found.missing.append(f"{name}: no kernel log; expected the output of dmesg or journalctl -k")
            return
        behind = _BEHIND.search(path.name)
        parent = path.parent.name if path.parent != self.folder else ""
        node = prefix(path.name) or (behind[1] if behind else "") or node_log.host_of(text) or parent
        if not node or node.lower() in ("txt", "log"):
            node = node_log.host_of(text) or parent
        if not node:
            self.found.missing.append(f"{name}: nothing says of which node it is; expected NODE-dmesg.txt")
            return
        self.found.nodes_with_log.append(label(node))
        self.found.facts.extend(node_log.read(text, label(node), name, self.clock))
        self.found.count("kernel log")

    def _dump(self, path: Path, name: str) -> None:
        file = RunFile(path, self.folder, self.budget)
        try:
            if not is_dump(head_of(file)):
                raise RunError("its form is not known")
            for dump in read_dump(file):
                self.found.dumps[dump.rank] = dump
            self.found.count("dump of the Flight Recorder")
        except RunError as wrong:
            self.found.missing.append(printable(f"{name}: {str(wrong).removeprefix(f'{path}: ')}"))


def _leads(found: Found, nodes: Mapping[int, str]) -> Iterator[Lead]:
    """Ranks that differ: those that dumps say are waited for, that a desync names, that alone say nothing."""
    if found.dumps:
        for rank in missing(found.dumps).ranks:
            yield Lead(rank, "the dumps of the Flight Recorder say that others wait for it", nodes.get(rank, ""))
    for each in found.outputs:
        for rank, words in each.lagging.items():
            yield Lead(rank, words, nodes.get(rank, ""))
    waited = {rank for each in found.outputs for rank in each.timed_out}
    silent = found.ranks - waited
    if waited and silent and len(silent) * 2 < len(found.ranks):
        for rank in sorted(silent):
            yield Lead(rank, "it alone does not say that it waited for others", nodes.get(rank, ""))


def _one(jobs: Iterable[Job]) -> Job:
    """What several records say of one job."""
    whole = Job()
    for job in jobs:
        whole = Job(
            whole.number or job.number,
            whole.state or job.state,
            whole.exit_code or job.exit_code,
            whole.nodes or job.nodes,
            Span(whole.ran.begins or job.ran.begins, whole.ran.ends or job.ran.ends),
        )
    return whole


def _not_there(found: Found, nodes: Iterable[str]) -> Iterator[str]:
    """What a case asks for, and nobody left."""
    without = [node for node in nodes if node not in found.nodes_with_log]
    if not found.nodes_with_log:
        yield "no kernel log of any node: without it no hardware is blamed (journalctl -k -o short-iso-precise)"
    elif without:
        yield f"no kernel log of {listed(without)}"
    if not found.jobs and not any(source.row.read_in == ("kubernetes",) for source in found.events):
        yield "no record of the job by its scheduler (sacct, scontrol show job, kubectl get pods -o json)"
    if not found.outputs:
        yield "no output of the job"


def _many(what: str) -> str:
    """`files of output`."""
    word, _, rest = what.partition(" of ")
    return f"{word}s of {rest}" if rest else ""


def _rank(name: str) -> int | None:
    found = _RANK.search(name) or _SLURM_RANK.search(name)
    return int(next(filter(None, found.groups()))) if found else None


def _year(folder: Path, files: Iterable[Path]) -> int:
    """The year that lines without one are of: that of a line which has it, else when a file was last written."""
    newest = 0.0
    for path in files:
        with suppress(OSError), opened(path, folder) as file:
            newest = max(newest, os.fstat(file.fileno()).st_mtime)
            year = year_in(plain(file.read(HEAD).decode("utf-8", "replace")))
            if year:
                return year
    return datetime.fromtimestamp(newest, timezone.utc).year


def _files(folder: Path, links: list[str]) -> Iterator[Path]:
    """The files under a folder, by their names. Raises CaseError."""
    count = 0
    for where, folders, names in os.walk(folder):
        here = Path(where)
        if len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        folders.sort()
        links += [printable(name) for name in folders if (here / name).is_symlink()]
        for name in sorted(one for one in names if not one.startswith(".")):
            count += 1
            if count > MAX_FILES:
                raise CaseError(f"{folder}: more than {MAX_FILES:,} files; expected the folder of one job")
            if (here / name).is_symlink():
                links.append(printable(name))
            elif (here / name).is_file():
                yield here / name
