"""One line each to syslog; where nobody listens there, to standard error."""

from __future__ import annotations

import socket
import sys

LISTENER = "/dev/log"
DAEMON = 3 << 3
CRITICAL, ERROR, WARNING, INFO = 2, 3, 4, 6
MAX_LINE = 900  # characters; syslog's own limit is 1024 bytes
NAME = "clusterproof"


class Log:
    """Where the lines of one call go; each names the script and the job. It never waits for syslog."""

    def __init__(self, about: str) -> None:
        self.about = about

    def __call__(self, text: str, level: int = INFO) -> None:
        """Log one line."""
        line = f"{self.about}: {' '.join(text.split())}"[:MAX_LINE]
        if not _sent(f"<{DAEMON | level}>{NAME}: {line}"):
            print(f"{NAME}: {line}", file=sys.stderr, flush=True)  # noqa: T201


def _sent(line: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
            listener.connect(LISTENER)
            listener.send(line.encode("utf-8", "replace"))
    except OSError:
        return False
    return True
