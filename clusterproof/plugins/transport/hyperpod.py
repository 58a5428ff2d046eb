"""Reaches HyperPod nodes through SSM: one session each, whose data AWS's own session-manager-plugin carries.

SSM offers no standard input, exit status or terminal on such a node, splits the command line into words itself, and
adds its own lines to the output: so the program is one argument, and its answer a frame that survives that.
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

from clusterproof.plugins.agent.frame import has_end
from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable
from clusterproof.plugins.transport.fan_out import fan_out
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM, unreached_of

PLUGIN = "session-manager-plugin"
DOCUMENT = "AWS-StartNonInteractiveCommand"
REASON = "clusterproof: reads the state of the node"
STARTS_PER_S = 3.0  # AWS's own tools assume 3 StartSession a second for an account (reference: aws.md §11)
ATTEMPTS = 4  # for one node; transient failures are retried: no output at all, an internal error
OPEN_S = 90.0  # for a StartSession that AWS throttles: it is repeated with growing pauses (plugins/aws)
PASSING = (b"i/o timeout", b"InternalServerError")
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"  # the variable that passes a session's token to the plugin
TAKES_RESPONSE = (1, 2, 536, 0)  # since this version; older ones only take an argument (its RELEASENOTES.md)
VERSION_S = 10.0
PLUGIN_LINE = re.compile(rb"(?:Starting|Exiting) session with \S{1,20}: \S{1,200}")
MISSING = (
    f"{PLUGIN} is not installed, and HyperPod nodes are reached with nothing else; AWS brings it as a package: "
    "docs.aws.amazon.com/systems-manager, 'Install the Session Manager plugin'"
)


NOT_OPENED = "AWS opened no session in time (ssm:StartSession); expected one: a smaller --fanout asks for fewer at once"


class Hyperpod(Connection):
    """Runs the program in one SSM session for each node."""

    takes_stdin = False

    def longest_program(self, _limits: Limits) -> int:
        """What one StartSession accepts."""
        return LONGEST_PROGRAM

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable without the plugin or an account."""
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
        """Open a session; returns what the plugin needs to know. Raises AwsError."""
        session = self.account.call("ssm", "start_session", **_request(target, command))
        return {key: str(session[key]) for key in ("SessionId", "TokenValue", "StreamUrl")}

    def read(self, session: dict[str, str], target: str, command: str) -> subprocess.Popen[bytes]:
        """Start the plugin: it prints what the command on the node prints, and exits with it.

        It ends the session when its standard input closes, which is therefore a pipe that is held open. The token that
        opens the session is passed in the environment, because any user can see arguments.
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
        """Close a session; if that fails, SSM's own idle limit closes it."""
        with suppress(AwsError):
            self.account.call("ssm", "terminate_session", SessionId=session["SessionId"])


def _look_at_version(plugin: str) -> None:
    """Raises Unusable for a plugin version that takes the token only as an argument."""
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
    """The visit of one node: a session, and another if the first failed transiently."""

    sessions: SsmSessions
    target: Target
    program: Program
    limits: Limits
    rate: StartRate
    deadline: float = field(init=False)
    _running: subprocess.Popen[bytes] | None = None
    _answer: Answer | None = None  # a whole one
    _is_over: bool = False
    _is_opening: bool = False

    def __post_init__(self) -> None:
        self._until_started()

    def _until_started(self) -> None:
        """Give AWS its time to open a session: the node's own begins with it."""
        self._until_ended()
        self.deadline += OPEN_S
        self._is_opening = True

    def _until_ended(self) -> None:
        self._is_opening = False
        self.deadline = time.monotonic() + self.limits.connect_s + self.limits.answer_s

    def make(self) -> Answer:
        """Visit the node."""
        started = time.monotonic()
        answer = self._attempt(started)
        for attempt in range(1, ATTEMPTS):
            if self._is_over or self._answer or not _is_transient(answer):
                break
            self.rate.wait()
            self._until_started()
            time.sleep(attempt)
            answer = self._attempt(started)
        return answer

    def abandon(self) -> Answer | None:
        """Abort the visit from another thread; returns the node's answer if it is AWS that takes too long."""
        self._is_over = True
        if self._answer:  # only its session has not been closed yet
            return self._answer
        if self._running:
            _kill(self._running)
        return Answer(unreached=Unreached.THROTTLED, detail=NOT_OPENED) if self._is_opening else None

    def _attempt(self, started: float) -> Answer:
        address, command = self.target.address, self.program.command
        try:
            session = self.sessions.start(address, command)
        except AwsError as problem:
            return Answer(unreached=unreached_of(problem), detail=str(problem), seconds=time.monotonic() - started)
        self._until_ended()
        try:
            self._running = self.sessions.read(session, address, command)
            if self._is_over:  # abandoned before there was a plugin to end
                return Answer(unreached=Unreached.TIMED_OUT, detail="abandoned")
            return self._noted(
                Answer(_read(self._running, self.limits.answer_bytes), seconds=time.monotonic() - started)
            )
        except OSError as problem:
            detail = f"{PLUGIN} does not start on this machine: {problem.strerror}; expected room for --fanout"
            return Answer(unreached=Unreached.THROTTLED, detail=detail)
        finally:
            if self._running:
                _kill(self._running)
            self.sessions.end(session)

    def _noted(self, answer: Answer) -> Answer:
        """Keep a whole answer: AWS may take long to close its session."""
        if has_end(answer.output, self.program.nonce):
            self._answer = answer
        return answer


def _is_transient(answer: Answer) -> bool:
    """Whether another session may succeed: the program printed nothing, or the error is transient."""
    if answer.unreached:
        return answer.unreached in (Unreached.LOST, Unreached.API)
    return any(passing in answer.output for passing in PASSING) or not PLUGIN_LINE.sub(b"", answer.output).strip()


def _read(plugin: subprocess.Popen[bytes], most_bytes: int) -> bytes:
    """Read all that the plugin prints, up to a limit."""
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
    """Kill the plugin and its group, reap it, and close its standard input."""
    if plugin.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(plugin.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        plugin.wait(1)
    if plugin.stdin:
        plugin.stdin.close()


class StartRate:
    """Limits starts to one per 1/`per_s` seconds. Thread-safe."""

    def __init__(
        self, per_s: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pause_s = 1 / per_s
        self._now = now
        self._sleep = sleep
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> float:
        """Wait for the next slot; returns the seconds waited."""
        with self._lock:
            now = self._now()
            turn = max(now, self._next)
            self._next = turn + self._pause_s
        self._sleep(turn - now)
        return turn - now
