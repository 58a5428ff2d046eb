"""HyperPod nodes through SSM: one session for each, with AWS's session-manager-plugin.

SSM gives such a node no standard input, no exit status and no terminal, splits the command line into words itself, and
adds lines of its own around the output: the program is one argument, and its answer a frame that survives that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clusterproof.plugins.aws import Account, AwsDenied, AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable
from clusterproof.plugins.transport.fan_out import fan_out
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM

PLUGIN = "session-manager-plugin"
DOCUMENT = "AWS-StartNonInteractiveCommand"
REASON = "clusterproof: reads the state of the node"
STARTS_PER_S = 3.0  # AWS's own tools assume 3 StartSession a second for an account (reference: aws.md §11)
ATTEMPTS = 4  # of one node; each fails in ways that pass: no word at all, an internal error
PASSING = (b"i/o timeout", b"InternalServerError")
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"  # the variable in which the plugin is given a session's token
TAKES_RESPONSE = (1, 2, 536, 0)  # since this version; older ones only as an argument (its RELEASENOTES.md)
VERSION_S = 10.0
OF_THE_PLUGIN = re.compile(rb"(?:Starting|Exiting) session with \S{1,20}: \S{1,200}")
MISSING = (
    f"{PLUGIN} is not installed, and HyperPod nodes are reached with nothing else; AWS brings it as a package: "
    "docs.aws.amazon.com/systems-manager, 'Install the Session Manager plugin'"
)


class Hyperpod(Connection):
    """Runs the program in one SSM session for each node."""

    takes_stdin = False

    def longest_program(self, _limits: Limits) -> int:
        """What one StartSession takes."""
        return LONGEST_PROGRAM

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable where there is no plugin or no account."""
        plugin = shutil.which(PLUGIN)
        if plugin is None:
            raise Unusable(MISSING)
        _look_at_version(plugin)
        try:
            account = Account(limits.settings.get("region", ""), limits.settings.get("profile", ""))
        except AwsError as problem:
            raise Unusable(str(problem)) from None
        rate = StartRate(float(limits.settings.get("ssm_rate") or STARTS_PER_S))
        sessions = SsmSessions(account, plugin, limits.settings.get("profile", ""))

        def begin(target: Target) -> SessionVisit:
            rate.wait()
            return SessionVisit(sessions, target, program, limits, rate)

        fan_out(targets, begin, limits.fanout, answered)


@dataclass(frozen=True, slots=True)
class SsmSessions:
    """Opens, reads and closes SSM sessions."""

    account: Account
    plugin: str
    profile: str

    def start(self, target: str, command: str) -> dict[str, str]:
        """Open a session; what the plugin needs to know of it. Raises AwsError."""
        session = self.account.call("ssm", "start_session", **_request(target, command))
        return {key: str(session[key]) for key in ("SessionId", "TokenValue", "StreamUrl")}

    def read(self, session: dict[str, str], target: str, command: str) -> subprocess.Popen[bytes]:
        """The plugin, running: it prints what the command on the node prints, and ends with it.

        It ends the session at the end of its standard input, which is therefore a pipe that is held open. The token
        that opens the session is in its environment: arguments are shown to everybody.
        """
        command_line = [
            self.plugin,
            RESPONSE,
            self.account.region,
            "StartSession",
            self.profile,
            json.dumps(_request(target, command)),
            self.account.endpoint("ssm"),
        ]
        return subprocess.Popen(
            command_line,
            env={**os.environ, RESPONSE: json.dumps(session)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self, session: dict[str, str]) -> None:
        """Close a session; where that fails, SSM's own idle limit closes it."""
        with suppress(AwsError):
            self.account.call("ssm", "terminate_session", SessionId=session["SessionId"])


def _look_at_version(plugin: str) -> None:
    """Raises Unusable for a plugin that would need the token among its arguments."""
    try:
        ran = subprocess.run([plugin, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unusable(f"{PLUGIN} does not start: {problem}") from None
    version = ran.stdout.strip()
    is_version = re.fullmatch(r"\d{1,6}(\.\d{1,6}){3}", version)
    if is_version and tuple(map(int, version.split("."))) < TAKES_RESPONSE:
        wanted = ".".join(map(str, TAKES_RESPONSE))
        raise Unusable(f"{PLUGIN} is {version}; expected {wanted} or newer, which keeps tokens out of its arguments")


def _request(target: str, command: str) -> dict[str, object]:
    return {
        "Target": target,
        "DocumentName": DOCUMENT,
        "Parameters": {"command": [command]},
        "Reason": REASON,
    }


@dataclass(slots=True)
class SessionVisit:
    """A visit to one node by a session, and by a second one where the first failed for a passing reason."""

    sessions: SsmSessions
    target: Target
    program: Program
    limits: Limits
    rate: StartRate
    deadline: float = field(init=False)
    _running: subprocess.Popen[bytes] | None = None
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limits.connect_s + self.limits.answer_s

    def make(self) -> Answer:
        """Visit the node."""
        started = time.monotonic()
        answer = self._once(started)
        for attempt in range(1, ATTEMPTS):
            if not _may_pass(answer) or self._is_over:
                break
            self.deadline += attempt + self.rate.wait() + self.limits.answer_s
            time.sleep(attempt)
            answer = self._once(started)
        return answer

    def abandon(self) -> None:
        """End the visit from outside."""
        self._is_over = True
        if self._running:
            _kill(self._running)

    def _once(self, started: float) -> Answer:
        address, command = self.target.address, self.program.command
        try:
            session = self.sessions.start(address, command)
        except AwsError as problem:
            return Answer(unreached=_why(problem), detail=str(problem), seconds=time.monotonic() - started)
        try:
            self._running = self.sessions.read(session, address, command)
            return Answer(_read(self._running, self.limits.answer_bytes), seconds=time.monotonic() - started)
        except OSError as problem:
            return Answer(unreached=Unreached.LOST, detail=f"{PLUGIN} does not start: {problem.strerror}")
        finally:
            if self._running:
                _kill(self._running)
            self.sessions.end(session)


def _may_pass(answer: Answer) -> bool:
    """Whether another session may bring what this one did not: no word of the program, or a passing error."""
    if answer.unreached:
        return answer.unreached is Unreached.LOST
    return any(passing in answer.output for passing in PASSING) or not OF_THE_PLUGIN.sub(b"", answer.output).strip()


def _why(problem: AwsError) -> Unreached:
    if isinstance(problem, AwsDenied):
        return Unreached.AUTH
    if problem.code == "TargetNotConnected":
        return Unreached.NOT_CONNECTED
    if "throttl" in str(problem).lower():
        return Unreached.THROTTLED
    return Unreached.LOST


def _read(plugin: subprocess.Popen[bytes], most_bytes: int) -> bytes:
    """All that the plugin prints, to a limit."""
    assert plugin.stdout
    output = bytearray()
    with plugin.stdout:
        while len(output) < most_bytes:
            read = os.read(plugin.stdout.fileno(), 65536)
            if not read:
                break
            output += read
    return bytes(output[:most_bytes])


def _kill(plugin: subprocess.Popen[bytes]) -> None:
    """End the plugin with its group, bury it, and close its standard input."""
    if plugin.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(plugin.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        plugin.wait(1)
    if plugin.stdin:
        plugin.stdin.close()


class StartRate:
    """A rate limit: one start each 1/`per_s` seconds. Thread-safe."""

    def __init__(
        self, per_s: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pause_s = 1 / per_s
        self._now = now
        self._sleep = sleep
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> float:
        """Wait for one's turn; the seconds that it took."""
        with self._lock:
            now = self._now()
            turn = max(now, self._next)
            self._next = turn + self._pause_s
        self._sleep(turn - now)
        return turn - now
