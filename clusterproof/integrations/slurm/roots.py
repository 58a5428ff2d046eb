"""Whether root alone controls a path: Slurm's scripts, which run as root, read nothing else."""

from __future__ import annotations

import errno
import os
import stat

MAX_LINKS = 40  # as many as Linux follows
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def distrust(folder: str) -> str:
    """Why a folder may be another user's work, in words; empty if only root can have created it and all above it.

    Raises OSError if there is no such folder.
    """
    ahead = _names(folder if os.path.isabs(folder) else f"{os.getcwd()}/{folder}")
    path, links = "/", 0
    while ahead:
        within, path = path, os.path.join(path, ahead.pop())
        status = os.lstat(path)
        if not is_roots(status):
            return f"{path} belongs to user {status.st_uid}"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
            target = os.readlink(path)
            ahead += _names(target)
            path = "/" if target.startswith("/") else within
        elif status.st_mode & OTHERS_WRITE and not (ahead and status.st_mode & stat.S_ISVTX):
            return f"{path} may be written by others than root"
    return ""


def _names(path: str) -> list[str]:
    """The components of a path, the last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def opened(file: str, flags: int) -> int:
    """Open a file of root's, without following links or blocking. Raises OSError."""
    descriptor = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and is_roots(status) and not status.st_mode & OTHERS_WRITE:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)


def is_roots(status: os.stat_result) -> bool:
    """Whether it belongs to root, or to the current user."""
    return status.st_uid in (0, os.geteuid())
