"""Receivers of notifications; among them a program that is run with the notification on its input."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.watch.notify import Notification

TIMEOUT_S = 30.0  # for one notification
MAX_WORDS = 200  # characters of its error output that are shown
MAX_OUTPUT = 1 << 20  # bytes at the end of its standard error in which that and a line `Retry-After` are looked for
ROUNDS = 200_000  # a tenth of a second
_SALT = b"clusterproof watch --notify"
MAX_AFTER_S = 3600.0  # maximum pause that a receiver may request
_AFTER = re.compile(r"^retry-after:(.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one delivery: why it failed, if it did, and the pause in seconds that the receiver requests."""

    why: str = ""
    after_s: float = 0.0


class Receiver(Protocol):
    """A receiver of notifications."""

    @property
    def name(self) -> str:
        """Its name for display."""

    @property
    def identity(self) -> str:
        """Identifies its outbox without revealing secrets."""

    def send(self, notification: Notification) -> Delivery:
        """Send a notification, and wait for the outcome. Raises OSError."""

    def cancel(self) -> None:
        """Cancel the delivery in progress, from another thread."""


class NoReceiver(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """An invalid receiver; the message says why."""


def identity_of(text: str) -> str:
    """Hash the value of `--notify`, with many rounds, so that a password in it cannot be guessed from the hash."""
    return hashlib.pbkdf2_hmac("sha256", text.encode("utf-8", "surrogateescape"), _SALT, ROUNDS).hex()[:32]


def arguments_of(command: str) -> list[str]:
    """Split the program and its arguments; no shell is involved. Raises NoReceiver."""
    try:
        arguments = shlex.split(command)
    except ValueError as wrong:
        raise NoReceiver(f"--notify is {command[:80]!r}: {wrong}; expected a program and its arguments") from None
    if not arguments:
        raise NoReceiver("--notify is empty; expected a program and its arguments")
    if not shutil.which(arguments[0]):
        raise NoReceiver(
            f"--notify: no program {arguments[0]!r:.80} that may be run; expected its path, or a name on PATH, or a URL"
        )
    return arguments


def after_s(header: str, now: float) -> float:
    """The seconds of a Retry-After, which is a number or a date; 0 if it is neither."""
    try:
        seconds = (
            float(header) if header.strip().isdecimal() else email.utils.parsedate_to_datetime(header).timestamp() - now
        )
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
    return min(max(0.0, seconds), MAX_AFTER_S)


class ReceiverProgram:
    """A program and its arguments. It can request a pause by printing `Retry-After: SECONDS`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._words = arguments
        self.identity = identity_of(shlex.join(arguments))
        self._running: subprocess.Popen[bytes] | None = None
        self.name = arguments[0].rpartition("/")[2]

    def send(self, notification: Notification) -> Delivery:
        """Run it. Processes that it started are killed at its deadline. Raises OSError."""
        with tempfile.TemporaryFile() as errors:
            process = self._running = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                process.communicate(notification.to_json().encode(), TIMEOUT_S)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.communicate()
                return Delivery(f"{self.name} did not end within {TIMEOUT_S:.0f} s")
            finally:
                self._running = None
            if process.returncode == 0:
                return Delivery()
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_OUTPUT))
            return _failed(self.name, process.returncode, errors.read().decode("utf-8", "replace"))

    def cancel(self) -> None:
        """Kill it if it is running."""
        if running := self._running:
            _kill(running)


def _failed(name: str, code: int, output: str) -> Delivery:
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    later = _AFTER.search(output)
    lines = [line.strip() for line in printable(_AFTER.sub("", output)[-MAX_WORDS:]).splitlines() if line.strip()]
    last_line = f": {lines[-1]}" if lines else ""
    return Delivery(f"{name} ended with {how}{last_line}", after_s(later[1], time.time()) if later else 0.0)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
