"""One line each to syslog; where nobody listens there, to standard error."""

from __future__ import annotations

import sys
from _socket import AF_UNIX, SOCK_DGRAM, socket  # without the enumerations that socket.py makes of its constants

LISTENER = "/dev/log"
DAEMON = 3 << 3
CRITICAL, ERROR, WARNING, INFO = 2, 3, 4, 6
MAX_LINE = 900  # characters; syslog's own limit is 1024 bytes
TIMEOUT_S = 0.5
NAME = "clusterproof"


class Log:
    """Where the lines of one call go; each names the script and the job. A syslog that hangs is waited for once."""

    def __init__(self, about: str, listener: str = LISTENER) -> None:
        self.about = about
        self._listener = listener

    def __call__(self, text: str, level: int = INFO) -> None:
        """Log one line."""
        line = f"{self.about}: {' '.join(text.split())}"[:MAX_LINE]
        if not self._sent(f"<{DAEMON | level}>{NAME}: {line}"):
            print(f"{NAME}: {line}", file=sys.stderr, flush=True)  # noqa: T201

    def _sent(self, line: str) -> bool:
        if not self._listener:
            return False
        try:
            sender = socket(AF_UNIX, SOCK_DGRAM)
            try:
                sender.settimeout(TIMEOUT_S)  # its queue may be full for a moment: Linux lets ten lines wait
                sender.connect(self._listener)
                sender.send(line.encode("utf-8", "replace"))
            finally:
                sender.close()
        except OSError:
            self._listener = ""
            return False
        return True
