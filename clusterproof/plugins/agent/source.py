"""One sampled source, in its own process: one that hangs loses only its own values, and is reported."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time

from clusterproof.plugins.agent.process_group import detach, kill, living
from clusterproof.plugins.agent.reading import Absent, Node

MAX_LINE_BYTES = 256 * 1024
TICK = b"t"


class Source:
    """A sampling process, as seen by the sampler. `pipe` receives its answers."""

    def __init__(self, name: str, module: str, node: Node, first_s: float) -> None:
        """Its first tick may take `first_s` seconds: a driver may have to be started."""
        self.name = name
        self.answer: dict[str, object] = {}
        self.asked_at = 0.0  # time.monotonic(); 0: no answer is due
        self.words = ""  # why it does not answer, or is not there
        self.is_absent = False
        self.pipe = -1
        self.grace_s = first_s
        self._module, self._node, self._first_s = module, node, first_s
        self._bid, self._pid = -1, 0
        self._line = b""

    def tick(self) -> None:
        """Request a sample, unless an answer is due."""
        if self.asked_at or self.is_absent:
            return
        if not self._pid:
            self._start()
        try:
            os.write(self._bid, TICK)
            self.asked_at = time.monotonic()
        except OSError:
            self._over("it ended")

    def receive(self) -> None:
        """Handle output on its pipe."""
        try:
            piece = os.read(self.pipe, 65536)
        except OSError:
            piece = b""
        self._line += piece
        if not piece or len(self._line) > MAX_LINE_BYTES:
            self.kill()
            self._over("it ended" if not piece else "it sent too much")
        elif piece.endswith(b"\n"):
            answer = json.loads(self._line)
            self._line, self.asked_at, self.grace_s = b"", 0.0, 0.0
            self.is_absent = bool(answer.get("absent"))
            self.words = str(answer.get("absent") or answer.get("broke") or "")
            self.answer = answer
            if self.is_absent:
                self.kill()
                self._over(self.words)

    def late_s(self) -> float:
        """How long its answer has been due."""
        return time.monotonic() - self.asked_at if self.asked_at else 0.0

    def restart(self) -> None:
        """Kill it, and start it again once it is gone; one that survives SIGKILL stays, and reports where it hangs."""
        self.kill()
        if self._is_gone():
            self._over(self.words or "it did not answer, and was ended")
        else:
            self.words = living(self._pid)[0] or "SIGKILL does not end it"

    def kill(self) -> None:
        """Send SIGKILL to it and everything it started."""
        if self._pid:
            kill(self._pid)

    def _is_gone(self) -> bool:
        try:
            return not self._pid or os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except OSError:
            return True

    def _over(self, why: str) -> None:
        for end in (self.pipe, self._bid):
            if end >= 0:
                os.close(end)
        self._is_gone()
        self.pipe = self._bid = -1
        self._pid, self.asked_at, self.words, self._line = 0, 0.0, why, b""
        self.grace_s = self._first_s

    def _start(self) -> None:
        reading, self._bid = os.pipe()
        self.pipe, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            live(self._module, self._node, reading, writing)
        os.close(reading)
        os.close(writing)


def live(module: str, node: Node, bidden: int, answers: int) -> None:
    """Be the process of that module: for each byte received, sample once and print a line. Never returns."""
    try:
        detach((bidden, answers), signal.SIGPIPE)
        sampler = None
        while os.read(bidden, 1):
            try:
                if sampler is None:
                    sampler = importlib.import_module(module).Sampler(node)
                    answer = {"fixed": sampler.fixed(), **sampler.sample(node)}
                else:
                    answer = sampler.sample(node)
            except Absent as why:
                answer = {"absent": str(why)[:200]}
            except BaseException as crash:  # any failure loses only this source's values of this tick
                answer = {"broke": f"{type(crash).__name__}: {crash}"[:200]}
            line = json.dumps(answer).encode() + b"\n"
            while line:
                line = line[os.write(answers, line) :]
    finally:
        os._exit(0)
