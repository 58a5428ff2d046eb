"""Reads a folder of a job's traces: each file by its format, bounded, following no link out of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

from clusterproof.plugins.captures.text import plain
from clusterproof.plugins.case import (
    CaseError,
    Collected,
    log_dates,
    log_file,
    names,
    nccl_ras,
    node_log,
    one_line,
    own_reports,
    pods,
    runs_of_log,
    scheduler,
    watched,
)
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.ends import HEAD_BYTES, TAIL_BYTES, ends_of, ends_of_packed
from clusterproof.plugins.case.files_below import MAX_FILES, NotRead, files_below
from clusterproof.plugins.case.log_file import WRITABLE_BY_USERS
from clusterproof.plugins.case.output import OutputSource
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.opened import Budget, distrust, opened
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import HEAD, RunFile, head_of
from clusterproof.plugins.training_run.formats.flight_recorder import is_dump, rank_of, read_dump
from clusterproof.plugins.training_run.reading import format_of

MAX_BYTES = 1 << 30  # of all files


def collect(folder: Path, offset_s: float = 0.0) -> Collected:
    """The traces of a job in a folder. Raises CaseError."""
    builder = CaseBuilder()
    read_folder(folder, builder, offset_s)
    return joined(folder.resolve().name, builder)


def read_folder(folder: Path, builder: CaseBuilder, offset_s: float, number: str = "") -> None:
    """Add the traces of the job with this number in a folder, or of its only job. Raises CaseError."""
    files, not_read = files_of(folder)
    read_files(folder, files, builder, offset_s, number)
    for reason in not_read:
        builder.lack(reason)


def files_of(folder: Path, most: int = MAX_FILES) -> tuple[list[Path], list[str]]:
    """The files of a folder, and why others are not read. Raises CaseError for none, or for more than `most`."""
    if not folder.is_dir():
        raise CaseError(
            f"{str(folder)!r:.120} is not a folder; expected the folder of what a job left, or a job's number"
        )
    not_read = NotRead()
    files = list(files_below(folder, not_read, most))
    if not files:
        why = "; ".join(not_read.lines()) or "no file in it"
        raise CaseError(
            one_line(f"{str(folder)!r:.120}: {why}; expected the output of ranks, sacct, kernel logs of nodes", 400)
        )
    return files, list(not_read.lines())


def read_files(
    folder: Path, files: Iterable[Path], builder: CaseBuilder, offset_s: float, number: str, ended: float | None = None
) -> None:
    """Add the traces of the job with this number in files of a folder, or of their only job. Raises CaseError."""
    reader = Reader(folder, builder, clock_of(ended, offset_s))
    if ended is None:
        reader.date(files)
    own = dict.fromkeys(path for path in files if names.is_own(path))
    for *earlier, path in names.in_parts([path for path in files if path not in own]):
        reader.take(path, reader.text(path), earlier)
    if own:
        named = listed(one_line(str(path.relative_to(folder))) for path in own)
        builder.lack(f"other files of clusterproof's reports and recordings: {named}")
    if reader.of_run:
        builder.lack(f"clusterproof --run {quote(str(folder))} evaluates {listed(reader.of_run)}")
    if number:
        builder.drop_other_jobs(number)
    builder.settle(number)


def clock_of(ended: float | None, offset_s: float) -> Clock:
    """The clock of a job that ended then, or before now."""
    now = datetime.now(timezone.utc).timestamp()
    return Clock.until(now, offset_s) if ended is None else Clock.of_moment(ended, offset_s)


class Reader:
    """Reads files below a folder, each by its format; their total size is bounded."""

    def __init__(self, folder: Path, builder: CaseBuilder, clock: Clock) -> None:
        self.folder = folder
        self.builder = builder
        self.clock = clock
        self.budget = Budget(MAX_BYTES)
        self.unpacked = Budget(MAX_BYTES)  # of packed files, apart: one that unpacks to much hides no other
        self.doubt = ""  # who else can change the file that was read last
        self.is_cut = False  # whether its middle was not read
        self.is_broken = False  # or its end is not its own
        self.of_run: list[str] = []  # files about the training, not about its end

    def date(self, files: Iterable[Path]) -> None:
        """Find when the job was, for times that omit their year: by a record, a kernel log, or when a file was written.

        A job's own output does not count: it could move nodes' evidence in or out of the job's time.
        """
        newest, of_records, of_logs = 0.0, list[float](), list[float]()
        for path in files:
            is_log = bool(names.KERNEL_LOG.search(path.name))
            if not is_log and not names.is_named_record(path.name):
                continue
            with suppress(OSError), opened(path, self.folder) as file:
                status = os.fstat(file.fileno())
                newest = max(newest, status.st_mtime)
                file.seek(max(0, status.st_size - HEAD) if is_log else 0)
                text = plain(file.read(HEAD).decode("utf-8", "replace"))
                if not is_log and scheduler.is_record(text):
                    of_records += filter(None, [_moment_of_record(text)])
                elif is_log and not distrust(path, status):
                    of_logs += filter(None, [log_dates.last_moment(text, self.clock.offset_s)])
        if known := of_records[:1] or of_logs:
            self.clock = Clock.of_moment(max(known), self.clock.offset_s)
        elif newest:
            self.clock = Clock.until(newest, self.clock.offset_s)

    def text(self, path: Path, owner: int | None = None) -> str | None:
        """The beginning and the end of a file; None if it is unreadable, no text, or another user's.

        A file named by a record was chosen by the job's owner, who may have picked one that only the caller may read.
        """
        self.is_cut = self.is_broken = False
        try:
            with opened(path, self.folder) as file:
                if owner is not None and os.fstat(file.fileno()).st_uid != owner:
                    raise OSError(errno.EACCES, "is not of the job's owner, and is not read")
                self.doubt = distrust(path, os.fstat(file.fileno()))
                is_packed = names.is_packed_log(path.name)
                ends = ends_of_packed(file, RunFile(path, self.folder, self.unpacked)) if is_packed else ends_of(file)
                self.budget.take(ends.count)
        except OSError as wrong:
            self.builder.lack(f"{one_line(path.name)}: {wrong.strerror or wrong}")
            return None
        if ends.broken:
            self.builder.lack(f"{one_line(path.name)}: {ends.broken}")
        if ends.is_cut and not (watched.node_of(path) or own_reports.is_of(ends.text or "")):  # those are read whole
            kept_parts = f"its first {HEAD_BYTES >> 20} MiB and its last {TAIL_BYTES >> 20} MiB"
            self.builder.lack(f"{self._name(path)}: all between {kept_parts}")
        self.is_cut, self.is_broken = ends.is_cut, bool(ends.broken)
        return ends.text

    def take(self, path: Path, text: str | None, earlier: Sequence[Path] = ()) -> None:
        """Read a file by its format; `earlier` are the parts of a log before it."""
        name = self._name(path)
        if watched.node_of(path):
            self.of_run.append(name)  # its samples
            watched.read(RunFile(path, self.folder), name, self.builder, self.doubt)
        elif earlier:
            self.take_output(path, text, earlier)
        elif text is None:
            self._dump(path, name)
        elif self._evidence(path, name, text):
            return
        elif of_kubernetes := pods.objects(text) if text.lstrip().startswith("{") else []:
            self._objects(of_kubernetes, name)
        elif text.lstrip().startswith("{") and is_dump(text[:HEAD].encode()):
            self._dump(path, name)
        elif nccl_ras.is_in(text):
            nccl_ras.read(text, name, self.builder)
            self.take_output(path, text, is_beside_others=True)
        else:
            self._by_name(path, name, text)

    def _name(self, path: Path) -> str:
        return one_line(str(path.relative_to(self.folder)))

    def _by_name(self, path: Path, name: str, text: str) -> None:
        if names.SHARED_LOG.search(path.name):
            self.builder.lack(f"{name}: {WRITABLE_BY_USERS}")
        elif names.is_named_record(path.name) and scheduler.is_record(text):
            self._record(name, text)
        elif names.is_output(path.name):
            if pods.is_told_by_kubectl(text[:HEAD]):
                self.builder.lack(f"{name}: what kubectl tells people; expected kubectl get pods,jobs,events -o json")
            self.take_output(path, text)
        else:
            self._unknown(path, name)

    def _objects(self, of_kubernetes: list[Mapping[str, Any]], name: str) -> None:
        if len(of_kubernetes) > pods.MAX_ITEMS:
            self.builder.lack(f"{name}: all but its first {pods.MAX_ITEMS:,} objects")
        for resource in of_kubernetes[: pods.MAX_ITEMS]:
            self.builder.take_object(resource, name, self.clock)
        self.builder.count("file of Kubernetes")

    def _unknown(self, path: Path, name: str) -> None:
        """Handle a file of another format: for `--run`, or unknown."""
        known = None
        with suppress(RunError):
            known = format_of(RunFile(path, self.folder))
        if known:
            self.of_run.append(name)
        else:
            self.builder.lack(f"{name}: its form is not known")

    def _record(self, name: str, text: str) -> None:
        records = scheduler.read(text, name, self.clock)
        if not records:
            why = scheduler.OWNER_LINES if scheduler.is_forged(text) else "it has no row of a job"
            self.builder.lack(f"{name}: {why}")
            return
        if len(text) > scheduler.LOOKED_AT:
            self.builder.lack(f"{name}: all behind its first {scheduler.LOOKED_AT:,} characters")
        if scheduler.has_cut_nodes(text):
            self.builder.lack(f"{name}: the nodes of the job, whose list is cut off; sacct -P does not cut it")
        self.builder.take_records(records, text)

    def _evidence(self, path: Path, name: str, text: str) -> bool:
        """Read evidence against a node; returns whether the file is such. Only files no other user can write."""
        is_log = bool(names.KERNEL_LOG.search(path.name))
        if not is_log and not own_reports.is_of(text):
            return False
        if is_log and names.JOBS_OWN.search(path.name) and not node_log.is_log(text):
            return False  # from a job that trains kernels
        if self.doubt:
            self.builder.lack(f"{name}: no evidence against a node, as it {self.doubt}")
        elif is_log:
            log_file.read(path, self.folder, text, self.builder, self.clock, is_cut=self.is_cut or self.is_broken)
        else:
            own_reports.read_file(path, self.folder, text, name, self.builder, self.budget)
        return True

    def take_output(
        self, path: Path, text: str | None, earlier: Sequence[Path] = (), is_beside_others: bool = False
    ) -> None:
        """Read a file of output behind the earlier parts of it; beside others, only if it says anything."""
        name = self._name(path)
        rank = names.rank_of(path.name)
        parts = chain(((part, self.text(part)) for part in earlier), [(path, text)])
        lines = (line for part, content in parts for line in self._lines(part, content))
        read = runs_of_log.read(lines, OutputSource(name, rank, is_of_task="rank" not in path.name.lower()), self.clock)
        if is_beside_others and not read.events and read.last is None:
            return
        self.builder.outputs.append(read)
        if rank is not None and not read.are_torchruns:
            self.builder.ranks.add(rank)
        self.builder.count("file of output")

    def _lines(self, path: Path, text: str | None) -> list[str]:
        if text is None:
            self._unknown(path, self._name(path))
        return (text or "").splitlines()

    def _dump(self, path: Path, name: str) -> None:
        file = RunFile(path, self.folder, self.budget)
        try:
            if not is_dump(head_of(file)):
                self._unknown(path, name)
                return
            for dump in read_dump(file):
                if dump.rank in self.builder.dumps:
                    self.builder.dumps_left_out[dump.rank] = self.builder.files_of_dumps[dump.rank]
                self.builder.dumps[dump.rank] = dump
                self.builder.files_of_dumps[dump.rank] = name
            self.builder.count("dump of the Flight Recorder")
        except RunError as wrong:
            if (rank := rank_of(file)) is not None:
                self.builder.dumps_not_read.add(rank)
            self.builder.lack(one_line(f"{name}: {str(wrong).removeprefix(f'{path}: ')}", 400))


def _moment_of_record(text: str) -> float | None:
    """When a job in a record ended, or began."""
    moments = (job.ran.ends or job.ran.begins for job, _ in scheduler.read(text, "", Clock(0)))
    return next(filter(None, moments), None)
