"""What the scripts remember on a node: a few small records in a folder, and the essential ones also in /run.

Records of our drains and of how many nodes are drained are in both folders: one survives a reboot, the other a disk
that is full or unwritable, or a folder that is another user's or was removed. A job's records are in /run, because
jobs do not survive a reboot, as is any other record that the folder does not take. What is in neither is found out
again by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping

from clusterproof.integrations.slurm.folder import MAX_BYTES, Folder, parents
from clusterproof.integrations.slurm.roots import distrust
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

RUNTIME_FOLDER = "/run/clusterproof"
LOCK = "lock"
IN_BOTH = ("drain_budget", "drained/")  # prefixes of these records' names
BOOT_RECORDS = "jobs/"


@record
class State:
    """The folder, and the one in /run. Only `write` raises: OSError."""

    folder: str
    runtime_folder: str

    @property
    def _in_run(self) -> Folder:
        return Folder(self.runtime_folder, reserves_space=True)

    @property
    def _folders(self) -> tuple[Folder, ...]:
        """Both; the record in /run is the newer one."""
        return self._in_run, Folder(self.folder)

    def prepare(self) -> str:
        """Create the folders, for root alone; returns why the first is not used, and the consequence, else empty."""
        why_not_in_run, why = (folder.prepare() for folder in self._folders)
        if not why:
            return ""
        if not why_not_in_run:
            return f"{why}; what is remembered is in {self.runtime_folder}, until a reboot"
        return f"{why}; nothing is remembered from job to job"

    @contextlib.contextmanager
    def locked(self, name: str = LOCK) -> Iterator[None]:
        """Ensure one run, or one change of a record, at a time on this node; the lock dies with its owner.

        No other user can hold it.
        """
        lock = self._lock(name)
        if lock is None:
            yield
            return
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def tried(self, name: str) -> Iterator[bool]:
        """Try to take this lock for the block; True if it was free, or if locks are not supported."""
        lock = self._lock(name)
        if lock is None:
            yield True
            return
        try:
            is_ours = True
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_ours = False
            except OSError:
                pass  # a file system without locks
            yield is_ours
        finally:
            os.close(lock)

    def read(self, name: str) -> Mapping[str, Any]:
        """A record; empty if there is no readable one."""
        for folder in self._folders:
            record = folder.read(name)
            if record:
                return record
        return {}

    def write(self, name: str, record: Mapping[str, Any]) -> str:
        """Replace a record; returns why it will not survive a reboot, else empty. Raises OSError."""
        if name.startswith(BOOT_RECORDS):
            with contextlib.suppress(OSError):
                self._in_run.write(name, record)
                return ""
        failed = None
        try:
            Folder(self.folder).write(name, record)
        except OSError as problem:
            failed = problem
        is_in_both = name.startswith(IN_BOTH)
        if not (failed or is_in_both):
            self._in_run.forget(name)
            return ""
        try:
            write = self._in_run.write_in_any_case if is_in_both else self._in_run.write
            write(name, record)
        except OSError:
            if failed:
                raise failed from None
            self._in_run.forget(name)  # no longer the newest
        return failed.strerror or "" if failed else ""

    def newest_folder(self, name: str) -> str:
        """The folder with the newest version of a record."""
        return self.runtime_folder if self._in_run.read(name) else self.folder

    def leave(self, name: str, content: bytes) -> None:
        """Replace a file that is no record, in /run; the old one is removed in any case."""
        self._in_run.remove(name)
        with contextlib.suppress(OSError):
            self._in_run.write_bytes(name, content)

    def forget(self, name: str) -> None:
        """Remove a record."""
        for folder in self._folders:
            folder.forget(name)

    def has(self, name: str) -> bool:
        """Whether a folder of records exists: if not, its contents are lost."""
        return any(folder.has(name) for folder in self._folders)

    def names(self, name: str) -> tuple[str, ...]:
        """The names of the records in a subfolder."""
        return tuple(sorted({record for folder in self._folders for record in folder.names(name)}))

    def remove_old(self) -> None:
        """Remove records of jobs without an epilog, and temporary files."""
        for folder in self._folders:
            folder.remove_old()

    def _lock(self, name: str) -> int | None:
        for folder in self._folders:
            with contextlib.suppress(OSError):
                return folder.lock(name)
        return None


def why_unusable(folder: str) -> str:
    """Why a folder could not hold the state, checked without creating it; empty if it could."""
    there = next(path for path in (folder, *parents(folder)) if os.path.exists(path))
    try:
        file_system = os.statvfs(there)
        why = distrust(there)
    except OSError as problem:
        return f"{there}: {problem.strerror}"
    if why:
        return why
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to"
    free_kib = file_system.f_bavail * file_system.f_frsize // 1024
    is_full = free_kib < MAX_BYTES // 1024 or (file_system.f_files > 0 and file_system.f_favail == 0)
    return f"{there} is full: {free_kib} KiB and {file_system.f_favail} files are free" if is_full else ""
