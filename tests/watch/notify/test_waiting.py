"""What waits in an outbox: the order and grouping in which it is sent, and the cost."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ChangeKind, RuleResult
from clusterproof.plugins.watch.notify import Alert, waiting
from clusterproof.plugins.watch.notify.outbox import Outbox
from tests.watch.receiving import change

MANY = 300


def add(outbox: Outbox, at_s: float, kind: ChangeKind, *nodes: str) -> None:
    for entry in list(outbox.taking([change(node, kind) for node in nodes], at_s)):
        outbox.apply(entry)


def tried(outbox: Outbox) -> tuple[str, str]:
    """The next notification, now in transit: its id, and the nodes it concerns."""
    name = outbox.freezing(next(outbox.groups()))
    outbox.apply(name)
    return name["freeze"], outbox.notification(name["freeze"]).nodes


def test_what_comes_later_of_a_finding_waits_until_what_was_tried_is_taken() -> None:
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "a")
    name, _ = tried(outbox)
    add(outbox, 10.0, ChangeKind.CLOSED, "a")
    add(outbox, 10.0, ChangeKind.OPENED, "b")
    other, nodes = tried(outbox)
    assert (nodes, [*outbox.groups()]) == ("b", [])
    outbox.apply({"sent": other})
    assert [*outbox.groups()] == []
    outbox.apply({"sent": name})
    assert [entry.kind for group in outbox.groups() for entry in group] == ["closed"]


def test_what_comes_before_a_group_is_sent_goes_with_it() -> None:
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "a")
    group = next(outbox.groups())
    add(outbox, 1.0, ChangeKind.OPENED, "b")
    assert [entry.key.node for entry in next(outbox.groups())] == ["a", "b"]
    outbox.apply(outbox.freezing(group))
    assert [entry.key.node for entry in next(outbox.groups())] == ["b"]


@pytest.mark.parametrize(
    ("recorded", "kinds"),
    [
        ("of a; expected none; also of b; expected none", ["worse"]),
        ("of a; expected none", []),
    ],
)
def test_what_got_worse_just_before_the_watch_was_killed_is_told_by_the_next(recorded: str, kinds: list[str]) -> None:
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "a")
    outbox.apply({"sent": tried(outbox)[0]})
    now = {change("a").key: RuleResult(Verdict.FAIL, recorded)}
    entries = list(outbox.catching_up({"a"}, now, 10.0, {}))
    assert [(entry["add"]["kind"], entry["add"]["message"]) for entry in entries] == [
        (kind, recorded) for kind in kinds
    ]


def test_a_freeze_of_what_does_not_wait_changes_nothing() -> None:
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "a")
    before = list(outbox.entries())
    for numbers in ([], [1, 9], [9]):
        with pytest.raises(LookupError):
            outbox.apply({"freeze": "x", "of": numbers})
    assert list(outbox.entries()) == before


def test_of_more_than_may_wait_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 2)
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "a", "b", "c")
    assert (outbox.dropped, [entry.key.node for entry in next(outbox.groups())]) == (1, ["b", "c"])


def test_what_was_dropped_is_told_by_the_next_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 2)
    outbox = Outbox("prod")
    add(outbox, 0.0, ChangeKind.OPENED, "over")
    outbox.apply({"sent": tried(outbox)[0]})
    add(outbox, 1.0, ChangeKind.CLOSED, "over")
    add(outbox, 1.0, ChangeKind.OPENED, "open", "gone", "b", "c")
    add(outbox, 2.0, ChangeKind.CLOSED, "gone")
    assert (outbox.dropped, [entry.key.node for entry in next(outbox.groups())]) == (3, ["b", "c"])
    restarted = Outbox("prod")
    for entry in outbox.entries():
        restarted.apply(entry)
    now = {change(node).key: RuleResult(Verdict.FAIL, f"of {node}; expected none") for node in ("open", "b", "c")}
    every = list(restarted.catching_up({"over", "open", "gone", "b", "c"}, now, 10.0, {}))
    assert [(entry["add"]["kind"], entry["add"]["node"]) for entry in every] == [("closed", "over"), ("opened", "open")]


@pytest.mark.parametrize("found", ["of a; expected none", "of a; expected none; also of b; expected none"])
def test_a_change_for_the_worse_that_was_dropped_is_told_by_the_next_watch(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 2)
    outbox, opened = Outbox("prod"), change("a")
    for kind, verdict in ((ChangeKind.OPENED, Verdict.CONCERN), (ChangeKind.WORSE, Verdict.FAIL)):
        message = found if kind is ChangeKind.WORSE else opened.message
        for entry in list(outbox.taking([replace(opened, kind=kind, verdict=verdict, message=message)], 0.0)):
            outbox.apply(entry)
        if kind is ChangeKind.OPENED:
            outbox.apply({"sent": tried(outbox)[0]})
    add(outbox, 1.0, ChangeKind.OPENED, "b", "c")
    assert outbox.dropped == 1
    every = list(outbox.catching_up({"a"}, {opened.key: RuleResult(Verdict.FAIL, found)}, 10.0, {}))
    added = [entry["add"] for entry in every if "add" in entry]
    assert [(alert["kind"], alert["verdict"], alert["message"]) for alert in added] == [("worse", "fail", found)]


@pytest.mark.long
def test_to_close_many_incidents_each_alert_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, looks = Outbox("prod"), 0
    nodes = [f"gpu{number}" for number in range(MANY)]
    for at, node in enumerate(nodes):
        add(outbox, 10.0 * at, ChangeKind.OPENED, node)
        outbox.apply({"sent": tried(outbox)[0]})

    def cause(alert: Alert) -> tuple[object, ...]:
        nonlocal looks
        looks += 1
        return alert.kind, alert.key.rule, alert.verdict

    monkeypatch.setattr(Alert, "cause", property(cause))
    add(outbox, 1e6, ChangeKind.CLOSED, *nodes)
    for _ in nodes:
        outbox.apply({"sent": tried(outbox)[0]})
    assert not outbox.count
    assert looks < 10 * MANY
