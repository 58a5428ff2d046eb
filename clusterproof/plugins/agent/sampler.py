"""The program that stays on a node during a job: samples at each tick, follows the kernel log, and exits by itself.

Each line that it prints is the nonce and one JSON object, with its number as `n`. It exits when its standard input
closes, or when nothing has arrived there for a while, because a node does not notice a cut connection. Where no input
arrives at all, as in a pod, whoever started it has to end it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from binascii import a2b_base64

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.source import Source

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Protocol

    class Log(Protocol):
        """The follower of the kernel log: `why_not` if it cannot, `is_device` if poll() reports new records.

        `lost` is how many records were overwritten before they were read.
        """

        why_not: str
        is_device: bool
        file: int
        boot_id: str
        lost: int

        def lines(self) -> list[list[object]]:
            """The new lines."""


INPUT, OUTPUT = 0, 1
POLL_S = 1.0  # polling interval of a kernel log that is no device
FIRST_S = 15.0  # for a source's first answer
RESTART_S = 60.0  # without an answer until a source is restarted
IDLE_S = 120.0  # without a byte from the watcher


def main(
    sources: dict[str, str],
    of_log: str,
    every_s: float,
    root: str,
    is_kept_alive: bool,
    mounts: tuple[str, ...],
    nonce: str,
    sudo: str,
) -> None:
    """Sample until the reader is gone, then exit. Sources are given with their modules, and so is the log.

    The last argument of the command line is the position from which the log is followed.
    """
    running: list[Source] = []
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, _stop)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.chdir("/")
        node = Node(root)
        log: Log = importlib.import_module(of_log).Follower(node, tuple(json.loads(a2b_base64(sys.argv[-1]))))
        own = Node(root, mounts=mounts)
        running += [Source(name, module, own, max(FIRST_S, every_s)) for name, module in sources.items()]
        stream = _Stream(nonce)
        stream.send(_hello(log, sudo))
        _Loop(running, log, every_s, is_kept_alive, stream).go()
    except (BrokenPipeError, ConnectionError):
        pass  # the reader is gone
    except Exception:  # a bug of ours: the error is sent in place of the answer's end
        sys.excepthook(*sys.exc_info())
    finally:
        for source in running:
            source.kill()
        os._exit(0)


def _hello(log: Log, sudo: str) -> dict[str, object]:
    return {
        "sampler": 1,
        "boot_id": log.boot_id,
        "python": sys.version.split()[0],
        "uid": os.geteuid(),
        "sudo": sudo,
        "log": log.why_not,
        **_moment(),
    }


def _moment() -> dict[str, object]:
    """The current time: wall clock and time since boot."""
    return {"now": round(time.time(), 3), "up": round(time.clock_gettime(time.CLOCK_BOOTTIME), 3)}


class _Loop:
    """The sampler's main loop."""

    def __init__(self, sources: list[Source], log: Log, every_s: float, is_kept_alive: bool, stream: _Stream) -> None:
        self.sources, self.log, self.every_s, self.stream = sources, log, every_s, stream
        self.is_kept_alive = is_kept_alive
        self.tick_timeout_s = min(5.0, 0.8 * every_s)
        self.kept_alive_at = time.monotonic()
        self.poll = select.poll()
        self.polled: dict[int, Source] = {}
        if is_kept_alive:
            self.poll.register(INPUT, select.POLLIN)
        self.poll.register(OUTPUT, 0)
        if log.is_device:
            self.poll.register(log.file, select.POLLIN)

    def go(self) -> None:
        """Run until the input ends, the output breaks, or the input has been silent for too long."""
        due = time.monotonic()
        look = due
        while not self.is_kept_alive or time.monotonic() - self.kept_alive_at < IDLE_S:
            now = time.monotonic()
            if now >= due:
                due = max(due + self.every_s, now + self.every_s / 2)  # ticks missed during suspend are skipped
                self._tick()
            if not self._wait(max(0.0, min(due, look if not self.log.is_device else due) - time.monotonic())):
                return
            if time.monotonic() >= look:
                look = time.monotonic() + POLL_S
                self._send_log()

    def _tick(self) -> None:
        moment = _moment()
        for source in self.sources:
            if source.late_s() > max(RESTART_S, source.grace_s):
                source.restart()
            if not source.answer:  # answers that arrived after their tick was sent go with this one
                source.tick()
            self._listen(source)
        self._await_answers()
        self.stream.send({**moment, **_answers(self.sources)})
        for source in self.sources:
            source.answer = {}
        self._send_log()

    def _await_answers(self) -> None:
        """Wait until all sources that are not already late have answered or are late. Raises BrokenPipeError."""
        until = time.monotonic() + self.tick_timeout_s
        while time.monotonic() < until and any(0 < source.late_s() <= self.tick_timeout_s for source in self.sources):
            if not self._wait(until - time.monotonic()):
                raise BrokenPipeError

    def _wait(self, seconds: float) -> bool:
        """Wait for input for so long, at most until something has arrived. False: the connection has ended."""
        for file, _ in self.poll.poll(1000 * max(0.0, seconds)):
            if file == INPUT:
                if not os.read(INPUT, 4096):
                    return False
                self.kept_alive_at = time.monotonic()
            elif file == OUTPUT:
                return False
            elif file == self.log.file:
                self._send_log()
            elif file in self.polled:
                self.polled[file].receive()
                self._listen(self.polled[file])
        return True

    def _listen(self, source: Source) -> None:
        """Poll the source's current pipe."""
        for file, known in list(self.polled.items()):
            if known is source and file != source.pipe:
                self.poll.unregister(file)
                del self.polled[file]
        if source.pipe >= 0 and source.pipe not in self.polled:
            self.poll.register(source.pipe, select.POLLIN)
            self.polled[source.pipe] = source

    def _send_log(self) -> None:
        lines = self.log.lines()
        lost, self.log.lost = self.log.lost, 0
        if lines or lost:
            self.stream.send({**_moment(), "log": lines, **({"lost": lost} if lost else {})})


def _answers(sources: list[Source]) -> dict[str, object]:
    """The sources' answers, and why others have none."""
    answers: dict[str, object] = {}
    facts: dict[str, object] = {}
    late: dict[str, object] = {}
    for source in sources:
        if source.answer:
            answers[source.name] = source.answer.get("values")
            facts.update(source.answer.get("facts") or {})  # type: ignore[call-overload]
            if source.answer.get("fixed"):
                answers[f"{source.name}_fixed"] = source.answer["fixed"]
        if source.answer.get("absent") or source.asked_at or (source.words and not source.is_absent):
            late[source.name] = [round(source.late_s(), 1), source.words]
    return {**answers, **({"facts": facts} if facts else {}), **({"late": late} if late else {})}


class _Stream:
    """The output: numbered lines show when one arrives twice or not at all."""

    def __init__(self, nonce: str) -> None:
        self.nonce, self.number = nonce, 0

    def send(self, message: dict[str, object]) -> None:
        """Print a message as one line. Raises BrokenPipeError if the reader is gone."""
        line = f"{self.nonce} {json.dumps({'n': self.number, **message}, separators=(',', ':'))}\n".encode()
        self.number += 1
        while line:
            try:
                line = line[os.write(OUTPUT, line) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(OUTPUT, select.POLLOUT)
                if not poll.poll(1000 * IDLE_S):
                    raise BrokenPipeError from None  # nothing was read for too long


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(number)
