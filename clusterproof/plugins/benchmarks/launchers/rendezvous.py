"""Connects two nodes that share a secret: one listens, the other connects. Travels to nodes; Python 3.8.

The server's node listens before the server starts, and reports when that listens, so that both nodes may be visited at
the same time; its reachable address is found by trying; and each end notices when the other is gone. Each sends a fresh
challenge that only an end with the secret can answer; the secret itself is never transmitted. All clients are handled
concurrently until authenticated; if there are too many, the oldest is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import socket
import struct
import time

from clusterproof.plugins.benchmarks.launchers.pipes import wait

QUESTION_BYTES = PROOF_BYTES = 32
PROVES_S = 5.0  # for the other end to authenticate
MAX_CANDIDATES = 64  # unauthenticated connections at once
SERVES, COMES = b"serves", b"comes"
SECRET = "CLUSTERPROOF_RUN_SECRET"  # in the environment of both ends' programs, for those that meet themselves  # noqa: S105 - its name

READY, DONE = b"ready\n", b"done\n"
CONNECT_S = 2.0  # for one address to answer
AGAIN_S = 0.1
REFUSED = os.strerror(errno.ECONNREFUSED)
LISTENS = "0A"  # state in /proc/net/tcp
IPV4_OF = 0x8915  # linux/sockios.h: SIOCGIFADDR
NO_NETWORK = ("lo", "docker", "virbr", "veth", "cni", "flannel", "kube", "br-")
SILENT = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3), (socket.TCP_USER_TIMEOUT, 8000))


class Candidate:
    """A connection that has not proven the secret yet: its challenge, and what it has sent."""

    def __init__(self, socket: socket.socket) -> None:
        socket.setblocking(False)
        self.socket, self.challenge, self.said = socket, os.urandom(QUESTION_BYTES), b""
        self.until = time.monotonic() + PROVES_S
        with contextlib.suppress(OSError):
            socket.send(self.challenge)

    def is_authentic(self, word: bytes) -> bool:
        """Whether it has answered the challenge; we then answer its own. Raises OSError if its answer is wrong."""
        with contextlib.suppress(BlockingIOError):
            read = self.socket.recv(QUESTION_BYTES + PROOF_BYTES - len(self.said))
            self.said += read
            if not read:
                raise OSError("it has closed")
        question, answer = self.said[:QUESTION_BYTES], self.said[QUESTION_BYTES:]
        if len(answer) < PROOF_BYTES:
            return False
        if not hmac.compare_digest(answer, proof(word, COMES, self.challenge, question)):
            raise OSError("it does not know the secret")
        self.socket.sendall(proof(word, SERVES, self.challenge, question))
        self.socket.setblocking(True)
        return True


class Acceptor:
    """Accepts connections until one of them proves the secret."""

    def __init__(self, listener: socket.socket, word: bytes) -> None:
        listener.setblocking(False)
        self._listener, self._word = listener, word
        self._candidates: list[Candidate] = []

    def accept(self, seconds: float) -> socket.socket | None:
        """The authenticated connection; None if there was none in that time. Raises Disconnected."""
        until = time.monotonic() + seconds
        while True:
            ready = wait(
                until - time.monotonic(), self._listener.fileno(), *(v.socket.fileno() for v in self._candidates)
            )
            if self._listener.fileno() in ready:
                self._take()
            for candidate in [candidate for candidate in self._candidates if candidate.socket.fileno() in ready]:
                try:
                    if candidate.is_authentic(self._word):
                        self._candidates.remove(candidate)
                        return candidate.socket
                except OSError:
                    self._reject(candidate)
            for candidate in [candidate for candidate in self._candidates if candidate.until < time.monotonic()]:
                self._reject(candidate)
            if time.monotonic() >= until:
                return None

    def close(self) -> None:
        """Close unauthenticated connections; the returned one stays open."""
        for candidate in list(self._candidates):
            self._reject(candidate)
        self._listener.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            self._candidates.append(Candidate(self._listener.accept()[0]))
        if len(self._candidates) > MAX_CANDIDATES:
            self._reject(self._candidates[0])

    def _reject(self, candidate: Candidate) -> None:
        self._candidates.remove(candidate)
        candidate.socket.close()


def authenticate(other: socket.socket, word: bytes) -> None:
    """Authenticate in both directions. Raises OSError if the other end fails to in time."""
    until, question = time.monotonic() + PROVES_S, os.urandom(QUESTION_BYTES)
    challenge = exactly(other, QUESTION_BYTES, until)
    other.sendall(question + proof(word, COMES, challenge, question))
    if not hmac.compare_digest(exactly(other, PROOF_BYTES, until), proof(word, SERVES, challenge, question)):
        raise OSError("it does not know the secret")


def proof(word: bytes, role: bytes, challenge: bytes, question: bytes) -> bytes:
    """The answer to a challenge, valid once, for this end."""
    return hmac.new(word, role + challenge + question, hashlib.sha256).digest()


def exactly(other: socket.socket, count: int, until: float) -> bytes:
    """Read exactly so many bytes. Raises OSError if fewer arrive in time."""
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


class NotConnected(Exception):  # noqa: N818 - its message is what was observed
    """The other end did not connect; the message says what was seen of it."""


class PortTaken(NotConnected):
    """Another program listens at this port of this node."""


def listen(port: int) -> socket.socket:
    """Listen on all addresses. Raises PortTaken."""
    try:
        try:
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            where = "::"
        except OSError:
            listener, where = socket.socket(socket.AF_INET, socket.SOCK_STREAM), ""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where, port))
        listener.listen(64)
    except OSError as problem:
        raise PortTaken(f"port {port} cannot be opened: {problem.strerror}") from None
    return listener


def find_server(addresses: list[str], port: int, word: bytes, until: float) -> tuple[socket.socket, str]:
    """The connection, and the first address that worked. Raises NotConnected, Disconnected."""
    seen: dict[str, str] = {}
    began_again = False
    while time.monotonic() < until:
        for number, address in enumerate(addresses):
            try:
                other = socket.create_connection((address, port), CONNECT_S)
                if REFUSED in map(seen.get, addresses[:number]) and not began_again:
                    began_again = True  # it may have started to listen after the first addresses were tried
                    other.close()
                    break
                authenticate(other, word)
                if exactly(listening_for_silence(other), len(READY), max(until, time.monotonic() + CONNECT_S)) == READY:
                    other.settimeout(None)
                    return other, address
            except OSError as problem:
                seen[address] = problem.strerror or str(problem)
            wait(AGAIN_S)
    tried = ", ".join(f"{address}: {why}" for address, why in seen.items())
    raise NotConnected(f"cannot be reached on port {port} ({tried or 'no address is known'})")


def listening_for_silence(other: socket.socket) -> socket.socket:
    """The same socket, which fails some seconds after the other node falls silent."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in SILENT:
        other.setsockopt(socket.IPPROTO_TCP, option, value)
    return other


def listens(port: int, user: int | None = None) -> bool:
    """Whether somebody listens on that local port; optionally only this user."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as rows:
            for row in rows:
                columns = row.split()
                if columns[1].endswith(f":{port:04X}") and columns[3] == LISTENS and user in (None, int(columns[7])):
                    return True
    return False


def addresses() -> list[str]:
    """This node's addresses: first the one used to log in, then those of the default route, then others."""
    data = os.environ.get("SSH_CONNECTION", "").split()
    names = sorted((name for _, name in socket.if_nameindex()), key=lambda name: name not in default_route())
    own = [ipv4_of(name) for name in names if not name.startswith(NO_NETWORK)]
    candidates = [*data[2:3], *own, *ipv6()]
    usable = [
        address for address in candidates if address and not address.startswith(("127.", "169.254.", "fe80:", "::"))
    ]
    return list(dict.fromkeys(usable)) or ["127.0.0.1"]


def ipv4_of(interface: str) -> str:
    """The address of an interface; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            data = fcntl.ioctl(asking.fileno(), IPV4_OF, struct.pack("256s", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(data[20:24])


def ipv6() -> list[str]:
    """The global addresses."""
    try:
        with open("/proc/net/if_inet6") as table:
            rows = [row.split() for row in table]
    except OSError:
        return []
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))
        for row in rows
        if row[3] == "00" and not row[5].startswith(NO_NETWORK)
    ]


def default_route() -> list[str]:
    """The interfaces of the default route."""
    try:
        with open("/proc/net/route") as table:
            return [fields[0] for fields in map(str.split, table) if fields[1] == "00000000"]
    except OSError:
        return []
