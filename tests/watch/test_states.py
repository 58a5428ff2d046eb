"""What opens, closes and flaps, and how often it is reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import TOO_MANY, Change, ChangeKind, Key, RuleResult, RuleResults
from clusterproof.plugins.watch import states as module
from clusterproof.plugins.watch.states import States

RULE, DEVICE = "gpu.no_throttle", "GPU 3"
RULES = frozenset({RULE})
SLOW = RuleResult(Verdict.CONCERN, "slowed down; expected none")
WORSE = RuleResult(Verdict.FAIL, "steadily slowed down; expected none")
TWO = RuleResult(Verdict.CONCERN, "slowed down; expected none; also hot; expected cool", findings=2)
HOLDS: RuleResults = {(DEVICE, RULE): SLOW}


def ticks(states: States, looks: str, began: float = 0.0, every_s: float = 10.0) -> list[tuple[int, str]]:
    """Which tick reports what; `x` is a tick with the finding, `X` one where it fails, `2` one with two findings."""
    changed = []
    for number, look in enumerate(looks):
        results = {"x": HOLDS, "X": {(DEVICE, RULE): WORSE}, "2": {(DEVICE, RULE): TWO}}.get(look, {})
        now = began + every_s * number
        changes = [*states.tick("gpu001", RULES, results, now), *states.settle(now)]
        changed += [(number, change.kind.value) for change in changes]
    return changed


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ("xx...xx...xx...", []),
        ("x.x.x", [(4, "opened")]),
        ("xxx", [(2, "opened")]),
        ("xxxxxxxxxxxx", [(2, "opened")]),
        ("xxx.....x......", [(2, "opened"), (14, "closed")]),
        ("xxx......", [(2, "opened"), (8, "closed")]),
        ("xxxXX", [(2, "opened"), (3, "worse")]),
        ("xxXxX", [(2, "opened")]),
        ("XXX", [(2, "opened")]),
        ("xxx22x2", [(2, "opened"), (3, "worse")]),
    ],
)
def test_a_state_opens_after_three_of_five_ticks_and_closes_after_six_without(
    looks: str, said: Sequence[tuple[int, str]]
) -> None:
    assert ticks(States(), looks) == said


def test_what_opens_a_third_time_within_an_hour_flaps_and_is_said_no_more_until_it_settles() -> None:
    states, once = States(), "xxx......"
    kinds = [kind for _, kind in ticks(states, once * 40)]
    assert kinds == ["opened", "closed", "opened", "closed", "flapping"]
    assert [kind for _, kind in ticks(states, once, began=20_000.0)] == ["closed", "opened", "closed"]


FLAPPED = "xxx......" * 3  # the last time from tick 20 on


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("x" * 400, [(389, "opened")]),
        ("x" * 400 + "." * 10, [(389, "opened"), (432, "closed")]),
        ("." * 400, [(380, "closed")]),
        ("." * 300 + "x" * 400, [(689, "opened")]),
        ("." * 300 + "x" * 20 + "." * 400, [(689, "closed")]),
        ("." * 100 + "xxx......" * 20 + "." * 400, [(660, "closed")]),
        ("." * 10 + "XXX" + "." * 400, [(39, "worse"), (399, "closed")]),
    ],
)
def test_what_flapped_is_said_to_be_open_or_over_once_it_has_not_opened_for_an_hour(
    after: str, said: Sequence[tuple[int, str]]
) -> None:
    assert ticks(States(), FLAPPED + after)[5:] == list(said)


def test_what_flapped_and_is_settled_is_forgotten_or_may_flap_again() -> None:
    states = States()
    ticks(states, FLAPPED + "." * 400)
    assert not states._of["gpu001"]
    kinds = [kind for _, kind in ticks(states, FLAPPED, began=10_000.0)]
    assert kinds == ["opened", "closed", "opened", "closed", "flapping"]


def resumed(last_s: float) -> States:
    """What the next watch knows of flapping, whose last change was reported then; it starts at 0."""
    states, key = States(), Key("gpu001", DEVICE, RULE)
    kinds = ((ChangeKind.FLAPPING, last_s - 9_000.0), (ChangeKind.WORSE, last_s))
    states.resume([Change(kind, key, Verdict.CONCERN, "slow", at) for kind, at in kinds], 0.0)
    return states


@pytest.mark.parametrize(
    ("last_s", "looks", "said"),
    [
        (-9_000.0, "." * 100, [(5, "closed")]),
        (-9_000.0, "x" * 100, [(0, "opened")]),
        (-600.0, "." * 400, [(300, "closed")]),
        (-600.0, "x" * 400, [(300, "opened")]),
        (-600.0, "." * 100 + "xxx......" + "." * 400, [(462, "closed")]),
        (9_000.0, "." * 400, [(360, "closed")]),
    ],
)
def test_what_flapped_when_the_watch_was_killed_settles_an_hour_after_what_was_said_last(
    last_s: float, looks: str, said: Sequence[tuple[int, str]]
) -> None:
    assert ticks(resumed(last_s), looks) == list(said)


def test_what_flapped_is_said_to_be_over_however_often_the_watch_begins_again() -> None:
    every = [ticks(resumed(-1_800.0 * number), "." * 100) for number in range(4)]
    assert every == [[], [], [(5, "closed")], [(5, "closed")]]


def test_what_opened_by_a_clock_that_was_set_back_since_flaps_no_longer_than_an_hour() -> None:
    states, key = States(), Key("gpu001", DEVICE, RULE)
    kinds = (ChangeKind.OPENED, ChangeKind.CLOSED) * 2
    states.resume([Change(kind, key, Verdict.CONCERN, "slow", 9_000_000.0) for kind in kinds], 0.0)
    once = "xxx......"
    assert [kind for _, kind in ticks(states, once, began=10_000.0)] == ["opened", "closed"]


def test_what_flapped_and_was_not_evaluated_since_the_watch_began_again_is_neither_open_nor_over() -> None:
    assert resumed(-9_000.0).settle(9_000.0) == []


def test_an_event_is_said_at_once_and_once_and_closes_at_once() -> None:
    states, rules = States(), frozenset({"gpu.no_xid"})
    results: RuleResults = {("GPU 1, Xid 79", "gpu.no_xid"): WORSE}
    changed = [states.events("gpu001", rules, results, float(at)) for at in range(100)]
    assert [len(changes) for changes in changed] == [1] + [0] * 99
    assert [change.kind for change in states.events("gpu001", rules, {}, 100.0)] == [ChangeKind.CLOSED]
    assert states.open == {}


def test_each_device_and_rule_has_a_state_of_its_own_and_other_rules_are_left_alone() -> None:
    states = States()
    results: RuleResults = {("GPU 1", "a"): WORSE, ("GPU 2", "a"): WORSE, ("", "b"): SLOW}
    assert len(states.events("gpu001", frozenset("ab"), results, 0.0)) == 3
    assert states.events("gpu001", frozenset("a"), {("GPU 2", "a"): WORSE}, 1.0)[0].key.device == "GPU 1"
    assert {(key.device, key.rule) for key in states.open} == {("GPU 2", "a"), ("", "b")}
    assert states.events("gpu002", frozenset("ab"), {}, 2.0) == []


def test_a_concern_that_becomes_a_fail_is_said_again_and_once() -> None:
    states = States()
    kinds: list[ChangeKind] = []
    for at, seen in enumerate((SLOW, WORSE, SLOW, WORSE)):
        changes: list[Change] = states.events("gpu001", RULES, {(DEVICE, RULE): seen}, float(at))
        kinds += [change.kind for change in changes]
    assert kinds == [ChangeKind.OPENED, ChangeKind.WORSE]


def test_a_node_with_ever_new_findings_takes_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 10)
    states = States()
    count = sum(len(states.events("gpu001", RULES, {(f"GPU {at}", RULE): WORSE}, float(at))) for at in range(1000))
    assert count < 1000 * 2
    assert len(states._of["gpu001"]) <= 10


def test_that_a_node_has_more_findings_than_are_said_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    states = States()
    results = {(f"GPU {at}", RULE): WORSE for at in range(3)}
    assert len(states.events("gpu001", RULES, results, 0.0)) == 2
    (more,) = states.settle(0.0)
    assert (more.key, more.verdict, more.kind) == (Key("gpu001", "", TOO_MANY), Verdict.INCOMPLETE, ChangeKind.OPENED)
    assert states.settle(1.0) == []
    again = States()
    again.resume([more, *(replace(more, key=Key("gpu001", f"GPU {at}", RULE)) for at in range(2))], 10.0)
    assert again.settle(20.0) == []
    for later in (states, again):
        later.events("gpu001", RULES, {}, 10_000.0)
        assert [(change.key.rule, change.kind) for change in later.settle(10_000.0)] == [(TOO_MANY, ChangeKind.CLOSED)]
        assert later.settle(10_001.0) == []


def test_what_is_open_stays_known_however_much_was_open_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 10)
    states, kinds = States(), (ChangeKind.OPENED, ChangeKind.CLOSED)
    keys = [Key("gpu001", f"GPU 1, Xid {at}", RULE) for at in range(30)]
    over = [Change(kind, key, Verdict.FAIL, "slow", -9_000.0) for key in keys for kind in kinds]
    states.resume([*over, Change(ChangeKind.OPENED, Key("gpu001", DEVICE, RULE), Verdict.FAIL, "slow", -60.0)], 0.0)
    assert list(states.open) == [Key("gpu001", DEVICE, RULE)]
    assert states.events("gpu001", RULES, {(DEVICE, RULE): WORSE}, 10.0) == []


def test_what_was_over_long_ago_is_forgotten() -> None:
    states = States()
    ticks(states, "xxx......")
    assert states._of["gpu001"]
    ticks(states, "......", began=10_000.0)
    assert not states._of["gpu001"]
