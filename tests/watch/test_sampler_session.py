"""One node's permanent connection: it restarts whatever ends it, and disconnects a node that floods."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from clusterproof.plugins.agent.program import Program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.watch import sampler_session as module
from clusterproof.plugins.watch.sampler_session import (
    MAX_A_TICK,
    SamplerOptions,
    SamplerSession,
    SessionEnded,
    SessionEvent,
)
from clusterproof.plugins.watch.updates import Hello

HELLO = b' {"sampler":1,"boot_id":"b","log":"","now":1.0,"up":2.0}\n'
TIMEOUT_S = 600.0


class Scripted:
    """A connection that performs these steps in turn, and then ends for good."""

    has_input = True

    def __init__(self, *acts: Callable[[str, Callable[[bytes], object]], str]) -> None:
        self.acts = list(acts)
        self.over = threading.Event()

    def run(self, target: Target, program: Program, received: Callable[[bytes], object], dead_s: float) -> str:  # noqa: ARG002
        nonce = program.command.partition("n=")[2].partition(";")[0]
        if self.acts:
            return self.acts.pop(0)(nonce, received)
        self.over.wait(TIMEOUT_S)
        return ""

    def end(self) -> None:
        self.over.set()


def says_hello(nonce: str, take: Callable[[bytes], object]) -> str:
    take(nonce.encode() + HELLO)
    return "the connection broke: reset"


def floods(_nonce: str, take: Callable[[bytes], object]) -> str:
    while True:
        take(b"x" * 1000 + b"\n")


def lies(nonce: str, take: Callable[[bytes], object]) -> str:
    take(f"{nonce} {{}}\n".encode())
    return ""


def loses(nonce: str, take: Callable[[bytes], object]) -> str:
    take(b"".join(nonce.encode() + HELLO.replace(b'"sampler"', b'"n":%d,"sampler"' % number) for number in (0, 1, 4)))
    return ""


def refuses(_nonce: str, take: Callable[[bytes], object]) -> str:
    take(b"This account is currently not available.\n")
    return "the program ended"


def breaks(_nonce: str, _take: Callable[[bytes], object]) -> str:
    raise KeyError("a fault of ours")


@pytest.mark.long
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (says_hello, "the connection broke: reset"),
        (floods, f"not understood: more than {MAX_A_TICK:,} bytes a tick"),
        (lies, "not understood: KeyError"),
        (loses, "lines of its sampler were lost: 2; expected every one"),
        (refuses, "the program ended: This account is currently not available."),
        (breaks, "KeyError: 'a fault of ours'"),
    ],
)
def test_whatever_ends_a_connection_is_reported_and_it_begins_anew(
    act: Callable[[str, Callable[[bytes], object]], str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    events: SimpleQueue[SessionEvent | None] = SimpleQueue()
    session = Scripted(act, says_hello)
    line = SamplerSession(Target("gpu001"), session, SamplerOptions(10.0), lambda: None, events)
    line.start()
    seen: list[object] = []
    while sum(isinstance(update, SessionEnded) for update in seen) < 2:
        event = events.get(timeout=TIMEOUT_S)
        assert event is not None
        seen.append(event.what)
    line.end()
    assert line.join(TIMEOUT_S)
    ended = [update.why for update in seen if isinstance(update, SessionEnded)]
    assert ended[0].startswith(words)
    assert any(isinstance(update, Hello) for update in seen)


def test_a_connection_for_which_no_thread_can_be_started_begins_once_one_can(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[str]()

    def starts_all_but_the_second(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts_all_but_the_second)
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "NO_THREAD_S", 0.01)
    events: SimpleQueue[SessionEvent | None] = SimpleQueue()
    line = SamplerSession(
        Target("gpu001"), Scripted(says_hello, says_hello), SamplerOptions(10.0), lambda: None, events
    )
    line.start()
    seen = [events.get(timeout=TIMEOUT_S) for _ in range(4)]
    line.end()
    assert line.join(TIMEOUT_S)
    assert [type(event.what) for event in seen if event] == [Hello, SessionEnded] * 2


@pytest.mark.long
def test_who_sends_faster_than_anybody_takes_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    has_update = threading.Event()

    def sends_much(nonce: str, take: Callable[[bytes], object]) -> str:
        take((nonce.encode() + HELLO) * 10)
        has_update.set()
        return ""

    events: SimpleQueue[SessionEvent | None] = SimpleQueue()
    line = SamplerSession(Target("gpu001"), Scripted(sends_much), SamplerOptions(10.0), lambda: None, events)
    line.start()
    taken = [events.get(timeout=TIMEOUT_S)]
    while not has_update.is_set() or events.qsize():
        assert events.qsize() <= 4
        taken.append(events.get(timeout=TIMEOUT_S))
    line.end()
    assert line.join(TIMEOUT_S)
    assert sum(bool(event and isinstance(event.what, Hello)) for event in taken) == 10
