"""`--listen [HOST]:PORT`: answers a few clients at a time; slow clients are dropped in favour of new ones."""

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
EVERY = "*"  # as a host: all addresses of this machine, including IPv6 if available
MAPPED = "::ffff:"  # how an IPv6 socket shows IPv4 clients
MAX_CONNECTIONS = 8  # above this, the one that has waited longest is dropped
MAX_PER_ADDRESS = 4  # the same for the connections of one address
MAX_ANSWERED = 32  # some dropped requests are still being computed: above this, nobody is accepted
DEADLINE_S = 10.0  # from the first byte of a request to the last of its answer
App = Callable[[dict[str, Any], Any], Iterable[bytes]]  # as in WSGI
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


class NoAddress(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """An address that cannot be listened on; the message says why."""


@record
class Address:
    """Where to listen; port 0 means any free port."""

    host: str
    port: int

    @staticmethod
    def of(text: str) -> Address:
        """Parse `:9188` (this machine only), `*:9188`, `head:9188` or `[::1]:9188`. Raises NoAddress."""
        match = _ADDRESS.fullmatch(text)
        if not match or int(match["port"]) > 65_535:
            raise NoAddress(f"--listen is {text[:60]!r}; expected [HOST]:PORT, such as :9188")
        return Address(match["v6"] or match["host"] or LOCALHOST, int(match["port"]))


class Listener:
    """Listens from its creation until it is closed."""

    def __init__(self, address: Address, apps: Mapping[str, App]) -> None:
        """`apps` maps paths to what answers them. Raises NoAddress if the address cannot be listened on."""
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
        """Stop listening."""
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
        """Mark the request as complete: from now on the client waits for the server."""
        is_whole = super().parse_request()
        if is_whole:
            self.server.note_request(self.connection)
        return is_whole

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its parent has it
        """Discard log messages."""


@dataclass
class _Connection:
    """A connection, when it was opened, and whether its request is complete."""

    address: str
    since_s: float
    has_request: bool = False


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # a port in use must be reported

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._open: dict[socket.socket, _Connection] = {}
        self._lock = threading.Lock()
        self._answered: set[socket.socket] = set()
        super().__init__(*arguments, **more)

    def server_bind(self) -> None:
        """As in WSGIServer, but also for IPv4, and without a name service query for the host name."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection, and its client's address in its own address family."""
        request, (host, *more) = super().get_request()
        return request, (host.removeprefix(MAPPED), *more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; if too many connections are open, drop an older one."""
        with self._lock:
            is_let_in = len(self._answered) < MAX_ANSWERED
            if is_let_in:
                self._open[request] = _Connection(str(client_address[0]), time.monotonic())
                for connection in connections_to_drop(self._open.values()):
                    self._release(connection)
        if is_let_in:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then release the connection's slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._answered.discard(request)
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Drop connections past their deadline; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection in [opened for opened in self._open.values() if now - opened.since_s > DEADLINE_S]:
                self._release(connection)

    def note_request(self, request: socket.socket) -> None:
        """Mark a connection's request as complete."""
        with self._lock:
            self._answered.add(request)
            if request in self._open:
                self._open[request].has_request = True

    def _release(self, given: _Connection) -> None:
        """Release whoever waits for this connection's client."""
        for request in [request for request, held in self._open.items() if held is given]:
            del self._open[request]
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignored: the client has gone."""


def connections_to_drop(connections: Iterable[_Connection]) -> list[_Connection]:
    """The connections to drop, per address or in all: first those without a complete request, the oldest first."""
    left = sorted(connections, key=lambda connection: (connection.has_request, connection.since_s))
    newest = max(left, key=lambda connection: connection.since_s)
    of_one = [connection for connection in left if connection.address == newest.address and connection is not newest]
    gone = of_one[: max(0, len(of_one) + 1 - MAX_PER_ADDRESS)]
    others = [connection for connection in left if connection is not newest and connection not in gone]
    return gone + others[: max(0, len(others) + 1 - MAX_CONNECTIONS)]
