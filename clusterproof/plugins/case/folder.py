"""Reads a folder of what a job left: each file by its form, bounded, and no link out of it followed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from clusterproof.plugins.captures.folder import prefix
from clusterproof.plugins.captures.text import plain
from clusterproof.plugins.case import node_log, output, pods, results, scheduler
from clusterproof.plugins.case.found import Found, joined
from clusterproof.plugins.case.output import Place
from clusterproof.plugins.case.records import CaseError, Collected, label
from clusterproof.plugins.case.stamps import Clock, year_in
from clusterproof.plugins.core.message import listed, printable
from clusterproof.plugins.core.opened import Budget, distrust, opened
from clusterproof.plugins.training_run.files import HEAD, RunFile, head_of
from clusterproof.plugins.training_run.formats.flight_recorder import is_dump, read_dump
from clusterproof.plugins.training_run.records import RunError

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


def collect(folder: Path, offset_s: float = 0.0) -> Collected:
    """What a folder has of a job. Raises CaseError."""
    found = Found()
    read_folder(folder, found, offset_s)
    return joined(folder.resolve().name, found)


def read_folder(folder: Path, found: Found, offset_s: float) -> None:
    """Add what a folder has. Raises CaseError."""
    if not folder.is_dir():
        raise CaseError(f"{str(folder)!r:.120} is no folder; expected the folder of what a job left, or a job's number")
    links: list[str] = []
    files = list(_files(folder, links))
    if not files:
        raise CaseError(f"{folder}: no file in it; expected the output of ranks, sacct, kernel logs of nodes")
    reader = Reader(folder, found, Clock(_year(folder, files), offset_s))
    for path in files:
        reader.take(path, reader.text(path))
    if links:
        found.missing.append(f"links are not followed: {listed(links)}")


class Reader:
    """Reads files below a folder, each by its form; all of them together are bounded."""

    def __init__(self, folder: Path, found: Found, clock: Clock) -> None:
        self.folder = folder
        self.found = found
        self.clock = clock
        self.budget = Budget(MAX_BYTES)
        self.doubt = ""  # who else decides what the file that was read last says

    def text(self, path: Path, owner: int | None = None) -> str | None:
        """The beginning and the end of a file; None where it cannot be read, is no text, or is of another user.

        Where a record names the file, its job's owner chose it: he may have chosen one that only the caller may read.
        """
        try:
            with opened(path, self.folder) as file:
                if owner is not None and os.fstat(file.fileno()).st_uid != owner:
                    raise OSError(errno.EACCES, "is not of the job's owner, and is not read")
                self.doubt = distrust(path, os.fstat(file.fileno()))
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
        elif self._evidence(path, name, text):
            return
        elif of_kubernetes := pods.objects(text) if text.lstrip().startswith("{") else []:
            for one in of_kubernetes:
                self.found.events.extend(pods.read(one, name, self.clock))
                self.found.nodes_of_pods.extend(filter(None, (pods.nodes(one),)))
            self.found.count("file of Kubernetes")
        elif text.lstrip().startswith("{") and is_dump(text[:HEAD].encode()):
            self._dump(path, name)
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
            self.take_output(path, text)
        else:
            self.found.missing.append(f"{name}: its form is not known")

    def _evidence(self, path: Path, name: str, text: str) -> bool:
        """Read what is evidence against a node, and whether the file is such: only of one that no other could write."""
        is_log = bool(_KERNEL_LOG.search(path.name))
        if not is_log and not results.is_of(text):
            return False
        if self.doubt:
            self.found.missing.append(f"{name}: no evidence against a node, as it {self.doubt}")
        elif is_log:
            self._log(path, name, text)
        else:
            self.found.facts.extend(results.read(text, name))
            self.found.count("file of results")
        return True

    def take_output(self, path: Path, text: str) -> None:
        """Read a file of output."""
        name = printable(str(path.relative_to(self.folder)))
        rank = _rank(path.name)
        read = output.read(text.splitlines(), Place(name, rank), self.clock)
        self.found.outputs.append(read)
        if rank is not None:
            self.found.ranks.add(rank)
        self.found.count("file of output")

    def _log(self, path: Path, name: str, text: str) -> None:
        if not node_log.is_log(text):
            self.found.missing.append(f"{name}: no kernel log; expected the output of dmesg or journalctl -k")
            return
        host = node_log.host_of(text)
        node = _node_named(path, self.folder) or host
        if not node:
            self.found.missing.append(f"{name}: nothing says of which node it is; expected NODE-dmesg.txt")
            return
        if host and host in re.split(r"[^A-Za-z0-9-]", name):
            node = host
        if host and host != label(node):
            self.found.missing.append(
                f"{name}: no evidence, as its lines are of {printable(host)}, and its name is not"
            )
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


def _node_named(path: Path, root: Path) -> str:
    """The node that the name of a kernel log has, or that of its folder; empty where neither has one."""
    behind = _BEHIND.search(path.name)
    named = prefix(path.name) or (behind[1] if behind and behind[1].lower() not in ("txt", "log") else "")
    return named or (path.parent.name if path.parent != root else "")


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
