"""Receivers of notifications for tests: a web server and a program, which can be down and keep what they get."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch.notify import notifier
from clusterproof.plugins.watch.notify.notifier import Notifier
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile
from clusterproof.plugins.watch.notify.receiver import ReceiverProgram
from tests.watch.conditions import until

# Posts its input like a site's own program, and passes on how long the server asks it to wait.
POSTS = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], sys.stdin.buffer.read()), timeout=600)
except urllib.error.HTTPError as refused:
    after = refused.headers.get("Retry-After")
    print(f"Retry-After: {after}" if after else "", file=sys.stderr)
    sys.exit(f"HTTP {refused.code}")
except OSError as problem:
    sys.exit(str(problem))
"""


def change(node: str, kind: ChangeKind = ChangeKind.OPENED, rule: str = "watch.silent", device: str = "") -> Change:
    return Change(kind, Key(node, device, rule), Verdict.FAIL, f"of {node}; expected none", 1.0)


@dataclass
class WebServer:
    """Reads each POST and answers it with `status`."""

    status: int = 200
    after: str = ""  # Retry-After
    slow_s: float = 0.0
    port: int = 0
    taken: list[Any] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)

    @property
    def program(self) -> list[str]:
        """The command line of a program that posts there."""
        return [sys.executable, "-c", POSTS, f"http://127.0.0.1:{self.port}/"]

    @property
    def said(self) -> list[tuple[str, str]]:
        """Kind and nodes of each accepted notification, without repetitions, which have the same id."""
        return list(
            {notification["id"]: (notification["kind"], notification["nodes"]) for notification in self.taken}.values()
        )


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A real server on a port of its own."""
    server = WebServer()
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notification = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, after = server.status, server.after
            is_over.wait(server.slow_s)
            (server.taken if status == 200 else server.refused).append(notification)
            self.send_response(status)
            if after:
                self.send_header("Retry-After", after)
            self.end_headers()

        def log_message(self, *notification: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        listening.handle_error = lambda *_: None  # type: ignore[method-assign] # who was killed reads no answer
        server.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            is_over.set()
            listening.shutdown()
            thread.join()


def lines(path: Path) -> list[Any]:
    """A program's kept notifications, one per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, for tests."""
    monkeypatch.setattr(notifier, "GATHER_S", 0.05)
    monkeypatch.setattr(notifier, "FIRST_S", 0.02)
    monkeypatch.setattr(notifier, "MAX_S", 0.1)


class Notified:
    """A notifier with the tests' receiver, and its messages."""

    def __init__(self, command: Sequence[str], folder: Path | None = None, remind_s: float | None = None) -> None:
        self.own: list[str] = []
        path = folder / "outbox-1.jsonl" if folder else None
        self.file = OutboxFile(path, Outbox("prod"), self.own.append)
        self.notifier = Notifier(ReceiverProgram(command), self.file, self.own.append, remind_s)

    def until(self, is_so: Callable[[], object]) -> Notified:
        until(is_so, lambda: (self.notifier.counts, self.own))
        return self

    def counted(self, outcome: str, count: int = 1) -> Notified:
        return self.until(lambda: self.notifier.counts[outcome] >= count)


def keeping(file: Path, more: str = "") -> list[str]:
    """The command line of a program that keeps its input, and runs further code."""
    return [sys.executable, "-c", f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read()); {more}"]
