"""The two ends of a pair find each other whoever else connects; others learn nothing and block nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from clusterproof.plugins.benchmarks.launchers import rendezvous
from clusterproof.plugins.benchmarks.launchers.rendezvous import (
    COMES,
    PROOF_BYTES,
    QUESTION_BYTES,
    READY,
    SERVES,
    Acceptor,
    authenticate,
    find_server,
    listen,
    proof,
)
from tests.transport.loopback import free_port

WORD, LATEST_S = b"the word of this run", 60.0


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def served(port: int) -> Iterator[list[socket.socket]]:
    """Wait for the other end and tell it that the server is ready; yields the accepted connections."""
    came: list[socket.socket] = []
    own = Acceptor(listen(port), WORD)

    def serve() -> None:
        if other := own.accept(LATEST_S):
            came.append(other)
            other.sendall(READY)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield came
    thread.join(LATEST_S)
    own.close()


def address_reached(port: int, *addresses: str) -> str:
    """The address at which the server is found."""
    other, address = find_server([*addresses, "127.0.0.1"], port, WORD, time.monotonic() + LATEST_S)
    other.close()
    return address


def says(word: bytes) -> Callable[[socket.socket], None]:
    return lambda candidate: candidate.sendall(word)


OUTSIDERS: dict[str, Callable[[socket.socket], object]] = {
    "says nothing": lambda _: None,
    "says the secret of an older way": says(b"word\n"),
    "answers at random": says(b"x" * (QUESTION_BYTES + PROOF_BYTES)),
    "begins to answer": says(b"x" * QUESTION_BYTES),
    "closes": socket.socket.close,
    "returns what it is asked": lambda candidate: candidate.sendall(candidate.recv(QUESTION_BYTES) * 2),
}


@pytest.mark.parametrize("outsider", OUTSIDERS)
def test_a_peer_with_the_secret_is_met_though_many_without_it_came_before(port: int, outsider: str) -> None:
    with served(port) as came, ExitStack() as candidates:
        for _ in range(2 * rendezvous.MAX_CANDIDATES):
            candidate = candidates.enter_context(socket.create_connection(("127.0.0.1", port), LATEST_S))
            with suppress(OSError):
                OUTSIDERS[outsider](candidate)
        assert address_reached(port) == "127.0.0.1"
    assert len(came) == 1


def test_no_visitor_without_the_secret_is_let_in(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PROVES_S", 0.2)
    own = Acceptor(listen(port), WORD)
    with socket.create_connection(("127.0.0.1", port)) as candidate:
        candidate.sendall(b"x" * (QUESTION_BYTES + PROOF_BYTES))
        with socket.create_connection(("127.0.0.1", port)) as mute:
            assert own.accept(1.0) is None
            assert mute.recv(QUESTION_BYTES + 1)[QUESTION_BYTES:] == b""
            assert mute.recv(1) == b""
    own.close()


@contextmanager
def impostor(port: int, says: bytes) -> Iterator[bytearray]:
    """Listen on that port at another address, send this, and keep what is received."""
    received = bytearray()
    listener = socket.create_server(("127.0.0.2", port))

    def listening() -> None:
        with suppress(OSError):
            while True:
                candidate, _ = listener.accept()
                candidate.sendall(says)
                received.extend(candidate.recv(4096))

    threading.Thread(target=listening, daemon=True).start()
    yield received
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("message", [b"", READY, b"x" * QUESTION_BYTES, b"x" * (QUESTION_BYTES + PROOF_BYTES) + READY])
def test_an_impostor_that_listens_is_passed_over_and_learns_nothing(
    port: int, message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "listen", listen)
    own = socket.create_server(("127.0.0.1", port))
    monkeypatch.setattr(rendezvous, "REFUSED", "")  # nobody retries an address that refused
    came = Acceptor(own, WORD)
    thread = threading.Thread(target=lambda: (came.accept(LATEST_S) or own).sendall(READY), daemon=True)
    thread.start()
    with impostor(port, message) as received:
        assert address_reached(port, "127.0.0.2") == "127.0.0.1"
        assert WORD not in bytes(received)
    thread.join(LATEST_S)
    came.close()


def test_what_one_end_proves_proves_nothing_of_the_other() -> None:
    """Otherwise a listener could use two incoming connections to let each answer the other's question."""
    proofs = {proof(WORD, who, *challenges) for who in (SERVES, COMES) for challenges in ((b"1", b"2"), (b"2", b"1"))}
    assert len(proofs) == 4


def test_an_answer_that_was_heard_proves_nothing_again(port: int) -> None:
    own = Acceptor(listen(port), WORD)
    heard = bytearray()
    first = socket.create_connection(("127.0.0.1", port), LATEST_S)
    monitored = Heard(first, heard)
    thread = threading.Thread(target=lambda: authenticate(monitored, WORD), daemon=True)  # type: ignore[arg-type]
    thread.start()
    assert own.accept(LATEST_S)
    thread.join(LATEST_S)
    with socket.create_connection(("127.0.0.1", port)) as again:
        again.sendall(heard)
        assert own.accept(0.5) is None
    own.close()
    first.close()


class Heard:
    """A connection on which somebody eavesdrops."""

    def __init__(self, own: socket.socket, heard: bytearray) -> None:
        self.own, self.heard = own, heard

    def sendall(self, data: bytes) -> None:
        """Send the data and let it be overheard."""
        self.heard += data
        self.own.sendall(data)

    def recv(self, count: int) -> bytes:
        return self.own.recv(count)

    def settimeout(self, seconds: float) -> None:
        self.own.settimeout(seconds)
