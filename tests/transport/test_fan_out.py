"""Many simultaneous visits: each is answered once, and none delays the others."""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import dataclass, field

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer
from clusterproof.plugins.transport.fan_out import fan_out

LONG_S = 60.0


@dataclass
class Scripted:
    """A visit that answers when it is allowed to, or fails."""

    target: Target
    deadline: float
    may_end: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    problem: Exception | None = None
    abandoned: bool = False

    def make(self) -> Answer:
        try:
            self.may_end.wait(LONG_S)
            if self.problem:
                raise self.problem
            return Answer(self.target.name.encode())
        finally:
            self.ended.set()

    def abandon(self) -> None:
        self.abandoned = True
        self.may_end.set()


def run(visits: dict[str, Scripted], fanout: int = 64) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}

    def answered(target: Target, answer: Answer) -> None:
        assert target.name not in answers
        answers[target.name] = answer

    fan_out([visit.target for visit in visits.values()], lambda target: visits[target.name], fanout, answered)
    return answers


def visit(name: str, timeout_s: float = LONG_S, may_end: bool = True) -> Scripted:
    made = Scripted(Target(name), time.monotonic() + timeout_s)
    if may_end:
        made.may_end.set()
    return made


def named(*visits: Scripted) -> dict[str, Scripted]:
    return {made.target.name: made for made in visits}


def test_every_target_is_answered_once() -> None:
    names = [f"n{number}" for number in range(200)]
    answers = run(named(*map(visit, names)), fanout=7)
    assert {name: answer.output.decode() for name, answer in answers.items()} == {name: name for name in names}


def test_no_target_is_no_visit() -> None:
    assert run({}) == {}


def test_a_visit_past_its_deadline_is_abandoned_and_the_others_go_on() -> None:
    stuck = visit("stuck", timeout_s=0.2, may_end=False)
    answers = run(named(stuck, visit("a"), visit("b"), visit("c")), fanout=2)
    assert answers["stuck"].unreached is Unreached.TIMED_OUT
    assert stuck.abandoned
    assert sorted(answers) == ["a", "b", "c", "stuck"]


def test_a_visit_that_ends_after_it_was_abandoned_is_not_answered_again() -> None:
    late = visit("late", timeout_s=0.0, may_end=False)
    after = visit("after", may_end=False)

    def release() -> None:
        late.ended.wait(LONG_S)
        after.may_end.set()

    threading.Thread(target=release, daemon=True).start()
    answers = run(named(late, after))
    assert answers["late"].unreached is Unreached.TIMED_OUT
    assert answers["after"].output == b"after"


def test_a_fault_of_ours_costs_one_node() -> None:
    broken = visit("broken")
    broken.problem = KeyError("surprise")
    answers = run(named(broken, visit("a")))
    assert (answers["broken"].unreached, answers["broken"].detail) == (Unreached.LOST, "KeyError: 'surprise'")
    assert answers["a"].output == b"a"


def test_where_this_machine_has_no_thread_left_no_node_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    answer = run(named(visit("a")))["a"]
    said = "can't start new thread on this machine; expected room for --fanout"
    assert (answer.unreached, answer.detail) == (Unreached.THROTTLED, said)


@pytest.mark.parametrize(
    "problem", [RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many open files"), MemoryError()]
)
def test_a_visit_for_which_this_machine_has_no_room_accuses_no_node(problem: Exception) -> None:
    cramped = visit("cramped")
    cramped.problem = problem
    assert run(named(cramped))["cramped"].unreached is Unreached.THROTTLED


def test_an_interrupted_fan_out_abandons_what_is_still_running() -> None:
    stuck = visit("stuck", may_end=False)
    visits = named(stuck, visit("first"))

    def answered(target: Target, answer: Answer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fan_out([made.target for made in visits.values()], lambda target: visits[target.name], 2, answered)
    assert stuck.abandoned
