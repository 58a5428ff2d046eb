"""A program that stays on a node: one connection, over which it reports as long as it lasts."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits, Program

BEAT_S = 30.0  # between signs of life to the program, which ends without them
BEAT = b"\n"
LOOK_S = 15.0  # at whether it is to end; each look of a thousand threads costs
_END_S = 2.0
_CHUNK_BYTES = 65536

Heard = Callable[[bytes], object]  # a piece of its output; what it raises ends the stay


class Stays(Protocol):
    """What stays on the nodes of a cluster."""

    is_heard: bool  # whether the programs get signs of life over their input; else they get none

    def open(self, text: str) -> None:
        """Be ready for programs with this text on their input. Raises Unusable."""

    def on_node(self, cut: Callable[[str], object]) -> Staying:
        """What stays on one node; it says there why nothing comes for a while, where it does not end for that."""

    def close(self) -> None:
        """Let all end, at once."""


class Staying(Protocol):
    """One node's connection."""

    is_heard: bool  # as its Stays

    def stay(self, target: Target, program: Program, heard: Heard, dead_s: float) -> str:
        """Run the program until it ends, is told to, or sends nothing for `dead_s`; why it ended, in words."""

    def end(self) -> None:
        """Let it end; from any thread. It does not stay again."""


class SshStaying:
    """Over SSH. Keys and configuration are read anew each time: hosts are replaced, and keys rotate."""

    is_heard = True
    _making = threading.Lock()  # Fabric's configurations are made one at a time

    def __init__(self, limits: Limits, slots: threading.Semaphore) -> None:
        """`slots`: how many may log in at once."""
        self._limits, self._slots = limits, slots
        self._is_over = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def stay(self, target: Target, program: Program, heard: Heard, dead_s: float) -> str:
        """As Staying has it."""
        from paramiko import SSHException

        from clusterproof.plugins.transport.login import LoginFailed
        from clusterproof.plugins.transport.logins import Logins
        from clusterproof.plugins.transport.routes import NoRoute

        try:
            with self._making:
                login = Logins(self._limits.settings, self._limits.connect_s).to(target)
        except (NoRoute, SSHException) as problem:
            return str(problem)
        self._wake = login.abandon
        try:
            with self._slots:
                if self._is_over.is_set():
                    return ""
                transport = login.open()
            self._wake = transport.close
            transport.sock.settimeout(LOOK_S)  # paramiko wakes ten times a second to look at its socket otherwise
            channel = transport.open_session(timeout=self._limits.connect_s)
            channel.set_combine_stderr(True)
            channel.exec_command(program.command)
            channel.settimeout(self._limits.connect_s)
            channel.sendall(program.stdin)
            return self._listen(channel, heard, dead_s)
        except LoginFailed as failed:
            return str(failed)
        except (SSHException, OSError, EOFError) as problem:
            return "" if self._is_over.is_set() else f"the connection broke: {problem}"
        finally:
            login.close()

    def _listen(self, channel: object, heard: Heard, dead_s: float) -> str:
        from paramiko import Channel

        assert isinstance(channel, Channel)
        last = beaten = time.monotonic()
        channel.settimeout(LOOK_S)
        while not self._is_over.is_set():
            now = time.monotonic()
            if now - beaten >= BEAT_S:
                beaten = now
                channel.sendall(BEAT)
            try:
                piece = channel.recv(_CHUNK_BYTES)
            except TimeoutError:
                if time.monotonic() - last >= dead_s:
                    return f"nothing came for {dead_s:.0f} s"
                continue
            if not piece:
                return "the program ended"
            last = time.monotonic()
            heard(piece)
        channel.shutdown_write()  # its input ends, and with that the program
        return ""

    def end(self) -> None:
        """As Staying has it."""
        self._is_over.set()
        self._wake()


class LocalStaying:
    """On this machine."""

    is_heard = True

    def __init__(self) -> None:
        self._is_over, self._woken = os.pipe()

    def stay(self, target: Target, program: Program, heard: Heard, dead_s: float) -> str:  # noqa: ARG002
        """As Staying has it."""
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
            return self._listen(shell, program, heard, dead_s)
        except OSError as problem:
            return f"the program does not listen: {problem.strerror}"
        finally:
            _end(shell)

    def _listen(self, shell: subprocess.Popen[bytes], program: Program, heard: Heard, dead_s: float) -> str:
        assert shell.stdin
        assert shell.stdout
        shell.stdin.write(program.stdin)
        shell.stdin.flush()
        last = time.monotonic()
        with selectors.DefaultSelector() as ready:
            ready.register(shell.stdout, selectors.EVENT_READ)
            ready.register(self._is_over, selectors.EVENT_READ)
            while True:
                spoke = [key.fileobj for key, _ in ready.select(BEAT_S)]
                if self._is_over in spoke:
                    return ""
                os.write(shell.stdin.fileno(), BEAT)
                if shell.stdout not in spoke:
                    if time.monotonic() - last >= dead_s:
                        return f"nothing came for {dead_s:.0f} s"
                    continue
                piece = os.read(shell.stdout.fileno(), _CHUNK_BYTES)
                if not piece:
                    return "the program ended"
                last = time.monotonic()
                heard(piece)

    def end(self) -> None:
        """As Staying has it."""
        os.write(self._woken, BEAT)


def _end(shell: subprocess.Popen[bytes]) -> None:
    """Its input ends, and with that the program; what does not go by itself is killed."""
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
