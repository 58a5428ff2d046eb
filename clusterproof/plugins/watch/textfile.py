"""`--textfile`: metrics in a file for node_exporter, always complete, and marked as ended with the watch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.watch.metrics import PREFIX, Metrics, Snapshot, WatchEnded
from clusterproof.plugins.watch.own_health import WHY, Outage

SUFFIX = ".prom"
MODE = 0o644  # node_exporter runs as another user
MAX_HEAD, MAX_WORDS = 1 << 16, 60  # bytes of an existing file, and characters of its line that are shown


class NoTextfile(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """A file that cannot be written; the message says why."""


class Textfile:
    """Written on creation, then repeatedly until closed."""

    def __init__(self, path: Path, every_s: float, look: Callable[[], Snapshot], say: Callable[[str], object]) -> None:
        """Raises NoTextfile."""
        if path.suffix != SUFFIX:
            raise NoTextfile(
                f"--textfile is {str(path)[:200]!r}; expected a file NAME{SUFFIX}: node_exporter reads no other"
            )
        if other := foreign_line(path):
            raise NoTextfile(
                f"--textfile {path} has {printable(other, MAX_WORDS)!r}, which no watch has written; "
                "expected a file of its own, as it is replaced"
            )
        self._path, self._every_s, self._look = path, every_s, look
        self.outage = Outage(say, f"{path} is not written: {WHY}; watching goes on", f"{path} is written again")
        self._is_over = threading.Event()
        try:
            write(path, Metrics(look))
        except OSError as problem:
            raise NoTextfile(f"--textfile {path}: {problem.strerror}; expected a file that may be written") from None
        self._thread = threading.Thread(target=self._run, name="watch-textfile", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave a file that only says that the watch has ended."""
        self._is_over.set()
        self._thread.join()
        self._write(WatchEnded(self._look().cluster))

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self._write(Metrics(self._look))

    def _write(self, what: Collector) -> None:
        try:
            write(self._path, what)
        except OSError as problem:
            self.outage.failed(problem.strerror or problem)
        else:
            self.outage.worked()


def foreign_line(path: Path) -> str:
    """The first metric in an existing file that is not from a watch; empty if there is none, or no such file."""
    own, head = f"{PREFIX}_", b""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(MAX_HEAD) + file.readline(len(own))  # completes a line that the limit would cut
    lines = head.decode("utf-8", "replace").splitlines()
    return next((line for line in lines if line.strip() and not line.startswith(("#", own))), "")


def write(path: Path, what: Collector) -> None:
    """Replace the file atomically. Raises OSError, leaving the old one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(what)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
            os.fchmod(file.fileno(), MODE)  # regardless of the umask
            file.write(generate_latest(registry))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
