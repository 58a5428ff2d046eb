"""Programs that run during a test, each with a log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_S = 600.0
END_S = 10.0
LOOK_S, SELDOM_S = 0.05, 0.5  # between two looks; each may ask an API server, or start kubectl


@dataclass(frozen=True)
class Running:
    """One running program."""

    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(START_S)


@contextlib.contextmanager
def running(log: Path, command: Sequence[str | Path]) -> Iterator[Running]:
    """Run a program in its own process group until the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=output, start_new_session=True, cwd="/")
    started = Running(process, log)
    try:
        yield started
    finally:
        started.stop()


def started_again(ended: Running, command: Sequence[str | Path]) -> Running:
    """Restart a program that was stopped, with the same log."""
    with ended.log.open("ab") as log:
        process = subprocess.Popen(list(command), stdout=log, stderr=log, start_new_session=True, cwd="/")
    return Running(process, ended.log)


def wait_until(is_so: Callable[[], object], what: str, of: Running | None = None) -> None:
    """Wait for a condition, looking less often the longer it takes.

    Raises TimeoutError with the program's last output, at once if it has ended.
    """
    began = time.monotonic()
    while not is_so():
        waited = time.monotonic() - began
        has_ended = of is not None and of.process.poll() is not None
        if has_ended or waited > START_S:
            raise TimeoutError(f"not {what}{': ' + of.last_words() if of else ''}")
        time.sleep(min(max(LOOK_S, waited / 10), SELDOM_S))
