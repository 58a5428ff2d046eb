"""A launcher program's pipes: from its children, and to its caller. Travels; for Python 3.8."""

from __future__ import annotations

import select

OUTPUT = 1


class Disconnected(Exception):  # noqa: N818 - no error: whoever asked has gone
    """The reader of this program's output is gone."""


def wait(seconds: float, *descriptors: int) -> list[int]:
    """Wait for readable descriptors, at most for that time. Raises Disconnected."""
    poll = select.poll()
    poll.register(OUTPUT, 0)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ready = [descriptor for descriptor, _ in poll.poll(1000 * max(0.0, seconds))]
    if OUTPUT in ready:
        raise Disconnected
    return ready


class BoundedOutput:
    """The head and the tail of an output, each bounded, and the number of bytes left out."""

    def __init__(self, most_bytes: int) -> None:
        self._most_of_each = most_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, read: bytes) -> None:
        """Add output."""
        left_bytes = self._most_of_each - len(self._head)
        self._head += read[:left_bytes]
        self._tail += read[left_bytes:]
        self._left_out += max(0, len(self._tail) - self._most_of_each)
        del self._tail[: -self._most_of_each]

    def kept(self) -> bytes:
        """All stored output."""
        left_out = f"\n[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
        return bytes(self._head + left_out + self._tail)
