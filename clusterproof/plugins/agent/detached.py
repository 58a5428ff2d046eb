"""A forked process in a session of its own."""

from __future__ import annotations

import os
import resource
import signal


def detach(kept: tuple[int, ...], *signals: int) -> None:
    """Leave the parent's session, holding nothing of it open that would keep the connection, but these descriptors."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, *signals):
        signal.signal(number, signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))  # 1: no core, not even through a pipe
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1024)
