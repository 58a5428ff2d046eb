"""One login to one host over SSH: a Fabric connection with deadlines, shared jump hosts, and reasons for failures."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from fabric import Connection
from paramiko import AuthenticationException, SSHClient, SSHException, Transport
from paramiko.ssh_exception import IncompatiblePeer

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.fan_out import is_out_of_resources
from clusterproof.plugins.transport.ssh import NoRoute, ReadAhead, Route
from clusterproof.plugins.transport.ssh.host_keys import HostIdentity, HostKeyPolicy, HostKeyRejected, prefer_kinds
from clusterproof.plugins.transport.ssh.identities import Offer

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_DROPPED = (EOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)

# A jump host's failures that are no fault of the nodes behind it.
_OF_CALLER = (Unreached.AUTH, Unreached.HOST_KEY, Unreached.NAME, Unreached.THROTTLED)
_LOGINS_AT_ONCE = 8  # to one jump host; sshd's MaxStartups begins to drop logins at 10


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """Why a host was not reached; `may_pass` if a retry a moment later may succeed."""

    unreached: Unreached
    detail: str
    may_pass: bool = False


def connection_failure_of(problem: Exception, host: str, port: int, is_late: bool) -> ConnectionFailure:
    """What an exception during a login means. `is_late`: the login's timeout has expired."""
    where = f"{host}:{port}"
    if isinstance(problem, HostKeyRejected):
        return ConnectionFailure(Unreached.HOST_KEY, str(problem))
    if isinstance(problem, NoRoute):
        return ConnectionFailure(problem.unreached, str(problem), problem.may_pass)
    if isinstance(problem, AuthenticationException):
        return ConnectionFailure(Unreached.AUTH, str(problem))
    if isinstance(problem, socket.gaierror):
        return ConnectionFailure(Unreached.NAME, f"{host} does not resolve: {problem.strerror}")
    if isinstance(problem, IncompatiblePeer) or "Indecipherable protocol" in str(problem):
        return ConnectionFailure(
            Unreached.GARBLED, f"{where} speaks no SSH that is understood here: {_one_line(problem)}"
        )
    roots = tuple(_roots(problem))
    if any(map(is_out_of_resources, roots)):
        return ConnectionFailure(
            Unreached.THROTTLED, f"{where}: {_one_line(problem)} on this machine; expected room for --fanout"
        )
    if is_late or any(isinstance(root, TimeoutError) for root in roots):
        why = "" if isinstance(problem, TimeoutError) else f": {_one_line(problem)}"
        return ConnectionFailure(Unreached.TIMED_OUT, f"{where} did not answer in time{why}")
    if any(isinstance(root, _DROPPED) for root in roots):
        detail = f"{where} closed the connection during the log-in: sshd's MaxStartups, or it is going down"
        return ConnectionFailure(Unreached.LOST, detail, may_pass=True)
    if isinstance(problem, OSError):
        return _of_the_network(problem, where)
    return ConnectionFailure(
        Unreached.LOST, f"{where}: {_one_line(problem)}", may_pass=isinstance(problem, SSHException)
    )


def _of_the_network(problem: OSError, where: str) -> ConnectionFailure:
    if isinstance(problem, ConnectionRefusedError):
        return ConnectionFailure(
            Unreached.REFUSED, f"{where} refuses the connection: no sshd listens there, or a firewall"
        )
    if problem.errno in _NO_ROUTE:
        return ConnectionFailure(Unreached.NO_ROUTE, f"no route to {where}: {problem.strerror}")
    return ConnectionFailure(Unreached.LOST, f"{where}: {problem.strerror or _one_line(problem)}")


def _roots(problem: BaseException | None) -> Iterator[BaseException]:
    """The exception and its causes: paramiko reports `Error reading SSH protocol banner` for all of them."""
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _one_line(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__} {problem}".split())[:200]


class LoginFailed(ClusterproofError):  # noqa: N818
    """The host was not reached; `failure` says why."""

    def __init__(self, failure: ConnectionFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class LoginState:
    """Shared by a node's login and those to its jump hosts: whether they are abandoned, and what they wait for."""

    def __init__(self) -> None:
        self.abandoned = threading.Event()
        self.unresolved = ""  # the name whose address is asked for: no timeout of ours ends that
        self._waited_s = 0.0
        self._waits_since: float | None = None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in the block as waiting for logins of other nodes."""
        self._waits_since = began = time.monotonic()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - began
            self._waits_since = None

    @contextlib.contextmanager
    def resolving(self, name: str) -> Iterator[None]:
        """Keep the name in the block as unresolved."""
        self.unresolved = name
        try:
            yield
        finally:
            self.unresolved = ""

    @property
    def waited_s(self) -> float:
        """How long they have waited, including now; from any thread."""
        since = self._waits_since
        return self._waited_s + (time.monotonic() - since if since is not None else 0.0)


class Login:
    """A route, a host key to check and keys to offer. Created on the main thread, as Fabric requires; opened on any."""

    def __init__(
        self,
        connection: Connection,
        route: Route,
        host: HostIdentity,
        offer: Offer,
        connect_s: float,
        state: LoginState,
    ) -> None:
        self._connection = connection
        self._route = route
        self._host = host
        self._offer = offer
        self._connect_s = connect_s
        self.state = state
        connection.connect_timeout = connect_s  # for the key exchange; Fabric itself takes whole seconds only
        connection.client.set_missing_host_key_policy(HostKeyPolicy(host))

    def open(self) -> Transport:
        """Connect, check the host, log in. Raises LoginFailed."""
        if self.state.abandoned.is_set():
            raise LoginFailed(ConnectionFailure(Unreached.LOST, "abandoned", may_pass=True))
        started = time.monotonic()
        try:
            sock = self._route.connect(self._connect_s)
            started = time.monotonic()
            self._connection.connect_kwargs = {
                "sock": sock,
                "transport_factory": self._transport,
                "auth_strategy": self._offer,
                "banner_timeout": self._connect_s,
                "auth_timeout": self._connect_s,
            }
            self._connection.open()
        except (SSHException, OSError, EOFError, NoRoute, RuntimeError) as problem:  # the last: no thread for paramiko
            is_late = time.monotonic() - started >= self._connect_s
            failure = connection_failure_of(problem, self._connection.host, self._connection.port, is_late)
            explanation = self._route.explanation() if failure.may_pass else None
            self.close()
            if explanation:  # a ProxyCommand that ended would end again
                failure = ConnectionFailure(explanation.unreached, str(explanation))
            raise LoginFailed(failure) from None
        transport: Transport = self._connection.transport
        return transport

    def close(self) -> None:
        """Close everything, also when half open, where Fabric and paramiko would leak a thread and a socket."""
        self.closing()()
        self._connection.transport = None

    def closing(self) -> Callable[[], None]:
        """A function that closes it, without keeping the login's data in memory, which is large."""
        return partial(_close, self._route, self._connection.client)

    def interrupt(self) -> None:
        """Wake whoever waits for this login; from any thread. It may be opened again."""
        self._route.interrupt()

    def abandon(self) -> None:
        """Wake whoever waits for this login, and prevent it from being opened again; from any thread."""
        self.state.abandoned.set()
        self.interrupt()

    def _transport(self, sock: Any, **options: Any) -> Transport:
        transport = Transport(ReadAhead(sock), **options)  # type: ignore[arg-type] # of which it uses these methods
        prefer_kinds(transport, self._host.kinds())
        options_of = transport.get_security_options()
        options_of.ciphers = sorted(options_of.ciphers, key=lambda name: "gcm" not in name)  # needs no MAC beside it
        return transport


def _close(route: Route, client: SSHClient) -> None:
    route.interrupt()
    with contextlib.suppress(OSError, EOFError, SSHException):
        client.close()
    route.close()


class JumpHost:
    """Shared by the logins to one jump host: they run a few at a time, and stop at the first permanent failure."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._slots = threading.Semaphore(_LOGINS_AT_ONCE)
        self._has_let_in = False
        self._failure: ConnectionFailure | None = None

    def open(self, login: Login) -> Transport:
        """Log in. If the first login failed permanently, no further one is tried. Raises NoRoute."""
        with login.state.waiting():
            self._slots.acquire()
        try:
            return self._opened(login)
        finally:
            self._slots.release()

    def _opened(self, login: Login) -> Transport:
        if self._failure:
            raise self._no_route(self._failure)
        try:
            transport = login.open()
        except LoginFailed as failed:
            failure = failed.failure
            may_pass = failure.may_pass or failure.unreached is Unreached.THROTTLED
            if not may_pass and not self._has_let_in:
                self._failure = failure
            raise self._no_route(failure) from None
        self._has_let_in = True
        return transport

    def _no_route(self, failure: ConnectionFailure) -> NoRoute:
        """A new one for each node: raised again, it would keep the frames of all of them in memory."""
        why = failure.unreached if failure.unreached in _OF_CALLER else Unreached.NO_ROUTE
        return NoRoute(f"jump host {self.name}: {failure.detail}", failure.may_pass, why)


@dataclass(frozen=True, slots=True)
class JumpLogin:
    """One node's login to a jump host."""

    host: JumpHost
    login: Login

    def open(self) -> Transport:
        """Log in when a slot is free. Raises NoRoute."""
        return self.host.open(self.login)

    def close(self) -> None:
        """Close the login."""
        self.login.close()

    def interrupt(self) -> None:
        """Wake whoever waits for the login."""
        self.login.interrupt()
