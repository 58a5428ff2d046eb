"""Opens files safely in folders that other users may write to, and creates files that other users cannot read.

A path named on the command line may be a link; below a folder named there, no link is followed. Whoever can write to a
folder can place links, hard links to other files, or pipes that never end. What a run writes contains users, processes,
mounts and environments of nodes.
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
NOT_A_FILE = "is not a regular file"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # does not block on what has become a pipe meanwhile


class NotOwnError(OSError):
    """A file that users other than the caller and root can change; `strerror` says who."""


class Budget:
    """A limit for the total size of the files in a folder."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.left_bytes = most_bytes

    def take(self, count: int) -> None:
        """Count bytes read. Raises OSError when the limit is exceeded."""
        self.left_bytes -= count
        if self.left_bytes < 0:
            raise OSError(errno.EFBIG, f"with it more than {self.most_bytes:,} bytes were read in all")


def opened(path: str | PathLike[str], below: str | PathLike[str] | None = None) -> BinaryIO:
    """Open a regular file for reading. Raises OSError.

    Below the folder `below`, no component of the path may be a link.
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
    """Read a regular file of at most this many bytes.

    Raises OSError; NotOwnError if the file must be the caller's own and is not.
    """
    with opened(path, below) as file:
        doubt = distrust(path, os.fstat(file.fileno())) if is_own else ""
        if doubt:
            raise NotOwnError(errno.EACCES, doubt, os.fspath(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"has more than {most_bytes:,} bytes", os.fspath(path))
    return content


def in_home(path: str | PathLike[str]) -> str:
    """The path with `~` or `~user` in front replaced by that user's home folder; pathlib's raises if there is none.

    Then it leads to where nothing is: `~nobody/x` in the working folder would be anybody's.
    """
    expanded = os.path.expanduser(path)
    return f"/{expanded}" if expanded.startswith("~") else expanded


def path_exists(path: str | PathLike[str]) -> bool:
    """Whether a path exists and the caller may look at it; pathlib's raises on denied access before Python 3.14."""
    return os.path.exists(path)


def is_file(path: str | PathLike[str]) -> bool:
    """Whether a file exists and the caller may look at it."""
    return os.path.isfile(path)


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether a folder exists and the caller may look at it."""
    return os.path.isdir(path)


def distrust(path: str | PathLike[str], status: os.stat_result | None = None) -> str:
    """Who else can change a file or folder, in words; empty if only the caller and root can.

    A group with the caller as its only member counts as the caller. `status` is from the open file. Raises OSError.
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
        raise OSError(errno.EINVAL, NOT_A_FILE, name)


def _is_callers(group: int) -> bool:
    """Whether this is the caller's own group: named after them, with no other member."""
    import grp
    import pwd

    try:
        user, group_entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and group_entry.gr_name == user.pw_name and set(group_entry.gr_mem) <= {user.pw_name}


_WRITING = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o666  # before the umask
FOR_OTHERS = 0o077
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a file size limit


def created(path: Path) -> FileIO:
    """Create a file for writing, replacing any file of that name. Raises OSError."""
    path.unlink(missing_ok=True)
    return _binary(os.open(path, _WRITING | os.O_EXCL | os.O_WRONLY, _MODE), "wb")


def appendable(path: Path) -> FileIO:
    """Open the caller's own regular file for reading and appending; create it if missing.

    Raises OSError if it is a link, another user's, or has further hard links.
    """
    try:
        file = os.open(path, _WRITING | os.O_APPEND | os.O_RDWR, _MODE)
    except OSError as problem:
        reason = IS_LINK if problem.errno == errno.ELOOP else problem.strerror
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
    """Write after the first `size` bytes of an open file. Raises OSError, with the file truncated to `size` again.

    What was written to a pipe cannot be undone.
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
    """Make all files and folders created from now on private to their user; call the returned function to end that.

    A file that others must read, such as node_exporter's metrics, is given its mode explicitly.
    """
    before = os.umask(FOR_OTHERS)
    os.umask(before | FOR_OTHERS)

    def end() -> None:
        os.umask(before)

    return end
