"""What a watch says of itself: that a part of it fails, and that the clock of its host was set."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusterproof.plugins.watch.sample_rules import step_s
from clusterproof.plugins.watch.updates import Hello

WHY = "{why}"


class Outage:
    """Of one part of the watch."""

    def __init__(self, say: Callable[[str], object], begins: str, ends: str) -> None:
        """`begins`: words with a place for the reason, `{why}`."""
        self._say, self._begins, self._ends = say, begins, ends
        self.is_failing = False

    def failed(self, why: object) -> None:
        """It did not work."""
        if not self.is_failing:
            self._say(self._begins.replace(WHY, str(why)))
        self.is_failing = True

    def worked(self) -> None:
        """It did."""
        if self.is_failing:
            self._say(self._ends)
        self.is_failing = False


SET = "the clock of this host was set by {} s; times that are recorded and sent follow it, nothing else does"


class HostClock:
    """As it was when it was last looked at."""

    def __init__(self, least_s: float, say: Callable[[str], object]) -> None:
        """`least_s`: of a step that is said."""
        self._least_s, self._say = least_s, say
        self._before = clocks_now()

    def look(self) -> None:
        """Say by how much it was set since."""
        before, self._before = self._before, clocks_now()
        step = step_s(before, self._before)
        if abs(step) >= self._least_s:
            self._say(SET.format(f"{step:+.0f}"))


def clocks_now() -> Hello:
    """Now: by the clock that people set, and by one that counts while the host sleeps too."""
    return Hello("", time.time(), time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))
