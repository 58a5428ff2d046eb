"""SSH with Fabric: one login and one command for each node, many at once, each with its own deadline."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Sequence

from paramiko import Channel, SSHException, Transport

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.transport import Answer, Connection, Limits, Program
from clusterproof.plugins.transport.fan_out import Visit, fan_out
from clusterproof.plugins.transport.ssh import NoRoute
from clusterproof.plugins.transport.ssh.login import ConnectionFailure, Login, LoginFailed
from clusterproof.plugins.transport.ssh.logins import Logins

_CHUNK_BYTES = 65536
_QUIET_S = 0.5  # how long to keep reading after the command has ended: processes left behind may hold its output open
_GRACE_S = 1.0  # for a visit to notice its deadline before it is abandoned
_FILES_A_VISIT = 8  # a socket, an agent, and for a ProxyCommand its sockets, its errors and the pipes to start it
_DETAIL_CHARACTERS = 600
_FILES_BESIDE = 128  # held open by the process anyway


class Ssh(Connection):
    """Runs the program on nodes over SSH. docs/connections.md describes the settings."""

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises InventoryError for a setting that is wrong for all."""
        logins = Logins(limits.settings, limits.connect_s)

        def begin(target: Target) -> Visit:
            try:
                return _Visit(logins.to(target), program, limits)
            except (NoRoute, SSHException) as problem:
                return _NoVisit(Answer(unreached=Unreached.NAME, detail=str(problem)))

        fan_out(targets, begin, _slots_for(limits.fanout), answered)


class _Visit:
    """The visit of one node: log in, run the program, return its output."""

    def __init__(self, login: Login, program: Program, limits: Limits) -> None:
        self._login = login
        self._program = program
        self._limits = limits
        self._until_logged_in()

    def make(self) -> Answer:
        """Log in, twice if that may help, and run the program."""
        started = time.monotonic()
        try:
            transport = self._transport()
            self._set_deadline(self._limits.answer_s)
            output, failure = _converse(transport, self._program, self._limits)
        except LoginFailed as failed:
            output, failure = b"", failed.failure
        finally:
            self._login.close()
        seconds = time.monotonic() - started
        if failure is None:
            return Answer(output, seconds=seconds)
        detail = printable(" ".join(failure.detail.split()), _DETAIL_CHARACTERS)  # it may quote the host
        return Answer(output, failure.unreached, detail, seconds)

    @property
    def deadline(self) -> float:
        """As in Visit: while the logins of other nodes to its jump host come first, a node's own time does not run."""
        return self._deadline + self._login.state.waited_s

    def abandon(self) -> Answer | None:
        """Wake the thread, so that it ends too; returns the answer if it was a name server that is late."""
        name = self._login.state.unresolved
        self._login.abandon()
        detail = f"{name} does not resolve in time: no name server answers"
        return Answer(unreached=Unreached.NAME, detail=detail) if name else None

    def _transport(self) -> Transport:
        try:
            return self._login.open()
        except LoginFailed as failed:
            if not failed.failure.may_pass:
                raise
        time.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - not all at once again
        self._until_logged_in()
        return self._login.open()

    def _until_logged_in(self) -> None:
        self._set_deadline(2 * self._limits.connect_s)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = time.monotonic() - self._login.state.waited_s + seconds + _GRACE_S


class _NoVisit:
    """The visit of a node that cannot be reached according to ssh_config."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.deadline = time.monotonic() + _GRACE_S

    def make(self) -> Answer:
        """The known answer."""
        return self._answer

    def abandon(self) -> None:
        """Nothing is open."""


def _converse(transport: Transport, program: Program, limits: Limits) -> tuple[bytes, ConnectionFailure | None]:
    """Run one program and read its output. What arrived is returned even after a failure."""
    timeout_s = limits.answer_s
    deadline = time.monotonic() + timeout_s
    output = bytearray()
    try:
        channel = transport.open_session(timeout=timeout_s)
        channel.set_combine_stderr(True)
        channel.exec_command(program.command)  # not Connection.run, which sends stdin byte by byte
        _send(channel, program.stdin, deadline)
        _receive(channel, output, limits.answer_bytes, deadline)
    except (SSHException, OSError, EOFError) as problem:
        if time.monotonic() >= deadline:
            detail = f"did not end within {timeout_s:g} s; {len(output)} bytes came"
            return bytes(output), ConnectionFailure(Unreached.TIMED_OUT, detail)
        if not output:
            return b"", ConnectionFailure(Unreached.LOST, f"the connection broke before an answer came: {problem}")
    return bytes(output), None


def _send(channel: Channel, stdin: bytes, deadline: float) -> None:
    sent = 0
    try:
        while sent < len(stdin):
            channel.settimeout(max(deadline - time.monotonic(), 0.001))
            sent += channel.send(stdin[sent : sent + _CHUNK_BYTES])
        channel.shutdown_write()
    except TimeoutError:
        raise
    except (OSError, EOFError):
        return  # the command has ended or stopped reading: its output says why


def _receive(channel: Channel, output: bytearray, most_bytes: int, deadline: float) -> None:
    """Read to the end, or up to `most_bytes`. Raises TimeoutError at the deadline, or EOFError."""
    while len(output) < most_bytes:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        channel.settimeout(min(left_s, _QUIET_S))
        had_ended = channel.exit_status_ready()  # checked first: its last output may arrive just as the time runs out
        try:
            read = channel.recv(min(_CHUNK_BYTES, most_bytes - len(output)))
        except TimeoutError:
            if had_ended:
                return
            continue
        if not read:
            break
        output += read
    if not output and channel.exit_status == -1 and not channel.eof_received:
        raise EOFError("no output, no exit status")


def _slots_for(fanout: int) -> int:
    """How many nodes can be visited at once; raises the soft limit of open files if that helps."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = fanout * _FILES_A_VISIT + _FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return fanout
    return max(1, min(fanout, (soft - _FILES_BESIDE) // _FILES_A_VISIT))
