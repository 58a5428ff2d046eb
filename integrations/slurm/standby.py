"""The way to this machine that costs least: a process forked while this one is small, which becomes the probe."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from clusterproof.plugins.connection import MAX_ANSWER_BYTES, Answer, Limits, Program
from clusterproof.plugins.evidence import Unreached
from clusterproof.plugins.inventory.model import Target
from clusterproof.plugins.probe.options import FOLDER, ProbeOptions

CHUNK_BYTES = 65536
MAX_DESCRIPTORS = 4096
BURY_S = 0.1  # what the kernel does not let die is not waited for


class StandBy:
    """A connection to this machine. Its process loads the probe at once, and begins when it is told what to read.

    The probe's own files are loaded from where they are installed: nothing is packed, sent, unpacked and compiled.
    """

    def __init__(self) -> None:
        ordered, self._orders = os.pipe()
        self._answers, answering = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._orders)
            os.close(self._answers)
            _stand_by(ordered, answering)
        os.close(ordered)
        os.close(answering)

    def program(
        self, leaves: Iterable[str], options: ProbeOptions, _further: Sequence[Path], _on_stdin: bool
    ) -> tuple[Program, str]:
        """What `run` tells the process, and the nonce of its answer."""
        nonce = "cp" + secrets.token_hex(5)
        patience = sorted(((options.deadline_s(leaf), leaf) for leaf in leaves), key=lambda one: (-one[0], one[1]))
        deadlines = {leaf: leaf_s for leaf_s, leaf in patience}  # slowest first, as the payload has them
        limits = (options.host_root, options.mount_s, options.whole_s(deadlines))
        order = [deadlines, *limits, options.checkpoints, options.log_cursor, nonce, ""]
        return Program("", json.dumps(order).encode() + b"\n"), nonce

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Let the process begin, and take its answer for the one target that there is."""
        began = time.monotonic()
        os.write(self._orders, program.stdin)
        output, in_time = self._answer(began + limits.answer_s)
        self.end()
        unreached = None if in_time else Unreached.TIMED_OUT
        detail = "" if in_time else f"did not end within {limits.answer_s:g} s; {len(output)} bytes came"
        for target in targets:
            answered(target, Answer(output, unreached, detail, time.monotonic() - began))

    def end(self) -> None:
        """Kill the process with its group; what it has left behind sees that nobody listens. Twice is fine."""
        if not self._pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self._orders)
        os.close(self._answers)
        until = time.monotonic() + BURY_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)
        self._pid = 0

    def _answer(self, deadline: float) -> tuple[bytes, bool]:
        """What the process says until it ends, and whether it ended in time."""
        output = bytearray()
        while len(output) < MAX_ANSWER_BYTES:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._answers], [], [], left_s)[0]:
                return bytes(output), False
            read = os.read(self._answers, CHUNK_BYTES)
            if not read:
                break
            output += read
        return bytes(output), True


def _stand_by(ordered: int, answering: int) -> None:
    """Become the probe. Never returns."""
    try:
        os.setsid()
        for standard, descriptor in enumerate((ordered, answering, answering)):
            os.dup2(descriptor, standard)
        os.closerange(3, MAX_DESCRIPTORS)  # among them the lock of the run, which must not outlive it
        _load()
        order = sys.stdin.readline()
        if order:
            _probe(*json.loads(order))
    finally:
        os._exit(0)


def _load() -> None:
    """Import every file of the probe, for all the processes that it is going to fork."""
    for file in sorted(FOLDER.glob("[a-z]*.py")):
        import_module(f"clusterproof.plugins.probe.{file.stem}")


def _probe(deadlines: dict[str, float], *order: Any) -> None:
    """Read what the order says, and end this process."""
    from clusterproof.plugins.probe.run import main

    nonce = order[-2]
    print(f"{nonce}:begin.", flush=True)  # noqa: T201 - the frame's first word
    main(deadlines, *order)
