"""SSH connections by Fabric, and the routes to hosts.

This module is how one connection's bytes travel: directly, through a ProxyCommand, or through a jump host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, Protocol

from paramiko import Channel, ChannelException, SSHException, Transport
from paramiko.common import OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.evidence import Unreached

_EXPLANATION_BYTES = 400
_READ_BYTES = 1 << 11  # at least one sample; each waiting connection holds this much
_NOT_RUN = (126, 127)  # a shell's exit codes for a program that is missing here, or may not be run
_GRACE_S = 0.5  # for a ProxyCommand to end by itself once its connection is closed


class NoRoute(ClusterproofError):  # noqa: N818 - what it is
    """The host cannot be reached over the network; the message says why."""

    def __init__(self, message: str, may_pass: bool = False, unreached: Unreached = Unreached.NO_ROUTE) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        self.unreached = unreached


class Route(Protocol):
    """A route to one host. `interrupt` may be called from any thread, and returns at once."""

    def connect(self, timeout_s: float) -> socket.socket | Tunnel:
        """Connect. Raises OSError or NoRoute."""

    def close(self) -> None:
        """Release all resources."""

    def interrupt(self) -> None:
        """Wake up any thread that waits for it."""

    def explanation(self) -> NoRoute | None:
        """Why the route itself ended; usually unknown."""


class Direct:
    """A route by a TCP connection. `resolving` is entered with a name while its address is asked for."""

    def __init__(self, host: str, port: int, resolving: Callable[[str], AbstractContextManager[None]]) -> None:
        self._host, self._port = host, port
        self._resolving = resolving
        self._socket: socket.socket | None = None

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to the first of the host's addresses that answers. Raises OSError."""
        with self._resolving(self._host):
            *others, last = socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_STREAM)
        for address in others:
            with contextlib.suppress(OSError):
                return self._connected(address, timeout_s)
        return self._connected(last, timeout_s)

    def _connected(self, address: Any, timeout_s: float) -> socket.socket:
        family, kind, protocol, _, at = address
        self._socket = socket.socket(family, kind, protocol)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(at)
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms for each command
        return self._socket

    def interrupt(self) -> None:
        """Wake the reader."""
        _shut_down(self._socket)

    def close(self) -> None:
        """Close the socket."""
        if self._socket:
            _shut_down(self._socket)  # wakes paramiko's thread, which otherwise polls every 0.1 s
            self._socket.close()

    def explanation(self) -> None:
        """Unknown."""


class Proxied:
    """A route by a ProxyCommand, on one end of a socket pair.

    paramiko's own ProxyCommand spins at full speed once its program has ended; a socket reports end of file.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def connect(self, timeout_s: float) -> socket.socket:  # noqa: ARG002 - a program starts at once
        """Start the program in a shell, as OpenSSH does. Raises OSError."""
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the connection fails
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        return ours

    def interrupt(self) -> None:
        """Wake the reader, and end the program."""
        _shut_down(self._socket)
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """Close the socket, and end the program."""
        if self._socket:
            _shut_down(self._socket)
            self._socket.close()
        if self._process:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait(_GRACE_S)
        if self._errors:
            self._errors.close()

    def explanation(self) -> NoRoute | None:
        """How the program ended, and its last output; None if it ended with its connection."""
        if not self._process or not self._errors:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        size = os.fstat(self._errors.fileno()).st_size
        explanation = os.pread(self._errors.fileno(), _EXPLANATION_BYTES, max(size - _EXPLANATION_BYTES, 0))
        stderr = " ".join(explanation.decode("utf-8", "replace").split())
        code = self._process.returncode
        if not code:
            return None
        message = f"ProxyCommand {self._command!r:.80} ended with exit code {code}" + (f": {stderr}" if stderr else "")
        return NoRoute(message, unreached=Unreached.NAME if code in _NOT_RUN else Unreached.LOST)

    def _signal(self, number: int) -> None:
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


class Jump(Protocol):
    """A login to a jump host, made for one node."""

    def open(self) -> Transport:
        """Log in. Raises NoRoute."""

    def close(self) -> None:
        """Release all resources."""

    def interrupt(self) -> None:
        """Wake up any thread that waits for it."""


class Tunnel:
    """A channel of a jump host's connection, with the methods that paramiko expects of a socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.send = channel.send
        self.recv = channel.recv
        self.settimeout = channel.settimeout

    def close(self) -> None:
        """Close the channel; it is no error if the connection ended before."""
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._channel.close()

    @property
    def _closed(self) -> bool:
        return self._channel.closed


class Jumped:
    """A route through a jump host.

    Each node has its own login there, as with OpenSSH: paramiko may send on a channel that it has just closed, and sshd
    then ends the whole connection with all its channels.
    """

    def __init__(self, name: str, jump: Jump, host: str, port: int) -> None:
        self._name = name
        self._jump = jump
        self._address = (host, port)

    def connect(self, timeout_s: float) -> Tunnel:
        """Log in to the jump host and have it connect. Raises NoRoute."""
        transport = self._jump.open()
        host, port = self._address
        try:
            channel = transport.open_channel("direct-tcpip", self._address, ("127.0.0.1", 0), timeout=timeout_s)
        except ChannelException as refused:
            if refused.code == OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED:
                allowed = "expected AllowTcpForwarding and PermitOpen there to allow it"
                message = f"jump host {self._name} does not forward to {host}:{port}: {refused.text}; {allowed}"
                raise NoRoute(message, unreached=Unreached.AUTH) from None
            raise NoRoute(f"jump host {self._name} does not reach {host}:{port}: {refused.text}") from None
        return Tunnel(channel)

    def interrupt(self) -> None:
        """Interrupt the login to the jump host."""
        self._jump.interrupt()

    def close(self) -> None:
        """Close the login to the jump host."""
        self._jump.close()

    def explanation(self) -> None:
        """Unknown."""


class ReadAhead:
    """A connected socket that is read as far as data has come: paramiko takes each message in two or three pieces."""

    def __init__(self, connected: socket.socket | Tunnel) -> None:
        self._connected, self._rest = connected, b""
        self.send, self.settimeout = connected.send, connected.settimeout

    def recv(self, size: int) -> bytes:
        """As a socket's method."""
        piece = self._rest or self._connected.recv(max(size, _READ_BYTES))
        self._rest = piece[size:]
        return piece[:size]

    def close(self) -> None:
        """Close it, and wake the thread that reads, which the kernel alone would let wait."""
        if isinstance(self._connected, socket.socket):
            _shut_down(self._connected)
        self._connected.close()

    @property
    def _closed(self) -> bool:  # paramiko asks for these too
        return bool(self._connected._closed)  # type: ignore[union-attr] # noqa: SLF001

    def look_each(self, seconds: float) -> None:
        """Wait so long at a time, in the kernel: Python's own timeout needs two system calls."""
        self.settimeout(seconds)
        if isinstance(self._connected, socket.socket):
            wait = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
            self._connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
            self._connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
            self.settimeout(None)


def _shut_down(connected: socket.socket | None) -> None:
    if connected:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
