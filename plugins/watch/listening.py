"""`--listen [HOST]:PORT`: answers Prometheus, a few at a time, and drops a client that keeps it waiting."""

from __future__ import annotations

import re
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import record

HERE = "127.0.0.1"
AT_ONCE = 8  # who asks while so many are answered is turned away
TIMEOUT_S = 10.0  # for a request, and for each part of the answer to be taken
_FORM = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


class NoAddress(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """What cannot be listened at; the message says why."""


@record
class Address:
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int

    @staticmethod
    def of(text: str) -> Address:
        """Of `:9188`, which is this machine's alone, `0.0.0.0:9188`, `head:9188` or `[::1]:9188`. Raises NoAddress."""
        found = _FORM.fullmatch(text)
        if not found or int(found["port"]) > 65_535:
            raise NoAddress(f"--listen is {text[:60]!r}; expected [HOST]:PORT, such as :9188")
        return Address(found["v6"] or found["host"] or HERE, int(found["port"]))


class Listener:
    """Listens from when it is made until it is closed."""

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        """Raises NoAddress where it cannot be listened at."""
        try:
            family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
            kind = type("Server", (_Server,), {"address_family": family})
            app = make_wsgi_app(registry)
            self._server: WSGIServer = make_server(
                address.host, address.port, app, server_class=kind, handler_class=_Handler
            )
        except (OSError, UnicodeError) as problem:
            why = getattr(problem, "strerror", None) or problem
            where = f"{address.host}:{address.port}"
            raise NoAddress(f"--listen: {where}: {why}; expected an address of this machine and a free port") from None
        host = f"[{address.host}]" if family is socket.AF_INET6 else address.host
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="watch-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its parent has it
        """Nobody reads it."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # a port that is taken is to be said

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(*arguments, **more)

    def server_bind(self) -> None:
        """As WSGIServer does it, without asking the name service what this machine is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, where there is room for one more."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone: nothing to report."""
