"""What a collector reads with: files under the host's root, errors as values, and a note of the current read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

MAX_FILE_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024  # at once: /proc/sys refuses 4 MiB
MAX_LINKS = 8
NO_CURSOR = ("", -1, -1.0)  # no position: read all of this boot


class Absent(Exception):  # noqa: N818 - a collector's status rather than an error
    """What the collector reads does not exist on this node; the message names it."""


class Denied(Exception):  # noqa: N818
    """It exists, but this user may not read it; the message names it."""


class Broke(Exception):  # noqa: N818
    """It exists, but returned nothing that can be parsed; the message says why."""


class TimedOut(Exception):  # noqa: N818
    """It exceeded the time that the collector gives it, and was killed; the message names it."""


class Node:
    """The node that a collector reads: paths are resolved under its root; `at` notes what is being read."""

    def __init__(
        self,
        root: str = "/",
        at: Callable[[str], object] = str,  # no note is kept
        collector_s: float = 5.0,
        mount_s: float = 2.0,
        checkpoints: tuple[str, ...] = (),
        log_cursor: tuple[str, int, float] = NO_CURSOR,
        mounts: tuple[str, ...] = (),
        settings: dict[str, str] = {},  # noqa: B006 - only read
        is_hurried: bool = False,
    ) -> None:
        self.root = root.rstrip("/")  # empty: the machine's own root
        self.at = at
        self.collector_s = collector_s
        self.mount_s = mount_s
        self.checkpoints = checkpoints  # folders of the node that its jobs save to
        self.mounts = mounts  # mount points that the policy expects
        self.is_hurried = is_hurried  # a collector that raises TimedOut is started again with more time
        self.settings = settings  # the user's options for collectors that put load on the hardware
        self.log_cursor = log_cursor  # how far the kernel log was read before: boot id, sequence number, seconds

    def so_far(self, values: dict[str, object]) -> None:
        """Keep these values in case the next read never returns; lists are appended to those kept."""

    def each(
        self,
        key: str,
        names: Iterable[Any],
        read: Callable[[Any], object],
        others: dict[str, Any] = {},  # noqa: B006 - only read
    ) -> dict[str, Any]:
        """The `others` and, as a list under `key`, what `read` returns for each item.

        If one never returns, the results of those before it are sent, and only the names of the rest. For a dict, its
        values are read.
        """
        entries: list[object] = []
        failed: Exception | None = None
        rows = [*names.values()] if isinstance(names, dict) else [{"name": name} for name in names]
        self.so_far({**others, key: entries, f"all_{key}": rows})
        for name, row in zip(names, rows):
            try:
                entries.append(read(name))
            except TimedOut:
                raise
            except Exception as problem:  # the others' evidence is not this one's to hide
                failed = failed or problem
                entries.append({**row, "never_read": f"{type(problem).__name__}: {problem}"[:300]})
            self.so_far({key: entries[-1:]})
        if failed:
            failed.value = {**others, key: entries, f"all_{key}": rows}  # type: ignore[attr-defined]
            raise failed
        return {**others, key: entries}

    def path(self, path: str) -> str:
        """The path of a node's file for this process; an absolute link stays under the root."""
        full = self.root + path
        for _ in range(MAX_LINKS if self.root else 0):
            try:
                target = os.readlink(full)
            except OSError:
                break
            full = self.root + target if target[:1] == "/" else os.path.join(os.path.dirname(full), target)
        return full

    def read(self, path: str) -> str:
        """The whole text of a file. Raises OSError: EFBIG if it is larger than MAX_FILE_BYTES."""
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            read = b""
            while len(read) <= MAX_FILE_BYTES:
                more = os.read(descriptor, PIECE_BYTES)
                if not more:
                    break
                read += more
            else:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        finally:
            os.close(descriptor)
        return read.decode("utf-8", "replace")

    def text(self, path: str, absent: str | None = None) -> str | dict[str, str]:
        """The stripped text of a file, or an error object; `absent` if there is no file."""
        try:
            return self.read(path).strip()
        except FileNotFoundError as problem:
            return error(problem) if absent is None else absent
        except OSError as problem:
            return error(problem)

    def names(self, folder: str) -> list[str]:
        """The sorted entries of a folder; empty if there is none. Raises OSError."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except FileNotFoundError:
            return []

    def pids(self) -> list[str]:
        """The processes that /proc shows, in the order of their numbers. Raises OSError."""
        return sorted(filter(str.isdecimal, self.names("/proc")), key=int)

    def linked(self, path: str) -> str:
        """The last component of a link's target, such as a device's driver; empty if there is no link."""
        try:
            return os.path.basename(os.readlink(self.root + path))
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        """Whether a path is there."""
        return os.path.lexists(self.path(path))


def error(problem: OSError) -> dict[str, str]:
    """A read error as a value: the errno's name and message."""
    number = problem.errno or errno.EIO
    return {
        "error": errno.errorcode.get(number, str(number)),
        "text": f"{problem.filename}: {os.strerror(number)}",
    }
