"""Runs moto's server behind a proxy that answers in its place when a test says so."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tests.aws import cbor
from tests.transport.loopback import free_port

START_S = 600.0
JSON = "application/x-amz-json-1.1"
XML = "text/xml"
Response = tuple[int, bytes, str]  # status, body and content type
Change = Callable[[dict[str, Any]], None]
Serve = Callable[[dict[str, Any]], "dict[str, Any] | Answer | str"]  # text is the XML of a service that uses it


@dataclass(frozen=True)
class Answer:
    """The proxy's answer in place of the service's."""

    status: int
    code: str = ""
    message: str = ""


DENIED = Answer(400, "AccessDeniedException", "User: someone is not authorized to perform this")
THROTTLED = Answer(400, "ThrottlingException", "Rate exceeded")


@dataclass
class Service:
    """AWS in a test: `calls` are the requested actions, in order; `signed` has the service's name too."""

    url: str
    moto_url: str
    calls: list[str] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    requests: dict[str, Change] = field(default_factory=dict)
    served: dict[str, Serve] = field(default_factory=dict)
    delay_s: dict[str, float] = field(default_factory=dict)
    allows_first: dict[str, int] = field(default_factory=dict)  # calls before `answers` apply

    def says(self, action: str, *answers: Answer) -> None:
        """Give these answers to an action's next calls; the last one repeats if it is a denial."""
        self.answers[action] = list(answers)

    def serves(self, action: str, serve: Serve) -> None:
        """Have `serve` answer an action instead of moto, given the request."""
        self.served[action] = serve

    def rewrites(self, action: str, change: Change) -> None:
        """Pass every answer to an action through `change`."""
        self.changes[action] = change


def environment(service: Service, region: str = "us-west-2") -> dict[str, str]:
    """The variables with which boto3 finds the service."""
    return {
        "AWS_ENDPOINT_URL": service.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }


@contextmanager
def moto() -> Iterator[str]:
    """Run a moto server; yields its URL."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    variables = {**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}  # a reset would load Amazon's hundreds again
    server = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()  # it stores nothing, and on SIGTERM would finish its requests first
        server.wait()


@contextmanager
def service_before(moto_url: str) -> Iterator[Service]:
    """Run the proxy in front of a moto server that has been reset."""
    urllib.request.urlopen(urllib.request.Request(f"{moto_url}/moto-api/reset", method="POST")).close()
    service = Service("", moto_url)

    server = ThreadingHTTPServer(("127.0.0.1", 0), _proxy(moto_url, service))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


def _proxy(moto_url: str, service: Service) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            action = _action(dict(self.headers), body) or self.path.partition("/operation/")[2]
            service.calls.append(action)
            service.signed.append(f"{_signed_for(self.headers.get('Authorization', ''))}:{action}")
            time.sleep(service.delay_s.get(action, 0.0))
            is_cbor = self.headers.get("Content-Type") == cbor.TYPE
            response = _served(service, action, cbor.as_json(body) if is_cbor else body)
            if response and is_cbor and response[1].startswith(b"{"):
                response = response[0], cbor.of_json(response[1]), cbor.TYPE
            status, content, kind = response or self._of_moto(action, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def _of_moto(self, action: str, body: bytes) -> Response:
            if action in service.requests:
                request = json.loads(body)
                service.requests[action](request)
                body = json.dumps(request).encode()
            status, content, kind = _forward(self.command, f"{moto_url}{self.path}", dict(self.headers), body)
            if status == 200 and action in service.changes:
                record = json.loads(content)
                service.changes[action](record)
                content = json.dumps(record).encode()
            return status, content, kind

        def log_message(self, *_: object) -> None:
            pass

    return Proxy


def _served(service: Service, action: str, body: bytes) -> Response | None:
    """The test's answer in place of moto's, if there is one."""
    waiting = service.answers.get(action)
    if service.allows_first.get(action, 0) >= service.calls.count(action):
        waiting = None
    if waiting:
        answer = waiting.pop(0) if len(waiting) > 1 or waiting[0] is THROTTLED else waiting[0]
        return _refused(answer, body)
    if action not in service.served:
        return None
    served = service.served[action](json.loads(body) if _is_json(body) else _form(body))
    if isinstance(served, Answer):
        return _refused(served, body)
    return (200, served.encode(), XML) if isinstance(served, str) else (200, json.dumps(served).encode(), JSON)


def _is_json(body: bytes) -> bool:
    return body[:1] == b"{"


def _form(body: bytes) -> dict[str, Any]:
    return {key: values[0] for key, values in parse_qs(body.decode()).items()}


def _refused(answer: Answer, body: bytes) -> Response:
    """An error as the service would return it: JSON, or XML for a form-encoded request."""
    if _is_json(body) or not answer.code:
        return answer.status, _error_of(answer), JSON
    errors = f"<Error><Code>{answer.code}</Code><Message>{answer.message}</Message></Error>"
    return answer.status, f"<Response><Errors>{errors}</Errors><RequestID>1</RequestID></Response>".encode(), XML


def _signed_for(authorization: str) -> str:
    """The service that a request is signed for."""
    match = re.search(r"Credential=\S+?/\d{8}/[\w-]+/([\w-]+)/aws4_request", authorization)
    return match[1] if match else ""


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("moto's server did not start")


def _action(headers: dict[str, str], body: bytes) -> str:
    """The operation that a request names, in a header or a form."""
    target = next((value for key, value in headers.items() if key.lower() == "x-amz-target"), "")
    match = re.search(rb"(?:^|&)Action=(\w+)", body)
    return target.rpartition(".")[2] or (match[1].decode() if match else "")


def _error_of(answer: Answer) -> bytes:
    if not answer.code:
        return answer.message.encode()
    return json.dumps({"__type": answer.code, "message": answer.message}).encode()


def _forward(method: str, url: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
    kept = {
        key: value for key, value in headers.items() if key.lower() not in ("content-length", "connection", "expect")
    }
    request = urllib.request.Request(url, data=body, headers=kept, method=method)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.read(), answer.headers.get("Content-Type", "")
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read(), problem.headers.get("Content-Type", "")
