"""What an API server sends for as long as somebody listens: the events of a watch, the log of a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from clusterproof.plugins.kubernetes.errors import KubernetesError, words_of

READ_BYTES = 65536
MAX_LINE_BYTES = 4 * 1024 * 1024  # of an event; etcd holds no larger object


class Stream:
    """One response, as it comes. `close` may be called from any thread, and wakes who reads."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._is_closed = False

    def pieces(self) -> Iterator[bytes]:
        """What comes, until the server ends it or it is closed. Raises KubernetesError where it breaks."""
        try:
            while not self._is_closed and (piece := self._response.read1(READ_BYTES)):
                yield piece
        except Exception as problem:  # urllib3's, of a connection that breaks
            if not self._is_closed:
                raise KubernetesError(f"broke off: {words_of(problem)}") from None

    def lines(self) -> Iterator[bytes]:
        """The same by lines. Raises KubernetesError, also for a line that has no end."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise KubernetesError(f"a line is larger than {MAX_LINE_BYTES} bytes")
            yield from (line for line in whole if line.strip())

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        with suppress(Exception):  # it has ended already, or urllib3 is older than 2.3 and knows no such end
            self._response.shutdown()
