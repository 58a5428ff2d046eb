"""Files that are written in folders of others too, kept from others' eyes, and in one whole or not at all.

Whoever may write a folder leaves there what he likes: a link or a further name of another's file, a pipe without end.
What a run writes holds users, processes, mounts and environments of nodes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path

_FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o666  # without the umask's
FOR_OTHERS = 0o077
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a file that may not be larger


def created(path: Path) -> FileIO:
    """A new file, to be written, in the place of what had its name. Raises OSError."""
    path.unlink(missing_ok=True)
    return _binary(os.open(path, _FLAGS | os.O_EXCL | os.O_WRONLY, _MODE), "wb")


def appendable(path: Path) -> FileIO:
    """A regular file of this user's, to be read and written behind its end; a new one where there is none.

    Raises OSError: where it is a link, another user's or has a further name too.
    """
    try:
        file = os.open(path, _FLAGS | os.O_APPEND | os.O_RDWR, _MODE)
    except OSError as problem:
        words = "is a link, which is not followed" if problem.errno == errno.ELOOP else problem.strerror
        raise OSError(problem.errno, words, str(path)) from None
    data = os.fstat(file)
    if stat.S_ISREG(data.st_mode) and data.st_uid in (0, os.geteuid()) and data.st_nlink == 1:
        return _binary(file, "ab+")
    os.close(file)
    raise OSError(errno.EPERM, "is no regular file of this user's with one name", str(path))


def _binary(file: int, mode: str) -> FileIO:
    from io import FileIO

    return FileIO(file, mode)


def append(file: FileIO, size: int, data: bytes) -> None:
    """Write behind the first `size` bytes of a file that is open there. Raises OSError: it has those bytes, then.

    What a pipe has taken it keeps.
    """
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(size)
        raise


def keep_private() -> Callable[[], None]:
    """Let all files and folders that this process makes from now on be its user's own; what is returned ends that.

    A file that others must read is given its mode by name, as the metrics for node_exporter.
    """
    before = os.umask(FOR_OTHERS)
    os.umask(before | FOR_OTHERS)

    def end() -> None:
        os.umask(before)

    return end
