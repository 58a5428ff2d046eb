"""`--listen [HOST]:PORT`: a small HTTP server that drops a slow client for a new one."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import record

LOCALHOST = "127.0.0.1"
EVERY = "*"  # as a host: every address of this machine, of IPv6 too where it has that
MAPPED = "::ffff:"  # how an IPv6 socket shows who comes by IPv4
MAX_CONNECTIONS = 8  # of more the one that has waited longest is given up
MAX_PER_ADDRESS = 4  # the same of the connections of one address
MAX_ANSWERED = 32  # of those that are given up some are still computed: beyond, nobody is let in
DEADLINE_S = 10.0  # from the first byte of a request to the last of its answer
App = Callable[[dict[str, Any], Any], Iterable[bytes]]  # as WSGI has it
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


class NoAddress(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """An address that cannot be listened on; the message says why."""


@record
class Address:
    """The address to listen on; port 0 is any free one."""

    host: str
    port: int

    @staticmethod
    def of(text: str) -> Address:
        """Of `:9188`, which is this machine's alone, `*:9188`, `head:9188` or `[::1]:9188`. Raises NoAddress."""
        match = _ADDRESS.fullmatch(text)
        if not match or int(match["port"]) > 65_535:
            raise NoAddress(f"--listen is {text[:60]!r}; expected [HOST]:PORT, such as :9188")
        return Address(match["v6"] or match["host"] or LOCALHOST, int(match["port"]))


class Listener:
    """The server, which listens from its creation until it is closed."""

    def __init__(self, address: Address, apps: Mapping[str, App]) -> None:
        """`apps`: what answers at each path. Raises NoAddress where it cannot be listened at."""
        host = address.host
        if host == EVERY:
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - what is asked for
        try:
            family = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0][0]
            kind = type("Server", (_Server,), {"address_family": family})
            self._server: WSGIServer = make_server(
                host, address.port, partial(_answer, apps), server_class=kind, handler_class=_Handler
            )
        except (OSError, UnicodeError) as problem:
            why = getattr(problem, "strerror", None) or problem
            where = f"{address.host}:{address.port}"
            raise NoAddress(f"--listen: {where}: {why}; expected an address of this machine and a free port") from None
        self.url = f"http://{f'[{host}]' if family is socket.AF_INET6 else host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="watch-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(apps: Mapping[str, App], environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    app = apps.get(environ["PATH_INFO"])
    if app:
        return app(environ, start_response)
    text = f"expected one of {', '.join(apps)}\n".encode()
    start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]


class _Handler(WSGIRequestHandler):
    server: _Server

    def parse_request(self) -> bool:
        """Note that the request is whole: from now on it is the server that is waited for."""
        is_whole = super().parse_request()
        if is_whole:
            self.server.note_request(self.connection)
        return is_whole

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its parent has it
        """Nobody reads it."""


@dataclass
class _Connection:
    """A connection: since when it is open, and whether its request is complete."""

    address: str
    since_s: float
    has_asked: bool = False


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # a port that is taken is to be said

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._open: dict[socket.socket, _Connection] = {}
        self._lock = threading.Lock()
        self._answered: set[socket.socket] = set()
        super().__init__(*arguments, **more)

    def server_bind(self) -> None:
        """As WSGIServer does it, by IPv4 too, and without asking the name service what this machine is called."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next one, and who comes, by the address of their own family."""
        request, (host, *more) = super().get_request()
        return request, (host.removeprefix(MAPPED), *more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; where too many are open, give up one that was there before."""
        with self._lock:
            is_let_in = len(self._answered) < MAX_ANSWERED
            if is_let_in:
                self._open[request] = _Connection(str(client_address[0]), time.monotonic())
                for connection in given_up(self._open.values()):
                    self._give_up(connection)
        if is_let_in:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._answered.discard(request)
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Give up what is late; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection in [one for one in self._open.values() if now - one.since_s > DEADLINE_S]:
                self._give_up(connection)

    def note_request(self, request: socket.socket) -> None:
        """Note that the request of a connection is whole."""
        with self._lock:
            self._answered.add(request)
            if request in self._open:
                self._open[request].has_asked = True

    def _give_up(self, given: _Connection) -> None:
        """Let whoever waits for this connection's client wait no more."""
        for request in [request for request, one in self._open.items() if one is given]:
            del self._open[request]
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone: nothing to report."""


def given_up(connections: Iterable[_Connection]) -> list[_Connection]:
    """Which are too many, of one address or of all: first those that have not yet asked, the oldest first."""
    left = sorted(connections, key=lambda connection: (connection.has_asked, connection.since_s))
    newest = max(left, key=lambda connection: connection.since_s)
    of_one = [connection for connection in left if connection.address == newest.address and connection is not newest]
    gone = of_one[: max(0, len(of_one) + 1 - MAX_PER_ADDRESS)]
    others = [connection for connection in left if connection is not newest and connection not in gone]
    return gone + others[: max(0, len(others) + 1 - MAX_CONNECTIONS)]
