"""One request of HTTP/1.1, for a service of the node's own: what Python's `http.client` costs buys nothing there."""

from __future__ import annotations

import re
from _socket import SOCK_STREAM, getaddrinfo, socket  # without the enumerations that `socket` makes of its constants

MAX_BYTES = 64 * 1024  # of an answer's head, and of its body
ENDPOINT = re.compile(r"http://(?:\[([0-9a-fA-F:.]+)\]|([^][/:@\s]+))(?::([0-9]{1,5}))?(?:/.*)?")
STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r|$)")
LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?:\r|$)")


def ask(endpoint: str, method: str, path: str, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    """The status and the body, at most MAX_BYTES of it; each wait is for so many seconds. Chunks are not put together.

    Raises OSError, and ValueError for what is no address or no HTTP answer.
    """
    host, port = address(endpoint)
    named = {"Host": f"[{host}]" if ":" in host else host, "Connection": "close", "Content-Length": "0", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("a header that HTTP cannot carry")
    connection = _connected(host, port, timeout_s)
    try:
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        return _answer(connection)
    finally:
        connection.close()


def address(endpoint: str) -> tuple[str, int]:
    """Host and port of `http://HOST[:PORT]`. Raises ValueError."""
    found = ENDPOINT.fullmatch(endpoint)
    port = int((found and found[3]) or 80)
    if not found or not 0 < port < 65536:
        raise ValueError("expected http://HOST[:PORT]")
    return found[1] or found[2], port


def _connected(host: str, port: int, timeout_s: float) -> socket:
    problem: OSError | None = None
    for family, kind, protocol, _, where in getaddrinfo(host, port, 0, SOCK_STREAM):
        connection = socket(family, kind, protocol)
        connection.settimeout(timeout_s)
        try:
            connection.connect(where)
        except OSError as why:
            connection.close()
            problem = why
        else:
            return connection
    raise problem or OSError(f"{host} has no address")


def _answer(connection: socket) -> tuple[int, bytes]:
    data = b""
    while True:
        piece = connection.recv(MAX_BYTES)
        data += piece
        head, end, body = data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        whole = min(int(length[1]), MAX_BYTES) if length else MAX_BYTES
        if not piece or (len(body) >= whole if end else len(data) > MAX_BYTES):
            break
    status = STATUS.match(head)
    if not (status and end):
        raise ValueError("no HTTP answer")
    return int(status[1]), body[:whole]
