"""A shell command that runs in a process group of its own. Travels; standard library only, for Python 3.8."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from clusterproof.plugins.benchmarks.launchers.cleanup import VARIABLE
from clusterproof.plugins.benchmarks.launchers.pipes import BoundedOutput

QUIET_S = 0.5  # how long to read on once the shell has ended: what it left behind may hold its output open


class Command:
    """One command: what it printed, bounded, and how it ended."""

    def __init__(self, shell: str, environment: dict[str, str], run: str, most_bytes: int) -> None:
        self.exit: int | None = None
        self.seconds = 0.0
        self._output = BoundedOutput(most_bytes)
        self._began = time.monotonic()
        self._ended = 0.0
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, VARIABLE: run},
            start_new_session=True,
        )
        assert self.process.stdout
        self.pipe = self.process.stdout.fileno()

    def take_output(self) -> None:
        """Take what its pipe brings; at the end of it, the pipe is -1."""
        read = os.read(self.pipe, 65536)
        if not read:
            self._close()
            return
        self._output.add(read)

    def has_ended(self) -> bool:
        """Whether it is over, with its output."""
        status = self.process.poll()
        if status is None:
            return False
        now = time.monotonic()
        if not self._ended:
            self.exit, self._ended, self.seconds = status, now, now - self._began
        if self.pipe >= 0 and now - self._ended > QUIET_S:
            self._close()
        return self.pipe < 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal its whole group."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

    def to_json(self) -> dict[str, Any]:
        """Its output and how it ended; without an exit status where it was killed."""
        return {
            "text": self._output.kept().decode("utf-8", "replace"),
            "exit": self.exit,
            "seconds": round(self.seconds or time.monotonic() - self._began, 3),
        }

    def _close(self) -> None:
        assert self.process.stdout
        self.process.stdout.close()
        self.pipe = -1
