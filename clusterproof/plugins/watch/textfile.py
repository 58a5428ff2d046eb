"""`--textfile`: metrics in a file for node_exporter, replaced atomically, and emptied when the watch ends."""

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
MODE = 0o644  # node_exporter is another user
MAX_HEAD, MAX_WORDS = 1 << 16, 60  # bytes of a file that is there, and characters of its line


class NoTextfile(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """A file that cannot be written; the message says why."""


class Textfile:
    """The file, written from its creation until it is closed."""

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
        """Leave a file that says that the watch is over, and nothing else."""
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
    """The first value in a file that is there already and is no watch's; empty where there is none, or no such file."""
    own, head = f"{PREFIX}_", b""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(MAX_HEAD) + file.readline(len(own))  # by which a line that the limit cuts is known
    lines = head.decode("utf-8", "replace").splitlines()
    return next((line for line in lines if line.strip() and not line.startswith(("#", own))), "")


def write(path: Path, what: Collector) -> None:
    """Put a whole file in the place of the one that is there. Raises OSError, and leaves that."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(what)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
            os.fchmod(file.fileno(), MODE)  # whatever the umask
            file.write(generate_latest(registry))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
