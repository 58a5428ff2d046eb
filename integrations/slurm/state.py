"""What the scripts remember on a node: a few small files in one folder, each written whole or not at all.

Nothing in it is needed: where a file is missing, broken, cannot be written or may be another user's, the next run finds
out anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping

from clusterproof.integrations.slurm.trust import OTHERS_OPEN, distrust, is_roots, opened
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

LOCK = "lock"
KEPT_S = 30 * 24 * 3600.0  # of a job whose epilog never came
UNFINISHED_S = 3600.0
MAX_BYTES = 1024 * 1024
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@record
class State:
    """One folder, used for as long as root alone decides what is in it. Only `write` raises: OSError."""

    folder: str

    def prepare(self) -> str:
        """Make the folder, for root alone; why it is not used, else empty."""
        try:
            for missing in reversed([path for path in parents(self.folder) if not os.path.exists(path)]):
                _make(missing, 0o755)
                os.chmod(missing, 0o755)  # noqa: S103 - whatever the umask is that slurmd gives its scripts
            _make(self.folder, 0o700)
            why = distrust(self.folder)
        except OSError as problem:
            why = f"{self.folder}: {problem.strerror}"
        return f"{why}; nothing is remembered from job to job" if why else ""

    @contextlib.contextmanager
    def locked(self, name: str = LOCK) -> Iterator[None]:
        """One run at a time on this node, or one change of a record; the lock dies with its owner.

        No other user can hold it.
        """
        try:
            lock = self._lock(name)
        except OSError:
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
        try:
            lock = self._lock(name)
        except OSError:
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
        try:
            with os.fdopen(opened(self._file(name), os.O_RDONLY), "rb") as file:
                data = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Replace a record by another; whoever reads meanwhile sees the old one or the new one. Raises OSError."""
        if "/" in name:
            _make(self._own(os.path.dirname(f"{self.folder}/{name}")), 0o700)
        file = self._file(name)
        within, _, own = file.rpartition("/")
        new = f"{within}/.{own}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            with os.fdopen(opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as begun:
                begun.write(json.dumps(record))
            os.replace(new, file)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def forget(self, name: str) -> None:
        """Remove a record."""
        with contextlib.suppress(OSError):
            os.unlink(self._file(name))

    def has(self, folder: str) -> bool:
        """Whether a folder of records is there: where it is not, all that was in it is lost."""
        return os.path.isdir(f"{self.folder}/{folder}")

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the records in a folder of this one."""
        files = (name for name in self._listed(folder) if name.endswith(".json") and not name.startswith("."))
        return tuple(sorted(f"{folder}/{name[: -len('.json')]}" for name in files))

    def remove_old(self) -> None:
        """Remove what jobs without an epilog have left, and what was begun and never finished."""
        jobs = [(f"jobs/{name}", KEPT_S) for name in self._listed("jobs")]
        begun = [name for name in self._listed("") if name.startswith(".") and ".json." in name]
        for name, kept_s in [*jobs, *((name, UNFINISHED_S) for name in begun)]:
            with contextlib.suppress(OSError):
                if time.time() - os.lstat(f"{self.folder}/{name}").st_mtime > kept_s:
                    os.unlink(self._own(f"{self.folder}/{name}"))

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(f"{self.folder}/{folder}")
        except OSError:
            return []

    def _file(self, name: str) -> str:
        """Where a record lies. Raises OSError where others decide what lies there."""
        return self._own(f"{self.folder}/{name}.json")

    def _own(self, file: str) -> str:
        """A file in the folder, or in one of its own. Raises OSError where others decide what lies there."""
        within = os.path.dirname(file)
        if distrust(within) or (within != self.folder and os.path.islink(within)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)
        return file

    def _lock(self, name: str) -> int:
        """A lock's file, which no other user may open: whoever has a file open can lock it. Raises OSError."""
        file = self._own(f"{self.folder}/{name}")
        with contextlib.suppress(FileNotFoundError):
            if not is_roots(data := os.lstat(file)) or data.st_mode & OTHERS_OPEN:
                os.unlink(file)
        return opened(file, os.O_RDWR | os.O_CREAT)


def parents(folder: str) -> list[str]:
    """The folders above one, nearest first."""
    above = [folder]
    while os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    return above[1:]


def _make(folder: str, mode: int) -> None:
    """Make a folder where there is none. Raises OSError where something else is there."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def why_unusable(folder: str) -> str:
    """Why a folder could not hold the state, looked at without making it; empty where it could."""
    there = next(path for path in (folder, *parents(folder)) if os.path.exists(path))
    try:
        data = os.statvfs(there)
        why = distrust(there)
    except OSError as problem:
        return f"{there}: {problem.strerror}"
    if why:
        return why
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to"
    free_kib = data.f_bavail * data.f_frsize // 1024
    is_full = free_kib < MAX_BYTES // 1024 or (data.f_files > 0 and data.f_favail == 0)
    return f"{there} is full: {free_kib} KiB and {data.f_favail} files are free" if is_full else ""


def boot_id() -> str:
    """This boot's id; empty where the kernel does not show it."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Seconds since boot, which setting a clock does not change."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
