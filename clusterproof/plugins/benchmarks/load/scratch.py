"""A scratch file that is gone when its writer is, whatever ended that."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator

PREFIX = ".clusterproof-"


@contextlib.contextmanager
def scratch_file(folder: str) -> Iterator[str]:
    """A new file in a folder, only for this user, as its path. Raises OSError.

    Removed at the end by this process, or, where it is killed first, by another that waits for just that.
    """
    path = os.path.join(folder, PREFIX + secrets.token_hex(6))
    lifeline = watched(path)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        yield path
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(lifeline)


def watched(path: str) -> int:
    """Have a path removed as soon as the descriptor that this returns is closed, by whatever end of its holders."""
    waiting, lifeline = os.pipe()
    is_watched, watches = os.pipe()
    os.set_inheritable(lifeline, True)  # what writes into the file holds on to it too
    if not os.fork():
        try:
            watch(path, waiting, watches)
        finally:
            os._exit(0)
    os.close(waiting)
    os.close(watches)
    os.read(is_watched, 1)
    os.close(is_watched)
    return lifeline


def watch(path: str, waiting: int, watches: int) -> None:
    """Leave the collector's group, which is killed as a whole; wait; remove."""
    os.setsid()
    signal.alarm(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.write(watches, b".")
    os.closerange(3, waiting)
    os.closerange(waiting + 1, 1024)
    os.read(waiting, 1)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
