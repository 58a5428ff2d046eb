"""A program that runs on a node as long as one SSH connection to it lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paramiko import Channel, SSHException

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits, Program
from clusterproof.plugins.transport.sessions import BEAT, BEAT_S, Received, SessionOfEach
from clusterproof.plugins.transport.ssh.login import LoginFailed
from clusterproof.plugins.transport.ssh.logins import Logins
from clusterproof.plugins.transport.ssh.routes import NoRoute

LOOK_S = 15.0  # at whether it is to end; each look of a thousand threads costs
_CHUNK_BYTES = 65536


def sessions(limits: Limits) -> SessionOfEach:
    """Those of a cluster, of which as many may log in at once as the limits say."""
    slots = threading.Semaphore(limits.fanout)
    return SessionOfEach(lambda: SshSession(limits, slots))


class SshSession:
    """Over SSH. Keys and configuration are read anew each time: hosts are replaced, and keys rotate."""

    has_input = True
    _making = threading.Lock()  # Fabric's configurations are made one at a time

    def __init__(self, limits: Limits, slots: threading.Semaphore) -> None:
        """`slots`: how many may log in at once."""
        self._limits, self._slots = limits, slots
        self._is_over = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str:
        """As NodeSession has it."""
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
            return self._listen(channel, received, dead_s)
        except LoginFailed as failed:
            return str(failed)
        except (SSHException, OSError, EOFError) as problem:
            return "" if self._is_over.is_set() else f"the connection broke: {problem}"
        finally:
            login.close()

    def _listen(self, channel: Channel, received: Received, dead_s: float) -> str:
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
            received(piece)
        channel.shutdown_write()  # its input ends, and with that the program
        return ""

    def end(self) -> None:
        """As NodeSession has it."""
        self._is_over.set()
        self._wake()
