"""What the scripts keep on a node: small records in a folder, and in /run those that must survive a full disk.

A record of how many nodes are drained, and each of a drain of ours, is in both folders: it outlives a reboot in the
one, and in the other a disk that is full, unwritable or another user's, or somebody who removes the folder. What is
kept of a job is in /run, as it outlives no boot, and any other record where the folder does not take it. What is in
neither the next run finds out anew.
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
IN_BOTH = ("drain_budget", "drained/")  # how the names of these records begin
OF_A_BOOT = "jobs/"


@record
class State:
    """The folder, and its newer copy in /run, if any. Only `write` raises: OSError."""

    folder: str
    runtime_folder: str = ""

    @property
    def _in_run(self) -> Folder | None:
        return Folder(self.runtime_folder, keeps_room=True) if self.runtime_folder else None

    @property
    def _folders(self) -> tuple[Folder, ...]:
        """Both; what is in the one in /run is the newest."""
        return tuple(filter(None, (self._in_run, Folder(self.folder))))

    def prepare(self) -> str:
        """Make the folders, for root alone; why the first is not used, and what that means, else empty."""
        *in_run, why = [folder.prepare() for folder in self._folders]
        if not why:
            return ""
        if in_run == [""]:
            return f"{why}; what is remembered is in {self.runtime_folder}, until a reboot"
        return f"{why}; nothing is remembered from job to job"

    @contextlib.contextmanager
    def locked(self, name: str = LOCK) -> Iterator[None]:
        """One run at a time on this node, or one change of a record; the lock dies with its owner.

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
        """Whether nobody else has this lock, which is held meanwhile; True where there are no locks."""
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
        """A record; an empty one where there is none that can be read."""
        for folder in self._folders:
            record = folder.read(name)
            if record:
                return record
        return {}

    def write(self, name: str, record: Mapping[str, Any]) -> str:
        """Replace a record by another; why it will not outlive a reboot, else empty. Raises OSError."""
        in_run = self._in_run
        if in_run and name.startswith(OF_A_BOOT):
            with contextlib.suppress(OSError):
                in_run.write(name, record)
                return ""
        failed = None
        try:
            Folder(self.folder).write(name, record)
        except OSError as problem:
            failed = problem
        if in_run and (failed or name.startswith(IN_BOTH)):
            try:
                write = in_run.write_in_any_case if name.startswith(IN_BOTH) else in_run.write
                write(name, record)
            except OSError:
                if failed:
                    raise failed from None
                in_run.forget(name)  # which is no longer the newest
        elif in_run:
            in_run.forget(name)
        elif failed:
            raise failed
        return failed.strerror or "" if failed else ""

    def place_of(self, name: str) -> str:
        """The folder that has the newest of a record."""
        in_run = self._in_run
        return self.runtime_folder if in_run and in_run.read(name) else self.folder

    def leave(self, name: str, content: bytes) -> None:
        """Replace a file that is no record, in /run; the old one is gone in any case."""
        in_run = self._in_run
        if in_run:
            in_run.remove(name)
            with contextlib.suppress(OSError):
                in_run.write_bytes(name, content)

    def forget(self, name: str) -> None:
        """Remove a record."""
        for folder in self._folders:
            folder.forget(name)

    def has(self, name: str) -> bool:
        """Whether a folder of records is there: where it is not, all that was in it is lost."""
        return any(folder.has(name) for folder in self._folders)

    def names(self, name: str) -> tuple[str, ...]:
        """The names of the records in a folder of this one."""
        return tuple(sorted({record for folder in self._folders for record in folder.names(name)}))

    def remove_old(self) -> None:
        """Remove what jobs without an epilog have left, and what was begun and never finished."""
        for folder in self._folders:
            folder.remove_old()

    def _lock(self, name: str) -> int | None:
        for folder in self._folders:
            with contextlib.suppress(OSError):
                return folder.lock(name)
        return None


def why_unusable(folder: str) -> str:
    """Why a folder could not hold the state, looked at without making it; empty where it could."""
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
