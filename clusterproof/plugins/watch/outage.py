"""The failure of a part of the watch itself: said when it begins and when it is over, and not in between."""

from __future__ import annotations

from collections.abc import Callable

WHY = "{why}"


class Outage:
    """Of one part of the watch."""

    def __init__(self, say: Callable[[str], object], begins: str, ends: str) -> None:
        """`begins`: words with a place for the reason, `{why}`."""
        self._say, self._begins, self._ends = say, begins, ends
        self.is_so = False

    def failed(self, why: object) -> None:
        """It did not work."""
        if not self.is_so:
            self._say(self._begins.replace(WHY, str(why)))
        self.is_so = True

    def worked(self) -> None:
        """It did."""
        if self.is_so:
            self._say(self._ends)
        self.is_so = False
