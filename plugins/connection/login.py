"""One log-in to one host over SSH, on a Fabric connection made safe; and the jump hosts that others share."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from fabric import Connection
from paramiko import SSHException, Transport

from clusterproof.plugins.connection.host_keys import HostIdentity, HostKeyPolicy, prefer_kinds
from clusterproof.plugins.connection.identities import Offer
from clusterproof.plugins.connection.trouble import Trouble, trouble_of
from clusterproof.plugins.connection.ways import NoWay, Way


class LoginFailed(Exception):  # noqa: N818
    """The host was not reached; `trouble` says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.detail)
        self.trouble = trouble


class Login:
    """A way, a host to be believed and keys to offer. Made on the main thread, as Fabric asks; opened on any."""

    def __init__(
        self, connection: Connection, way: Way, host: HostIdentity, offer: Offer, connect_s: float
    ) -> None:
        self._connection = connection
        self._way = way
        self._host = host
        self._offer = offer
        self._connect_s = connect_s
        connection.client.set_missing_host_key_policy(HostKeyPolicy(host))

    def open(self) -> Transport:
        """Connect, check the host, log in. Raises LoginFailed."""
        started = time.monotonic()
        try:
            self._connection.connect_kwargs = {
                "sock": self._way.dial(self._connect_s),
                "transport_factory": self._transport,
                "auth_strategy": self._offer,
                "banner_timeout": self._connect_s,
                "auth_timeout": self._connect_s,
            }
            self._connection.open()
        except (SSHException, OSError, EOFError, NoWay) as problem:
            is_late = time.monotonic() - started >= 2 * self._connect_s
            trouble = trouble_of(problem, self._connection.host, self._connection.port, is_late)
            complaint = self._way.complaint() if trouble.may_pass else ""
            self.close()
            if complaint:  # of a ProxyCommand that ended: it would end again
                trouble = Trouble(trouble.unreached, complaint)
            raise LoginFailed(trouble) from None
        return self._connection.transport

    def close(self) -> None:
        """Close everything, also half-way, where Fabric and paramiko would leave a thread and a socket."""
        self._way.interrupt()
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._connection.client.close()
        self._way.close()
        self._connection.transport = None

    def interrupt(self) -> None:
        """Wake whoever waits for this log-in; from any thread."""
        self._way.interrupt()

    def _transport(self, sock: Any, disabled_algorithms: Any = None) -> Transport:
        transport = Transport(sock, disabled_algorithms=disabled_algorithms)
        prefer_kinds(transport, self._host.kinds())
        return transport


class JumpHost:
    """A jump host, logged in to once for all the nodes behind it: sshd counts every log-in, not every channel."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self._login = login
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._failure = ""

    def transport(self) -> Transport:
        """The connection to the jump host; a failed log-in is not tried for the next node again. Raises NoWay."""
        with self._lock:
            if self._failure:
                raise NoWay(self._failure)
            if self._transport is None or not self._transport.is_active():
                self._login.close()
                try:
                    self._transport = self._login.open()
                except LoginFailed as failed:
                    self._failure = f"jump host {self.name}: {failed}"
                    raise NoWay(self._failure) from None
            return self._transport

    def close(self) -> None:
        """End the connection, and with it what still goes through it."""
        self._login.close()
