"""When a notification that was not taken is sent again: after growing pauses, until it is. Pure: it reads no clock."""

from __future__ import annotations

from collections.abc import Collection

FIRST_S = 1.0  # doubled with each failure
MOST_S = 60.0


def pause_s(failures: int, asked_s: float = 0.0) -> float:
    """After so many failures in a row; never less than a receiver has asked for."""
    return max(asked_s, min(MOST_S, FIRST_S * (1 << min(failures - 1, 16))))


class Attempts:
    """Of one receiver. One notification that it does not take holds up no other, save those of the same findings."""

    def __init__(self) -> None:
        self._failures = 0  # in a row, of all
        self._from = 0.0  # before then nothing is sent
        self._of: dict[str, tuple[int, float]] = {}  # failures of each notification, and when it is due

    def failed(self, name: str, now: float, asked_s: float = 0.0) -> None:
        """It was not taken."""
        failures = self._of.get(name, (0, 0.0))[0] + 1
        self._failures += 1
        self._from = now + pause_s(self._failures, asked_s)
        self._of[name] = failures, now + pause_s(failures, asked_s)

    def taken(self, name: str) -> None:
        """It was."""
        self._failures, self._from = 0, 0.0
        self._of.pop(name, None)

    def due_s(self, name: str) -> float:
        """When it is due, by itself."""
        return self._of.get(name, (0, 0.0))[1]

    def not_before(self, due_s: float) -> float:
        """When something that is due then may be sent."""
        return max(due_s, self._from)

    def next(self, names: Collection[str]) -> str | None:
        """The notification that is due first."""
        return min(names, key=self.due_s, default=None)
