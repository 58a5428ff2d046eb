"""Reaches this machine through a shell: no daemon, no login, the same in a container."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import (
    KEEPALIVE,
    KEEPALIVE_S,
    PROGRAM_ENDED,
    Answer,
    Connection,
    Limits,
    Program,
    Received,
    SessionPerNode,
)

_SHELL = "/bin/sh"
_CHUNK_BYTES = 65536
_END_S = 2.0  # for a program to exit by itself once its input has closed
_QUIET_S = 0.5  # how long to keep reading after the shell has ended: processes left behind may hold its output open


class Local(Connection):
    """Runs the program as a child process that never outlives its deadline."""

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` here, once for each target."""
        for target in targets:
            answered(target, _answer(program, limits))


def _answer(program: Program, limits: Limits) -> Answer:
    timeout_s = limits.answer_s
    started = time.monotonic()
    try:
        shell = subprocess.Popen(
            [_SHELL, "-c", program.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as problem:
        return Answer(unreached=Unreached.LOST, detail=f"{_SHELL} does not start: {problem.strerror}")
    try:
        output, in_time = _converse(shell, program.stdin, started + timeout_s, limits.answer_bytes)
    finally:
        _end(shell)
    seconds = time.monotonic() - started
    if in_time:
        return Answer(output=output, seconds=seconds)
    detail = f"did not end within {timeout_s:g} s; {len(output)} bytes came"
    return Answer(output, Unreached.TIMED_OUT, detail, seconds)


def _converse(shell: subprocess.Popen[bytes], stdin: bytes, deadline: float, most_bytes: int) -> tuple[bytes, bool]:
    """The output, and whether it ended in time. Reads and writes concurrently, so that neither side blocks."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    output = bytearray()
    unsent = memoryview(stdin)
    with selectors.DefaultSelector() as ready:
        os.set_blocking(shell.stdin.fileno(), False)
        ready.register(shell.stdout, selectors.EVENT_READ)
        ready.register(shell.stdin, selectors.EVENT_WRITE)
        while len(output) < most_bytes:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return bytes(output), False
            events = ready.select(min(left_s, _QUIET_S))
            if not events and _has_ended(shell):
                break
            for key, _ in events:
                if key.fileobj is shell.stdin:
                    unsent = _send(shell.stdin, unsent)
                    if not unsent:
                        ready.unregister(shell.stdin)
                        _close(shell.stdin)
                else:
                    read = os.read(shell.stdout.fileno(), min(_CHUNK_BYTES, most_bytes - len(output)))
                    if not read:
                        return bytes(output), True
                    output += read
    return bytes(output), True


def _has_ended(shell: subprocess.Popen[bytes]) -> bool:
    """Whether the shell has ended; it is not reaped, so that its process group's number is not reused."""
    return os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _send(stdin: IO[bytes], unsent: memoryview) -> memoryview:
    """What remains to be sent; nothing if the reader is gone."""
    try:
        return unsent[os.write(stdin.fileno(), unsent[:_CHUNK_BYTES]) :]
    except BlockingIOError:
        return unsent
    except OSError:
        return unsent[:0]


def _end(shell: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, without waiting for what cannot be killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(shell.pid, signal.SIGKILL)
    for pipe in (shell.stdin, shell.stdout):
        _close(pipe)
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_QUIET_S)


def _close(pipe: IO[bytes] | None) -> None:
    with contextlib.suppress(OSError):
        if pipe:
            pipe.close()


def sessions(_limits: Limits) -> SessionPerNode:
    """The sessions on this machine."""
    return SessionPerNode(LocalSession)


class LocalSession:
    """A session on this machine."""

    has_input = True

    def __init__(self) -> None:
        self._is_over, self._woken = os.pipe()

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str:  # noqa: ARG002
        """As in NodeSession."""
        try:
            shell = subprocess.Popen(
                ["/bin/sh", "-c", program.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as problem:
            return f"/bin/sh does not start: {problem.strerror}"
        try:
            return self._listen(shell, program, received, dead_s)
        finally:
            _end_session(shell)

    def _listen(self, shell: subprocess.Popen[bytes], program: Program, received: Received, dead_s: float) -> str:
        assert shell.stdin
        assert shell.stdout
        with contextlib.suppress(BrokenPipeError):  # it has ended or stopped reading: its output says why
            shell.stdin.write(program.stdin)
            shell.stdin.flush()
        last = time.monotonic()
        with selectors.DefaultSelector() as ready:
            ready.register(shell.stdout, selectors.EVENT_READ)
            ready.register(self._is_over, selectors.EVENT_READ)
            while True:
                spoke = [key.fileobj for key, _ in ready.select(KEEPALIVE_S)]
                if self._is_over in spoke:
                    return ""
                with contextlib.suppress(OSError):
                    os.write(shell.stdin.fileno(), KEEPALIVE)
                if shell.stdout not in spoke:
                    if time.monotonic() - last >= dead_s:
                        return f"nothing came for {dead_s:.0f} s"
                    continue
                piece = os.read(shell.stdout.fileno(), _CHUNK_BYTES)
                if not piece:
                    return PROGRAM_ENDED
                last = time.monotonic()
                received(piece)

    def end(self) -> None:
        """As in NodeSession."""
        os.write(self._woken, KEEPALIVE)


def _end_session(shell: subprocess.Popen[bytes]) -> None:
    """Close its input, which ends the program; kill it if it does not exit."""
    for pipe in (shell.stdin, shell.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()
    try:
        shell.wait(_END_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(_END_S)
