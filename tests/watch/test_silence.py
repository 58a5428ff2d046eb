"""A node is silent once an expected message is missing; a visit or log-in that takes long is no silence."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Limits, Program, Received
from clusterproof.plugins.watch import Change, visits
from clusterproof.plugins.watch import controller as module
from clusterproof.plugins.watch.controller import Controller, Events, WatchSettings
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.own_health import SILENT
from clusterproof.plugins.watch.sampler_session import SamplerOptions, SessionEnded, SessionEvent
from clusterproof.plugins.watch.updates import Hello, LogUpdate, Tick, Update
from clusterproof.plugins.watch.view import first_answers
from clusterproof.plugins.watch.visits import Visited
from clusterproof.plugins.watch.watch import Watch
from tests.watch.conditions import TIMEOUT_S, until
from tests.watch.days import NODE, Day, evidence

EVERY_S, LOOKS = 0.01, 20  # many more ticks than a silence takes
SETTINGS = WatchSettings(SamplerOptions(EVERY_S), Limits(), ProbeOptions())


@dataclass
class Slow:
    """A sampler on a node that logs in once allowed, and whose connection then breaks."""

    has_input = True
    let_in: threading.Event = field(default_factory=threading.Event)

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str:  # noqa: ARG002
        self.let_in.wait(TIMEOUT_S)
        return "the connection broke"

    def end(self) -> None:
        self.let_in.set()

    def open(self, text: str) -> None:
        """Nothing to prepare."""

    def on_node(self, interrupted: Callable[[str], object]) -> Slow:  # noqa: ARG002
        return self

    close = end


@dataclass
class Running:
    """A running watch of one node, with the number of its checks for silence."""

    node: Slow
    said: list[Change] = field(default_factory=list)
    looks: int = 0

    def until(self, is_so: Callable[[], bool]) -> None:
        until(is_so, lambda: self.said)

    def until_looked(self) -> None:
        wanted = self.looks + LOOKS
        self.until(lambda: self.looks >= wanted)

    @property
    def silences(self) -> list[Change]:
        return [change for change in self.said if change.key.rule == SILENT]


@dataclass
class Clock:
    """A replacement for the module `time`."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, visit: Callable[[], NodeEvidence]) -> Iterator[Running]:
    cluster = Cluster("one", "ssh", (Target(NODE, instance_type="p5.48xlarge"),))
    made = Running(Slow())
    watch = Watch(Evaluator(cluster, NO_POLICY), EVERY_S, [NODE], time.monotonic())
    look = watch.check_silence

    def counted(now: float) -> list[Change]:
        made.looks += 1
        return look(now)

    monkeypatch.setattr(watch, "check_silence", counted)
    monkeypatch.setattr(visits, "gather", lambda *_: {NODE: visit()})
    monkeypatch.setattr(module, "sessions_for", lambda *_: made.node)
    controller = Controller(cluster, watch, SETTINGS, None, made.said.extend)
    thread = threading.Thread(target=controller.run)
    thread.start()
    try:
        yield made
    finally:
        controller.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@pytest.mark.long
def test_a_first_visit_and_a_log_in_that_take_longer_than_a_silence_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_visit() -> NodeEvidence:
        time.sleep(LOOKS * EVERY_S)
        return replace(evidence(), node=NODE)

    with running(monkeypatch, slow_visit) as watch:
        watch.until_looked()
        assert watch.silences == []
        watch.node.let_in.set()  # then its connection breaks
        watch.until(lambda: bool(watch.silences))
        assert "the connection broke" in watch.silences[0].message


def test_while_the_first_answers_are_awaited_it_says_whose(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    has_said = threading.Event()
    day = Day()

    def answered_late(*_: object) -> dict[str, NodeEvidence]:
        assert has_said.wait(TIMEOUT_S)
        controller.stop()
        return {NODE: evidence()}

    def say(message: str) -> None:
        messages.append(message)
        has_said.set()

    monkeypatch.setattr(module, "LINE_S", 0.01)
    monkeypatch.setattr(visits, "gather", answered_late)
    controller = Controller(day.watch.evaluator.cluster, day.watch, SETTINGS, None, day.said.extend, say=say)
    controller.run()
    assert messages[0] == f"asking the nodes: 0 of 1 done; waiting for {NODE}"


@pytest.mark.long
def test_the_first_answers_are_said_with_whom_nobody_reached() -> None:
    assert first_answers(Day().watch, []) == "all asked once: 1 node, 0 with a fail"
    message = "all asked once: 1 node, 0 with a fail, 2 not reached (gpu[001-002])"
    assert first_answers(Day().watch, ["gpu001", "gpu002"]) == message


def test_many_silent_nodes_leave_room_for_those_that_nobody_reached() -> None:
    names = [f"odd{at * at}name" for at in range(200)]
    watch = Watch(Evaluator(Cluster("c", "ssh", tuple(map(Target, names))), NO_POLICY), 10.0, names, 0.0)
    for tick in range(LOOKS):
        watch.check_silence(10.0 * tick)
    said = first_answers(watch, ["odd4name"])
    assert said.startswith("all asked once: 200 nodes, 0 with a fail, 200 silent (odd[0-1,4,9,")
    assert said.endswith(" more), 1 not reached (odd4name)")


def test_a_node_that_waits_for_its_turn_to_be_connected_to_is_not_silent() -> None:
    day = Day()
    day.watch.connecting(day.now)
    day.silence(600)
    assert day.of(SILENT) == []
    day.watch.ended(NODE, "no route")
    day.silence(10)
    assert day.of(SILENT) == ["opened"]
    day.tick()
    assert day.of(SILENT) == ["opened", "closed"]


def test_a_connection_that_ends_at_once_is_no_silence_before_its_ticks_are_over() -> None:
    day = Day()
    day.now += 600  # a visit
    day.watch.connecting(day.now)
    day.watch.ended(NODE, "it was busy")
    day.silence(20)
    assert day.of(SILENT) == []
    day.silence(10)
    assert day.of(SILENT) == ["opened"]


def test_a_watch_that_was_stopped_itself_calls_nobody_silent() -> None:
    day = Day()
    day.ticks(3)
    day.now += 600
    day.silence(10)
    day.ticks(3)
    assert day.of(SILENT) == []
    day.silence(30)
    assert day.of(SILENT) == ["opened"]


@pytest.mark.long
def test_what_a_node_sent_while_others_were_evaluated_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    day = Day()
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    controller = Controller(day.watch.evaluator.cluster, day.watch, SETTINGS, None, day.said.extend)

    def evaluated(*_: object) -> list[Change]:
        for at in range(1, 61):
            clock.now = 10.0 * at  # a tick of the day's
            controller._events.put(SessionEvent(NODE, Tick(1.7e9 + clock.now, 90_000.0 + clock.now, (), ()), clock.now))
        return []

    monkeypatch.setattr(day.watch, "evidence", evaluated)
    look = day.watch.check_silence
    monkeypatch.setattr(day.watch, "check_silence", lambda now: (controller.stop(), look(now))[1])
    controller._events.put(Visited({NODE: evidence()}))
    controller._loop()
    assert day.of(SILENT) == []
    assert day.watch.samples == 60


SAMPLE = Tick(1.7e9 + 20.0, 90_020.0, (), ())


@pytest.mark.parametrize(
    ("what", "waits"),
    [
        (SAMPLE, True),
        (replace(SAMPLE, now=SAMPLE.now + 60.0), False),
        (replace(SAMPLE, late={"gpu": (5.0, "")}), False),
        (replace(SAMPLE, facts={0: {"slowdown": None}}), False),
        (replace(SAMPLE, reported={"mounts": {}}), False),
        (LogUpdate(90_020.0, ()), False),
        (Hello("", 1.7e9, 90_000.0), False),
        (SessionEnded("it broke"), False),
    ],
)
def test_only_a_sample_of_which_nothing_can_come_waits_for_others(what: Update | SessionEnded, waits: bool) -> None:
    day = Day()
    day.watch.update(NODE, Tick(1.7e9 + 10.0, 90_010.0, (), ()), 10.0)
    assert day.watch.is_without_news(NODE, what) is waits


def test_a_sample_of_a_node_with_a_finding_waits_for_none() -> None:
    day = Day()
    day.tick(late=20.0)
    assert not day.watch.is_without_news(NODE, replace(SAMPLE, now=1_763_700_020.0))


def test_a_sample_that_waits_wakes_nobody_and_comes_before_what_does() -> None:
    events = Events(lambda event: event.what is SAMPLE)
    events.put(SessionEvent(NODE, SAMPLE, 20.0))
    assert events._wakes.empty()
    events.put(SessionEvent(NODE, SessionEnded("it broke"), 21.0))
    events.wait(TIMEOUT_S)
    assert [sample.at for sample in (events.get(), events.get()) if isinstance(sample, SessionEvent)] == [20.0, 21.0]


FILES = (threading.__file__, module.__file__)


def test_a_signal_stops_a_watch_wherever_it_waits_or_takes() -> None:
    events, is_inside = Events(lambda _: False), threading.Event()

    def interrupted(frame: FrameType, kind: str, _: object) -> object:
        """As a signal at each line of what waiting runs: its handler begins on the same thread."""
        if kind == "line" and frame.f_code.co_filename in FILES and not is_inside.is_set():
            is_inside.set()
            events.put(None)
            is_inside.clear()
        return interrupted

    def waits() -> None:
        sys.settrace(interrupted)  # type: ignore[arg-type]
        events.put(None)
        events.wait(0.0)
        events.wait(0.0)

    waiting = threading.Thread(target=waits, daemon=True)
    waiting.start()
    waiting.join(TIMEOUT_S / 10)
    assert not waiting.is_alive()
