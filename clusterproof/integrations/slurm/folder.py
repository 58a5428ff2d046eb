"""A folder of small records, written atomically, used only while root alone controls it.

Times are a boot id and seconds since that boot, independent of clock changes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Mapping

from clusterproof.integrations.slurm.roots import OTHERS_WRITE, distrust, is_roots, opened
from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """This boot's id; empty if the kernel does not show it."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Seconds since boot, unaffected by setting the clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_of(boot: object, at: object) -> float | None:
    """How many seconds ago that time of a boot was; None if in another boot, or invalid."""
    if boot != boot_id() or isinstance(at, bool) or not isinstance(at, (int, float)):
        return None
    age_s = since_boot_s() - at
    return age_s if age_s >= 0 else None


TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

OTHERS_OPEN = OTHERS_WRITE | stat.S_IRGRP | stat.S_IROTH

UNFINISHED = Pattern(r"\.(?!spare\.)[^/]+\.(\d+)")  # a temporary file of the process with that number
MAX_JOBS = 1000  # without an epilog yet
KEPT_S = 30 * 24 * 3600.0  # for a job without an epilog
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MAX_BYTES = 1024 * 1024
SPARES = 4
SPARE_BYTES = 16384  # a drain with a dozen findings
FOLDERS = ("drained", "jobs")


@record
class Folder:
    """One folder. Only `write` and `lock` raise: OSError. With `reserves_space` it has spare files for a full disk."""

    path: str
    reserves_space: bool = False

    def prepare(self) -> str:
        """Create the folder, for root alone; returns why it cannot be used, else empty."""
        try:
            for missing in reversed([path for path in parents(self.path) if not os.path.exists(path)]):
                _make(missing, 0o755)
                os.chmod(missing, 0o755)  # noqa: S103 - whatever the umask is that slurmd gives its scripts
            _make(self.path, 0o700)
            why = distrust(self.path)
        except OSError as problem:
            return f"{self.path}: {problem.strerror}"
        if self.reserves_space and not why:
            self._reserve_space()
        return why

    def lock(self, name: str) -> int:
        """A lock file, which no other user may open, because whoever opens it can lock it. Raises OSError."""
        file = self._own(f"{self.path}/{name}")
        with contextlib.suppress(FileNotFoundError):
            if not is_roots(status := os.lstat(file)) or status.st_mode & OTHERS_OPEN:
                os.unlink(file)
        return opened(file, os.O_RDWR | os.O_CREAT)

    def read(self, name: str) -> Mapping[str, Any]:
        """A record; empty if there is no readable one."""
        try:
            with os.fdopen(opened(self._file(name), os.O_RDONLY), "rb") as file:
                record = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Replace a record. Raises OSError."""
        if "/" in name:
            _make(self._own(os.path.dirname(f"{self.path}/{name}")), 0o700)
        self.write_bytes(f"{name}.json", json.dumps(record).encode())

    def write_in_any_case(self, name: str, record: Mapping[str, Any]) -> None:
        """The same, using reserved space if the disk is full. Raises OSError."""
        try:
            self.write(name, record)
        except OSError as problem:
            if problem.errno not in FULL or not self._write_in_reserved(self._file(name), json.dumps(record).encode()):
                raise

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file atomically. Raises OSError."""
        file = self._own(f"{self.path}/{name}")
        within, _, own = file.rpartition("/")
        new = f"{within}/.{own}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            with os.fdopen(opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as begun:
                begun.write(content)
            os.replace(new, file)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def _reserve_space(self) -> None:
        """Create what a full disk would not allow: the folders, and spare files as large as a record."""
        with contextlib.suppress(OSError):
            for name in FOLDERS:
                _make(f"{self.path}/{name}", 0o700)
            for spare in self._spares():
                if not os.path.exists(spare):
                    with os.fdopen(opened(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                        file.write(b" " * SPARE_BYTES)

    def _write_in_reserved(self, file: str, content: bytes) -> bool:
        """Write into a spare file, which becomes the record; whether there was one."""
        for spare in self._spares() if len(content) <= SPARE_BYTES else ():
            with contextlib.suppress(OSError), os.fdopen(opened(spare, os.O_WRONLY), "wb") as kept:
                kept.write(content.ljust(SPARE_BYTES))
                kept.flush()
                os.replace(spare, file)
                self._reserve_space()  # reuses the replaced record
                return True
        return False

    def _spares(self) -> tuple[str, ...]:
        return tuple(f"{self.path}/.spare.{number}" for number in range(SPARES)) if self.reserves_space else ()

    def forget(self, name: str) -> None:
        """Remove a record."""
        self.remove(f"{name}.json")

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(OSError):
            os.unlink(self._own(f"{self.path}/{name}"))

    def has(self, folder: str) -> bool:
        """Whether a folder of records exists: if not, its contents are lost."""
        return os.path.isdir(f"{self.path}/{folder}")

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the records in a subfolder."""
        files = (name for name in self._listed(folder) if name.endswith(".json") and not name.startswith("."))
        return tuple(sorted(f"{folder}/{name[: -len('.json')]}" for name in files))

    def remove_old(self) -> None:
        """Remove records of jobs without an epilog, and temporary files of dead processes."""
        jobs = sorted(self.names("jobs"), key=lambda name: (len(name), name))  # in numerical order
        for number, name in enumerate(reversed(jobs)):
            with contextlib.suppress(OSError):
                looks_old = time.time() - os.lstat(f"{self.path}/{name}.json").st_mtime > KEPT_S
                if number >= MAX_JOBS or (looks_old and self._is_old(name)):
                    self.forget(name)
        for name in self._listed(""):
            begun = UNFINISHED.fullmatch(name)
            if begun and not os.path.exists(f"/proc/{begun[1]}"):
                with contextlib.suppress(OSError):
                    os.unlink(self._own(f"{self.path}/{name}"))

    def _is_old(self, name: str) -> bool:
        """Whether a record is of another boot, or that old, regardless of clock changes."""
        record = self.read(name)
        age_s = age_of(record.get("boot_id"), record.get("at"))
        return age_s is None or age_s > KEPT_S

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(f"{self.path}/{folder}")
        except OSError:
            return []

    def _file(self, name: str) -> str:
        """The path of a record. Raises OSError if others control it."""
        return self._own(f"{self.path}/{name}.json")

    def _own(self, file: str) -> str:
        """A path in the folder or a subfolder. Raises OSError if others control it."""
        within = os.path.dirname(file)
        if distrust(within) or (within != self.path and os.path.islink(within)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)
        return file


def parents(folder: str) -> list[str]:
    """The parent folders, nearest first."""
    above = [folder]
    while os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    return above[1:]


def _make(folder: str, mode: int) -> None:
    """Create a folder if missing. Raises OSError if it is something else."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
