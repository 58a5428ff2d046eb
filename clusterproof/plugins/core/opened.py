"""Opens files safely: those that others may have written, and those that others may not read.

What the command line names may be a link; beneath a folder that it names, none is followed. Whoever may write a folder
leaves there what he likes: a link or a further name of another's file, a pipe without end. What a run writes holds
users, processes, mounts and environments of nodes.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO
    from os import PathLike
    from pathlib import Path
    from typing import BinaryIO

IS_LINK = "is a link, which is not followed"
IS_NO_FILE = "is not a regular file"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that has just become it is not waited for


class NotOwnError(OSError):
    """A file that others than the caller and root can change; `strerror` says who."""


class Budget:
    """The number of bytes that may be read of all files of a folder together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.left_bytes = most_bytes

    def take(self, count: int) -> None:
        """Count bytes that were read. Raises OSError where they are too many."""
        self.left_bytes -= count
        if self.left_bytes < 0:
            raise OSError(errno.EFBIG, f"with it more than {self.most_bytes:,} bytes were read in all")


def opened(path: str | PathLike[str], below: str | PathLike[str] | None = None) -> BinaryIO:
    """A regular file, to be read. Raises OSError.

    Where it lies `below` a folder, none of the names from there on may be a link.
    """
    if below is None:
        return _regular(os.fspath(path), None)
    *folders, name = os.path.relpath(path, below).split(os.sep)
    if ".." in (*folders, name):
        raise OSError(errno.EXDEV, f"is not in {os.fspath(below)}", os.fspath(path))
    folder_fd = os.open(below, _FLAGS | os.O_DIRECTORY)
    try:
        for folder in folders:
            _refuse_link(folder, folder_fd)
            folder_fd, above = os.open(folder, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd), folder_fd
            os.close(above)
        return _regular(name, folder_fd)
    finally:
        os.close(folder_fd)


def read_whole(
    path: str | PathLike[str], most_bytes: int, below: str | PathLike[str] | None = None, *, is_own: bool = False
) -> bytes:
    """All of a regular file that has no more bytes than these.

    Raises OSError; NotOwnError where it is to be one's own, and is not.
    """
    with opened(path, below) as file:
        doubt = distrust(path, os.fstat(file.fileno())) if is_own else ""
        if doubt:
            raise NotOwnError(errno.EACCES, doubt, os.fspath(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"has more than {most_bytes:,} bytes", os.fspath(path))
    return content


def is_there(path: str | PathLike[str]) -> bool:
    """Whether something is there that the caller may look at; pathlib's own raises where he may not, before 3.14."""
    return os.path.exists(path)


def is_file(path: str | PathLike[str]) -> bool:
    """Whether a file is there that the caller may look at."""
    return os.path.isfile(path)


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether a folder is there that the caller may look at."""
    return os.path.isdir(path)


def distrust(path: str | PathLike[str], status: os.stat_result | None = None) -> str:
    """Who else decides what a file says or a folder has, in words; empty where only the caller and root can.

    A group that is the caller's alone counts as the caller. `status` is of what was opened. Raises OSError.
    """
    status = status or os.stat(path)
    for each in (os.lstat(path), status):
        if each.st_uid not in (0, os.geteuid()):
            return f"belongs to user {each.st_uid}"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_callers(status.st_gid)):
        return "may be written by others"
    return ""


def _regular(name: str, folder: int | None) -> BinaryIO:
    if folder is not None:
        _refuse_link(name, folder)
    _refuse_others(os.stat(name, dir_fd=folder, follow_symlinks=folder is None), name)
    file = os.open(name, _FLAGS | (os.O_NOFOLLOW if folder is not None else 0), dir_fd=folder)
    try:
        _refuse_others(os.fstat(file), name)
    except OSError:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def _refuse_link(name: str, folder: int) -> None:
    if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
        raise OSError(errno.ELOOP, IS_LINK, name)


def _refuse_others(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, IS_NO_FILE, name)


def _is_callers(group: int) -> bool:
    """Whether a group has no member but the caller, after whom it is called."""
    import grp
    import pwd

    try:
        user, group_entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and group_entry.gr_name == user.pw_name and set(group_entry.gr_mem) <= {user.pw_name}


_WRITING = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o666  # without the umask's
FOR_OTHERS = 0o077
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a file that may not be larger


def created(path: Path) -> FileIO:
    """A new file, to be written, in the place of what had its name. Raises OSError."""
    path.unlink(missing_ok=True)
    return _binary(os.open(path, _WRITING | os.O_EXCL | os.O_WRONLY, _MODE), "wb")


def appendable(path: Path) -> FileIO:
    """A regular file of this user's, to be read and written behind its end; a new one where there is none.

    Raises OSError: where it is a link, another user's or has a further name too.
    """
    try:
        file = os.open(path, _WRITING | os.O_APPEND | os.O_RDWR, _MODE)
    except OSError as problem:
        reason = "is a link, which is not followed" if problem.errno == errno.ELOOP else problem.strerror
        raise OSError(problem.errno, reason, str(path)) from None
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()) and status.st_nlink == 1:
        return _binary(file, "ab+")
    os.close(file)
    raise OSError(errno.EPERM, "is not a regular file of this user's with one name", str(path))


def _binary(file: int, mode: str) -> FileIO:
    from io import FileIO

    return FileIO(file, mode)


def append(file: FileIO, size: int, content: bytes) -> None:
    """Write behind the first `size` bytes of a file that is open there. Raises OSError: it has those bytes, then.

    What a pipe has taken it keeps.
    """
    left = memoryview(content)
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
