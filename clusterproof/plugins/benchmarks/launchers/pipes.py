"""Pipes of a launcher's program, to the commands that it started and to its caller. Travels to nodes; Python 3.8."""

from __future__ import annotations

import select

OUTPUT = 1


class Disconnected(Exception):  # noqa: N818 - no error: whoever asked has gone
    """The reader of this program's output is gone."""


def wait(seconds: float, *descriptors: int) -> list[int]:
    """Those of the descriptors that have something, at the latest after that time. Raises Disconnected."""
    poll = select.poll()
    poll.register(OUTPUT, 0)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ready = [descriptor for descriptor, _ in poll.poll(1000 * max(0.0, seconds))]
    if OUTPUT in ready:
        raise Disconnected
    return ready


class BoundedOutput:
    """The head and the tail of an output, and how many bytes between them were dropped."""

    def __init__(self, most_bytes: int) -> None:
        self._most_of_each = most_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, read: bytes) -> None:
        """Keep what came."""
        room = self._most_of_each - len(self._head)
        self._head += read[:room]
        self._tail += read[room:]
        self._left_out += max(0, len(self._tail) - self._most_of_each)
        del self._tail[: -self._most_of_each]

    def kept(self) -> bytes:
        """All that was kept."""
        left_out = f"\n[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
        return bytes(self._head + left_out + self._tail)
