"""No more than so many starts a second, however many threads ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class StartRate:
    """Lets one start through each 1/`per_s` seconds. Safe to use from several threads."""

    def __init__(
        self, per_s: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pause_s = 1 / per_s
        self._now = now
        self._sleep = sleep
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> float:
        """Wait for one's turn; the seconds that it took."""
        with self._lock:
            now = self._now()
            turn = max(now, self._next)
            self._next = turn + self._pause_s
        self._sleep(turn - now)
        return turn - now
