"""Whether root alone decides what lies at a path: what a user could have put there is neither read nor written over."""

from __future__ import annotations

import errno
import os
import stat

MAX_LINKS = 40  # as many as Linux follows
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_OPEN = OTHERS_WRITE | stat.S_IRGRP | stat.S_IROTH


def distrust(folder: str) -> str:
    """Why a folder may be another user's work, in words; empty where only root can have made it and all above it.

    Raises OSError where there is no such folder.
    """
    ahead = _names(folder if os.path.isabs(folder) else f"{os.getcwd()}/{folder}")
    here, links = "/", 0
    while ahead:
        within, here = here, os.path.join(here, ahead.pop())
        data = os.lstat(here)
        if not is_roots(data):
            return f"{here} belongs to user {data.st_uid}"
        if stat.S_ISLNK(data.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
            target = os.readlink(here)
            ahead += _names(target)
            here = "/" if target.startswith("/") else within
        elif data.st_mode & OTHERS_WRITE and not (ahead and data.st_mode & stat.S_ISVTX):
            return f"{here} may be written by others than root"
    return ""


def _names(path: str) -> list[str]:
    """The names in a path, the last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def opened(file: str, flags: int) -> int:
    """A descriptor of a file of root's. No link is followed, and nothing waited for. Raises OSError."""
    descriptor = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    data = os.fstat(descriptor)
    if stat.S_ISREG(data.st_mode) and is_roots(data) and not data.st_mode & OTHERS_WRITE:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)


def is_roots(data: os.stat_result) -> bool:
    """Whether it belongs to root, or to the user that this is."""
    return data.st_uid in (0, os.geteuid())
