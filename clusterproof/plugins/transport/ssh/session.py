"""Sessions over SSH, each as long as its connection.

A connection has one thread, paramiko's: it passes on received data, sends keepalives, and detects silence. Logging in
uses a thread of its own only until the program runs.
"""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from paramiko import Message, SSHException, Transport

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import (
    KEEPALIVE,
    KEEPALIVE_S,
    PROGRAM_ENDED,
    Limits,
    Program,
    Received,
    SessionPerNode,
)
from clusterproof.plugins.transport.ssh import NoRoute, ReadAhead
from clusterproof.plugins.transport.ssh.login import Login, LoginFailed
from clusterproof.plugins.transport.ssh.logins import Logins

CHECK_S = 15.0  # without a byte, until a connection checks how long it has been silent
FRESH_S = 5.0  # how long keys and configuration are reused for other nodes
_WINDOW_BYTES = (1 << 32) - 1  # that a program may write: the window is never enlarged, and the program is restarted


def sessions(limits: Limits) -> SessionPerNode:
    """The sessions of a cluster; the limits say how many may log in at once."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # each holds some open; often 1,024 may be
    slots, logins = threading.Semaphore(limits.fanout), _LatestLogins(limits)
    return SessionPerNode(lambda: SshSession(limits, slots, logins))


class _LatestLogins:
    """Keys and configuration, shared by nodes that log in at once, and read again for later ones.

    Hosts are replaced, and keys rotate.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()  # Fabric's configurations must be created one at a time
        self._logins: Logins | None = None
        self._read_at = 0.0

    def to(self, target: Target) -> Login:
        """The login to a node. Raises InventoryError, NoRoute, SSHException."""
        with self._lock:
            now = time.monotonic()
            if self._logins is None or now - self._read_at >= FRESH_S:
                self._logins, self._read_at = Logins(self._limits.settings, self._limits.connect_s), now
            return self._logins.to(target)


class SshSession:
    """A session over SSH."""

    has_input = True

    def __init__(self, limits: Limits, slots: threading.Semaphore, logins: _LatestLogins) -> None:
        """`slots` limits how many may log in at once."""
        self._limits, self._slots, self._logins = limits, slots, logins
        self._is_over = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """Implement NodeSession."""
        try:
            login = self._logins.to(target)
        except (NoRoute, SSHException) as problem:
            return str(problem)
        self._wake = login.abandon
        try:
            with self._slots:
                if self._is_over.is_set():
                    return ""
                transport = login.open()
        except LoginFailed as failed:
            return str(failed)
        except Exception:  # a bug of ours or of a library
            login.close()
            raise
        self._wake = transport.close
        running = _RunningProgram(transport, login.closing(), received, dead_s)
        running.start(program, self._limits.connect_s)
        return running.ended

    def end(self) -> None:
        """Implement NodeSession."""
        self._is_over.set()
        self._wake()


class _RunningProgram:
    """A program in place of its channel's buffer: passes its output on as it comes."""

    def __init__(
        self, transport: Transport, close_login: Callable[[], object], received: Received, dead_s: float
    ) -> None:
        self.ended: Future[str] = Future()
        self._transport, self._close_login, self._received, self._dead_s = transport, close_login, received, dead_s
        self._heard_at = self._beaten_at = time.monotonic()
        self._is_fed = False
        self._end_lock = threading.Lock()  # taken once

    def start(self, program: Program, connect_s: float) -> None:
        """Start the program; if that fails, the session has ended."""
        try:
            connected: ReadAhead = self._transport.sock  # type: ignore[assignment] # as Login made it
            connected.look_each(CHECK_S)  # paramiko looks at its socket ten times a second otherwise
            self._look_between_messages()
            self._channel = self._transport.open_session(_WINDOW_BYTES, timeout=connect_s)
            self._channel.set_combine_stderr(True)
            self._channel.in_buffer = self  # type: ignore[assignment] # of which paramiko uses these two methods
            self._channel.exec_command(program.command)
            self._channel.settimeout(connect_s)
            self._channel.sendall(program.stdin)
            self._channel.settimeout(0.0)
            self._heard_at, self._is_fed = time.monotonic(), True
        except (SSHException, OSError, EOFError) as problem:
            self._end(f"the connection broke: {problem}")
        except Exception as problem:  # a bug of ours or of a library
            self._end(problem)

    def feed(self, output: bytes) -> None:
        """Called by paramiko with output."""
        self._heard_at = time.monotonic()
        if self._end_lock.locked():
            return
        try:
            self._received(output)
        except Exception as problem:  # an error of the listener
            self._end(problem)

    def close(self) -> None:
        """Called by paramiko at the end of output."""
        if self._channel.eof_received or self._channel.exit_status != -1:
            self._end(PROGRAM_ENDED)
        else:
            self._end(f"the connection broke: {self._transport.get_exception() or 'it was closed'}")

    def _look_between_messages(self) -> None:
        """Also check before each message is read: sshd's own keepalives say nothing about the program."""
        packetizer = self._transport.packetizer
        read = packetizer.read_message

        def looked_and_read() -> tuple[int, Message]:
            self._check_liveness()
            return read()

        packetizer.set_keepalive(1.0, self._check_liveness)  # for when no messages arrive
        packetizer.read_message = looked_and_read  # type: ignore[method-assign]

    def _check_liveness(self) -> None:
        """Check how long the program has been silent, and whether to send it a keepalive."""
        if time.monotonic() - self._heard_at >= self._dead_s:
            self._end(f"nothing came for {self._dead_s:.0f} s")
        else:
            self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        may_send = self._is_fed and self._transport.clear_to_send.is_set()  # else keys are being exchanged
        if may_send and now - self._beaten_at >= KEEPALIVE_S:
            self._beaten_at = now
            with contextlib.suppress(OSError, EOFError, SSHException):  # a program that stopped reading ends by itself
                self._channel.sendall(KEEPALIVE)

    def _end(self, why: str | Exception) -> None:
        if self._end_lock.acquire(blocking=False):
            try:
                threading.Thread(target=self._finish, args=(why,), daemon=True).start()  # paramiko holds its locks here
            except RuntimeError:  # this machine has no thread left: paramiko's own ends with its socket
                self._transport.sock.close()
                self._settle(why)

    def _finish(self, why: str | Exception) -> None:
        try:
            self._close_login()
        except Exception as problem:  # a bug of ours or of a library
            why = problem
        self._settle(why)

    def _settle(self, why: str | Exception) -> None:
        if isinstance(why, Exception):
            self.ended.set_exception(why)
        else:
            self.ended.set_result(why)
