"""Why a login failed, in the terms of the evidence, and whether it is worth a second try."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from paramiko import AuthenticationException, SSHException
from paramiko.ssh_exception import IncompatiblePeer

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.host_keys import HostKeyRejected
from clusterproof.plugins.transport.ways import NoWay

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_DROPPED = (EOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """Why a host was not reached; `may_pass` where a retry a moment later may succeed."""

    unreached: Unreached
    detail: str
    may_pass: bool = False


def connection_failure_of(problem: Exception, host: str, port: int, is_late: bool) -> ConnectionFailure:
    """What an exception of a login means. `is_late`: the timeout of this login has expired."""
    where = f"{host}:{port}"
    if isinstance(problem, HostKeyRejected):
        return ConnectionFailure(Unreached.HOST_KEY, str(problem))
    if isinstance(problem, NoWay):
        return ConnectionFailure(Unreached.NO_ROUTE, str(problem), problem.may_pass)
    if isinstance(problem, AuthenticationException):
        return ConnectionFailure(Unreached.AUTH, str(problem))
    if isinstance(problem, socket.gaierror):
        return ConnectionFailure(Unreached.NAME, f"{host} does not resolve: {problem.strerror}")
    if isinstance(problem, IncompatiblePeer) or "Indecipherable protocol" in str(problem):
        return ConnectionFailure(
            Unreached.GARBLED, f"{where} speaks no SSH that is understood here: {_one_line(problem)}"
        )
    roots = tuple(_roots(problem))
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
    """The exception, and what it was raised from: paramiko says `Error reading SSH protocol banner` for all."""
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _one_line(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__} {problem}".split())[:200]
