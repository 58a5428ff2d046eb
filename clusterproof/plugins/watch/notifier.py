"""`--notify COMMAND`: runs a program for what has changed, one at a time; its failure costs a line, never the watch."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.printable import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch.outage import Outage
from clusterproof.plugins.watch.states import Change, Kind

GATHER_S = 2.0  # from the first change on: a switch that fails takes its nodes within that
TIMEOUT_S = 30.0  # for the program
END_S = 10.0  # for all that is left to be sent, when the watch ends
MAX_WORDS = 200  # characters of what it says of its failure
VERSION = 1
MAX_WAITING = 256  # notifications; of more the oldest are dropped
MAX_DEVICES = 64  # that one names
MAX_MESSAGE = 1_000  # characters


@dataclass(eq=False)
class Notification:
    """Changes of one kind, by one check, with one verdict."""

    kind: Kind
    rule: str
    verdict: Verdict
    message: str  # of the first
    began_s: float  # since 1970
    nodes: set[str] = field(default_factory=set)
    devices: dict[str, None] = field(default_factory=dict)  # `gpu003 GPU 1`, as they came
    changes: int = 0

    def takes(self, change: Change) -> bool:
        """Whether a change is of the same."""
        return (self.kind, self.rule, self.verdict) == (change.kind, change.key.rule, change.verdict)

    def add(self, change: Change) -> None:
        """Include this one too."""
        self.changes += 1
        self.nodes.add(change.key.node)
        if change.key.device and len(self.devices) < MAX_DEVICES:
            self.devices[f"{change.key.node} {change.key.device}"] = None

    def to_json(self, cluster: str) -> str:
        """One object, on a line."""
        data = {
            "version": VERSION,
            "cluster": cluster,
            "time": round(self.began_s, 3),
            "kind": self.kind.value,
            "check": self.rule,
            "verdict": self.verdict.value,
            "nodes": fold(self.nodes),
            "node_count": len(self.nodes),
            "devices": list(self.devices),
            "change_count": self.changes,
            "message": self.message,
        }
        return json.dumps(data) + "\n"


class Waiting:
    """Notifications that are still to be sent, in the order in which they began."""

    def __init__(self) -> None:
        self._all: list[Notification] = []
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, changes: Iterable[Change], wall_s: float) -> None:
        """Add these too: to what waits already, unless something else of the same check came in between."""
        for change in changes:
            of_rule = [one for one in self._all if one.rule == change.key.rule]
            last = next((one for one in reversed(of_rule) if one.takes(change)), None)
            if last is None or any(change.key.node in one.nodes for one in of_rule[of_rule.index(last) + 1 :]):
                message = printable(change.message, MAX_MESSAGE)
                last = Notification(change.kind, change.key.rule, change.verdict, message, wall_s)
                self._all.append(last)
            last.add(change)
        self.dropped += max(0, len(self._all) - MAX_WAITING)
        del self._all[:-MAX_WAITING]

    def take(self) -> Notification | None:
        """The first."""
        return self._all.pop(0) if self._all else None

    def clear(self) -> int:
        """Drop all of them; how many there were."""
        count = len(self._all)
        self._all.clear()
        return count


class NoProgram(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """What cannot be run; the message says why."""


def words_of(command: str) -> list[str]:
    """The program and its arguments; no shell sees them. Raises NoProgram."""
    try:
        words = shlex.split(command)
    except ValueError as wrong:
        raise NoProgram(f"--notify is {command[:80]!r}: {wrong}; expected a program and its arguments") from None
    if not words:
        raise NoProgram("--notify is empty; expected a program and its arguments")
    if not shutil.which(words[0]):
        raise NoProgram(f"--notify: no program {words[0]!r:.80} that may be run; expected its path, or a name on PATH")
    return words


class Notifier:
    """A thread that runs the program, from when it is made until it is closed."""

    def __init__(self, words: Sequence[str], cluster: str, say: Callable[[str], object]) -> None:
        self._words, self._cluster, self._say = words, cluster, say
        self._waiting, self._is_over = Waiting(), False
        self._change = threading.Condition()
        self._since = 0.0  # when the first of those that wait came
        self._running: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter({"delivered": 0, "failed": 0, "dropped": 0})
        self.outage = Outage(
            say, "a notification was not delivered: {why}; watching goes on", "notifications are delivered again"
        )
        self._thread = threading.Thread(target=self._keep, name="watch-notify", daemon=True)
        self._thread.start()

    def said(self, changes: Sequence[Change]) -> None:
        """Notify of these, soon."""
        if changes:
            with self._change:
                self._since = self._since if len(self._waiting) else time.monotonic()
                self._waiting.add(changes, time.time())
                self._change.notify()

    def close(self) -> None:
        """Send what is left, as far as there is time."""
        with self._change:
            self._is_over = True
            self._change.notify()
        self._thread.join(END_S)
        with self._change:
            left, running = self._waiting.clear(), self._running
        if running:
            _kill(running)
        self._thread.join(END_S)
        if left:
            self._say(f"notifications that were not delivered, for the watch has ended: {left}")

    def _keep(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._is_over or len(self._waiting))
                self._change.wait_for(lambda: self._is_over, max(0.0, self._since + GATHER_S - time.monotonic()))
                one = self._waiting.take()
                self._count_dropped()
            if one is None:
                return
            self._send(one)

    def _count_dropped(self) -> None:
        if self._waiting.dropped > self.counts["dropped"]:
            self.counts["dropped"] = self._waiting.dropped
            self.outage.failed("more came than the program takes, and the oldest were dropped")

    def _send(self, one: Notification) -> None:
        try:
            why = self._run(one.to_json(self._cluster).encode())
        except OSError as problem:  # such as no room for what the program says
            why = f"{self._words[0].rpartition('/')[2]}: {problem.strerror or problem}"
        self.counts["failed" if why else "delivered"] += 1
        if why:
            self.outage.failed(f"{why} (of {one.rule}, {fold(one.nodes):.100})")
        else:
            self.outage.worked()

    def _run(self, data: bytes) -> str:
        """Why it failed, in words; empty where it did not. What it has started ends with its time. Raises OSError."""
        name = self._words[0].rpartition("/")[2]
        with tempfile.TemporaryFile() as errors:
            process = self._running = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                process.communicate(data, TIMEOUT_S)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.communicate()
                return f"{name} did not end within {TIMEOUT_S:.0f} s"
            finally:
                self._running = None
            if process.returncode == 0:
                return ""
            how = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_WORDS))
            lines = printable(errors.read().decode("utf-8", "replace")).strip().splitlines()
            return f"{name} ended with {how}{f': {lines[-1].strip()}' if lines else ''}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
