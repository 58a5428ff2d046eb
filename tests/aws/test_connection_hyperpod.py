"""One SSM session per node: its answer is separated from other output, and the session is always closed."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status, Unreached
from clusterproof.plugins.transport import Answer, Limits, Program, Unusable
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.hyperpod import MISSING, OPEN_S, RESPONSE, Hyperpod, SessionVisit, StartRate
from tests.aws.service import DENIED, THROTTLED, Service
from tests.aws.systems_manager import PLUGINS, SystemsManager, folder_of_plugin, here, install_plugin
from tests.builders.probed import ANSWER_S, padded, reported

LIMITS = Limits(fanout=8, connect_s=ANSWER_S, answer_s=ANSWER_S, settings={"region": "us-west-2", "ssm_rate": "1000"})


@pytest.fixture(params=PLUGINS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of the session-manager-plugin; every test runs with both."""
    return folder_of_plugin(str(request.param), tmp_path)


def targets(count: int = 1) -> list[Target]:
    """Targets as the inventory creates them."""
    return [
        Target(f"ip-10-0-0-{number}", f"sagemaker-cluster:a1b2c3d4e5f6_workers-i-{number:017x}", group="workers")
        for number in range(count)
    ]


def gathered(count: int = 1, limits: Limits = LIMITS) -> list[NodeEvidence]:
    """The reports of that many nodes, in order."""
    to_run = program(["boot"], ProbeOptions(), on_stdin=False)
    by_name: dict[str, NodeEvidence] = {}

    def answered(target: Target, answer: Answer) -> None:
        assert target.name not in by_name
        by_name[target.name] = evidence_of(target, answer, to_run.nonce)

    Hyperpod().run(targets(count), to_run, limits, answered)
    return [by_name[target.name] for target in targets(count)]


def test_a_node_answers_in_one_session_which_is_closed(manager: SystemsManager) -> None:
    (evidence,) = gathered()
    assert not evidence.unreached
    assert evidence.collectors["boot"].value["uptime_s"] > 0
    assert manager.started == [targets()[0].address]
    assert manager.open == {}


def test_what_is_too_long_for_one_session_takes_as_many_as_it_needs(manager: SystemsManager, tmp_path: Path) -> None:
    long = [padded(tmp_path, 20_000, f"padded_{n}") for n in range(4)]
    (evidence,) = reported("hyperpod", targets(), long, LIMITS).values()
    assert {name: collector.status for name, collector in evidence.collectors.items()} == dict.fromkeys(
        ["boot", *(file.stem for file in long)], Status.READ
    )
    assert len(manager.started) == 2
    assert manager.open == {}


def test_many_nodes_are_asked_side_by_side_and_no_more_than_wanted(manager: SystemsManager) -> None:
    answers = gathered(12, replace(LIMITS, fanout=4))
    assert [evidence.unreached for evidence in answers] == [None] * 12
    assert 1 < manager.most_open <= 4
    assert manager.open == {}


VICES: dict[str, Callable[[bytes], bytes]] = {
    "carriage returns": lambda output: output.replace(b"\n", b"\r\n"),
    "colours": lambda output: output.replace(b"\n", b"\x1b[0m\n"),
    "newlines that became blanks": lambda output: output.replace(b"\n", b" "),
    "a banner": lambda output: b"Welcome to Ubuntu 22.04\nLast login: today\n" + output,
    "words after the end": lambda output: output + b"\n*** System restart required ***\n",
    "an echo of the command": lambda output: b"$ /bin/sh -c 'n=...'\n" + output,
}


@pytest.mark.parametrize("vice", VICES.values(), ids=VICES)
def test_what_comes_with_the_answer_does_no_harm(manager: SystemsManager, vice: Callable[[bytes], bytes]) -> None:
    manager.vices.append(vice)
    (evidence,) = gathered()
    assert not evidence.unreached


@pytest.mark.parametrize("failing", [b"", b"InternalServerError"], ids=["nothing", "an error of SSM's"])
def test_a_session_that_fails_in_passing_is_tried_again(manager: SystemsManager, failing: bytes) -> None:
    manager.fails_first = [failing]
    (evidence,) = gathered()
    assert not evidence.unreached
    assert len(manager.started) == 2
    assert manager.open == {}


def test_the_end_of_standard_input_is_no_failure_that_passes(manager: SystemsManager) -> None:
    manager.fails_first = [b"Cannot perform start session: EOF\n"]
    (evidence,) = gathered()
    assert "Cannot perform start session: EOF" in evidence.detail
    assert len(manager.started) == 1


def test_nobody_who_lists_processes_sees_the_token(manager: SystemsManager) -> None:
    seen: list[bytes] = []

    def run(target: str, command: Sequence[str]) -> bytes:
        seen.extend(_arguments_of_children())
        return here(target, command)

    manager.run = run
    (evidence,) = gathered()
    assert not evidence.unreached
    assert any(RESPONSE.encode() in arguments for arguments in seen)
    assert not any(b"token-of-" in arguments for arguments in seen)


def _arguments_of_children() -> list[bytes]:
    """The arguments of this process's children, which anybody may read."""
    children = " ".join(file.read_text() for file in Path("/proc/self/task").glob("*/children"))
    return [Path(f"/proc/{child}/cmdline").read_bytes() for child in children.split()]


def test_an_answer_that_is_cut_is_no_answer(manager: SystemsManager) -> None:
    manager.vices.append(lambda output: output[: len(output) // 2])
    (evidence,) = gathered()
    assert evidence.unreached is Unreached.CUT


def test_a_node_without_its_agent_is_not_connected_and_costs_no_other(manager: SystemsManager) -> None:
    manager.refuses = {targets(3)[1].address}
    assert [evidence.unreached for evidence in gathered(3)] == [None, Unreached.NOT_CONNECTED, None]


def test_a_denied_session_names_the_action(manager: SystemsManager, service: Service) -> None:
    service.says("StartSession", DENIED)
    (evidence,) = gathered()
    assert evidence.unreached is Unreached.AUTH
    assert "ssm:StartSession is not allowed" in evidence.detail
    assert service.calls.count("StartSession") == 1


def test_throttled_starts_are_waited_out(manager: SystemsManager, service: Service) -> None:
    service.says("StartSession", THROTTLED, THROTTLED)
    (evidence,) = gathered()
    assert not evidence.unreached


def test_a_start_that_aws_throttles_for_long_takes_nothing_of_the_nodes_time() -> None:
    class Sessions:
        """Records how long the visit may take when a session is opened, and when it is read."""

        def start(self, *_: str) -> dict[str, str]:
            left_s.append(visit.deadline - time.monotonic())
            return {}

        def read(self, *_: object) -> None:
            left_s.append(visit.deadline - time.monotonic())
            visit.abandon()
            raise OSError(errno.EMFILE, "Too many open files")

        def end(self, _session: dict[str, str]) -> None:
            """Nothing was opened."""

    left_s: list[float] = []
    limits = Limits(connect_s=5.0, answer_s=10.0)
    visit = SessionVisit(Sessions(), targets()[0], Program("true"), limits, StartRate(1000.0))  # type: ignore[arg-type]
    assert visit.make().unreached is Unreached.THROTTLED
    opening_s, reading_s = left_s
    assert opening_s > OPEN_S
    assert reading_s <= 15.0


def test_a_session_that_aws_does_not_open_in_time_is_none_of_the_node(
    manager: SystemsManager, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.hyperpod.OPEN_S", 0.1)
    service.delay_s["StartSession"] = 3.0
    (evidence,) = gathered(limits=replace(LIMITS, connect_s=0.1, answer_s=0.1))
    assert evidence.unreached is Unreached.THROTTLED
    assert "AWS opened no session in time (ssm:StartSession" in evidence.detail


def test_an_answer_counts_however_long_aws_takes_to_close_its_session() -> None:
    class Sessions:
        """Closes a session only after the visit was given up."""

        def start(self, *_: str) -> dict[str, str]:
            return {}

        def read(self, *_: object) -> subprocess.Popen[bytes]:
            return subprocess.Popen(["echo", "n:end:1:1:00000000."], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end(self, _session: dict[str, str]) -> None:
            given_up.append(visit.abandon())

    given_up: list[Answer | None] = []
    visit = SessionVisit(Sessions(), targets()[0], Program("true", nonce="n"), LIMITS, StartRate(1000.0))  # type: ignore[arg-type]
    assert given_up == [visit.make()]
    assert given_up[0]
    assert given_up[0].output == b"n:end:1:1:00000000.\n"


def test_a_whole_answer_is_not_asked_for_again_whatever_the_plugin_says_behind_it(manager: SystemsManager) -> None:
    manager.vices.append(lambda output: output + b"read tcp 10.0.0.1:443: i/o timeout\n")
    (evidence,) = gathered()
    assert not evidence.unreached
    assert len(manager.started) == 1


def test_a_session_that_hangs_ends_at_its_deadline_and_is_closed(manager: SystemsManager) -> None:
    manager.run = lambda _target, _words: here("", ["/bin/sleep", "3"])
    (evidence,) = gathered(limits=replace(LIMITS, connect_s=0.5, answer_s=0.5))
    assert evidence.unreached is Unreached.TIMED_OUT
    until = time.monotonic() + 600
    while manager.open and time.monotonic() < until:
        time.sleep(0.02)
    assert manager.open == {}


def test_without_the_plugin_it_is_said_where_it_comes_from(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(Unusable) as error:
        gathered()
    assert str(error.value) == MISSING


def test_a_plugin_that_needs_the_token_among_its_arguments_is_not_used(service: Service, tmp_path: Path) -> None:
    install_plugin(tmp_path, "1.2.497.0")
    with patch.dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}"), pytest.raises(Unusable) as error:
        gathered()
    wanted = "expected 1.2.536.0 or newer, which keeps tokens out of its arguments"
    assert str(error.value) == f"session-manager-plugin is 1.2.497.0; {wanted}"


def test_no_more_sessions_are_started_than_the_rate_allows() -> None:
    clock = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    rate = StartRate(4.0, now=lambda: clock[0], sleep=sleep)
    for _ in range(5):
        rate.wait()
    assert slept == [0.0, 0.25, 0.25, 0.25, 0.25]
