"""One HTTP request: every way in which a server may end an answer, and invalid answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from clusterproof.plugins.evidence.aws.collect_imds import MAX_BYTES, address, request

PATIENT_S = 30.0


@contextlib.contextmanager
def answering(answer: bytes, *, closes: bool) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one answer to any request: its address, and the requests."""
    requests: list[bytes] = []
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            requests.append(connection.recv(65536))
            with contextlib.suppress(OSError):
                connection.sendall(answer)
            if not closes:
                done.wait(PATIENT_S)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        done.set()
        server.join(PATIENT_S)


@pytest.mark.parametrize(
    ("answer", "closes", "expected"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n[]", True, (200, b"[]")),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", False, (404, b"")),
        (b"HTTP/1.1 200 OK\r\nServer: EC2ws\r\ncontent-length:2\r\n\r\n[]", False, (200, b"[]")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]", True, (200, b"[]")),
        (b"HTTP/1.1 401 \r\n\r\n" + b"x" * 200_000, True, (401, b"x" * MAX_BYTES)),
    ],
)
def test_an_answer_is_whole_however_it_ends(answer: bytes, closes: bool, expected: tuple[int, bytes]) -> None:
    with answering(answer, closes=closes) as (endpoint, _):
        assert request(endpoint, "GET", "/it", {}, PATIENT_S) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * MAX_BYTES,
    ],
)
def test_what_is_no_answer_of_http_is_called_so(answer: bytes) -> None:
    with answering(answer, closes=True) as (endpoint, _), pytest.raises((ValueError, ConnectionError)):
        request(endpoint, "GET", "/", {}, PATIENT_S)


def test_a_server_that_says_nothing_is_not_waited_for_any_longer() -> None:
    with answering(b"", closes=False) as (endpoint, _), pytest.raises(TimeoutError):
        request(endpoint, "GET", "/", {}, 0.05)


def test_a_real_server_understands_what_is_asked() -> None:
    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = f"{self.command} {self.path} {self.headers['Host']} {self.headers['X-Seconds']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        answer = request(f"http://127.0.0.1:{server.server_port}/", "PUT", "/latest", {"X-Seconds": "60"}, PATIENT_S)
        server.shutdown()
    assert answer == (200, b"PUT /latest 127.0.0.1 60")


@pytest.mark.parametrize("header", ["one\r\nHost: another", "caf\u00e9", "\0"])
def test_a_header_that_would_be_more_than_one_is_not_sent(header: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request("http://127.0.0.1:1", "GET", "/", {"X-Token": header}, PATIENT_S)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://169.254.169.254", ("169.254.169.254", 80)),
        ("http://[fd00:ec2::254]/", ("fd00:ec2::254", 80)),
        ("http://localhost:1338/latest", ("localhost", 1338)),
    ],
)
def test_an_address_of_http_is_a_host_and_a_port(endpoint: str, expected: tuple[str, int]) -> None:
    assert address(endpoint) == expected


@pytest.mark.parametrize(
    "endpoint", ["", "nonsense", "https://169.254.169.254", "http://[bad", "http://a:99999", "http://a:0", "http:///x"]
)
def test_what_is_no_address_of_http_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="expected http://HOST"):
        address(endpoint)
