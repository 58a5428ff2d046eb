"""Two ends that know a secret find each other among whoever else comes. Travels; standard library, for Python 3.8.

Each asks the other something new, and answers what only one that knows the secret can; the secret never travels. Nobody
is waited for before that: at the door all visitors are heard at once, and of too many the oldest goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import time

from clusterproof.plugins.benchmarks.launchers.pipes import wait

QUESTION_BYTES = PROOF_BYTES = 32
PROVES_S = 5.0  # for the other end to prove itself
VISITORS = 64  # at once that have not yet
SERVES, COMES = b"serves", b"comes"


class Visitor:
    """One that came, what it was asked, and what it has said."""

    def __init__(self, socket: socket.socket) -> None:
        socket.setblocking(False)
        self.socket, self.asked, self.said = socket, os.urandom(QUESTION_BYTES), b""
        self.until = time.monotonic() + PROVES_S
        with contextlib.suppress(OSError):
            socket.send(self.asked)

    def has_come(self, word: bytes) -> bool:
        """Whether it has proven itself, which is then proven to it. Raises OSError where it has failed to."""
        with contextlib.suppress(BlockingIOError):
            read = self.socket.recv(QUESTION_BYTES + PROOF_BYTES - len(self.said))
            self.said += read
            if not read:
                raise OSError("it has closed")
        question, answer = self.said[:QUESTION_BYTES], self.said[QUESTION_BYTES:]
        if len(answer) < PROOF_BYTES:
            return False
        if not hmac.compare_digest(answer, proof(word, COMES, self.asked, question)):
            raise OSError("it does not know the secret")
        self.socket.sendall(proof(word, SERVES, self.asked, question))
        self.socket.setblocking(True)
        return True


class Door:
    """Where the other end comes, until it is closed."""

    def __init__(self, listener: socket.socket, word: bytes) -> None:
        listener.setblocking(False)
        self._listener, self._word = listener, word
        self._visitors: list[Visitor] = []

    def came(self, seconds: float) -> socket.socket | None:
        """Whoever knows the secret; None where nobody did within that time. Raises Disconnected."""
        until = time.monotonic() + seconds
        while True:
            ready = wait(
                until - time.monotonic(), self._listener.fileno(), *(v.socket.fileno() for v in self._visitors)
            )
            if self._listener.fileno() in ready:
                self._let_in()
            for visitor in [one for one in self._visitors if one.socket.fileno() in ready]:
                try:
                    if visitor.has_come(self._word):
                        self._visitors.remove(visitor)
                        return visitor.socket
                except OSError:
                    self._turn_away(visitor)
            for visitor in [one for one in self._visitors if one.until < time.monotonic()]:
                self._turn_away(visitor)
            if time.monotonic() >= until:
                return None

    def close(self) -> None:
        """Turn away who is still here; whoever has come stays."""
        for visitor in list(self._visitors):
            self._turn_away(visitor)
        self._listener.close()

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):
            self._visitors.append(Visitor(self._listener.accept()[0]))
        if len(self._visitors) > VISITORS:
            self._turn_away(self._visitors[0])

    def _turn_away(self, visitor: Visitor) -> None:
        self._visitors.remove(visitor)
        visitor.socket.close()


def knock(other: socket.socket, word: bytes) -> None:
    """Prove to know the secret, and have it proven. Raises OSError where the other end does not in time."""
    until, question = time.monotonic() + PROVES_S, os.urandom(QUESTION_BYTES)
    asked = exactly(other, QUESTION_BYTES, until)
    other.sendall(question + proof(word, COMES, asked, question))
    if not hmac.compare_digest(exactly(other, PROOF_BYTES, until), proof(word, SERVES, asked, question)):
        raise OSError("it does not know the secret")


def proof(word: bytes, who: bytes, asked: bytes, question: bytes) -> bytes:
    """What only one that knows the secret can say, once, as this end."""
    return hmac.new(word, who + asked + question, hashlib.sha256).digest()


def exactly(other: socket.socket, count: int, until: float) -> bytes:
    """So many bytes. Raises OSError where fewer come in time."""
    data = b""
    while len(data) < count:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise OSError("it is too slow")
        other.settimeout(left_s)
        read = other.recv(count - len(data))
        if not read:
            raise OSError("it was closed at once")
        data += read
    return data
