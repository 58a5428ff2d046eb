"""`--remind` and incidents: open findings are sent again in their current state, under the key that closes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult
from clusterproof.plugins.watch.notify import Notification
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.services import message_of
from tests.watch.receiving import change

CLOSED, FLAPPING, WORSE = ChangeKind.CLOSED, ChangeKind.FLAPPING, ChangeKind.WORSE


class Receiving:
    """An outbox whose receiver accepts everything, each time."""

    def __init__(self) -> None:
        self.outbox = Outbox("prod")

    def add(self, at_s: float, *changes: Change) -> Receiving:
        """Add these changes at that time."""
        self._apply(self.outbox.taking(changes, at_s))
        return self

    def told(self, at_s: float, *changes: Change) -> list[Notification]:
        """The notifications when these change then."""
        return self.add(at_s, *changes).sent()

    def reminded(self, at_s: float, now: Mapping[Key, RuleResult] | None = None) -> list[Notification]:
        """The reminders at that time of what was sent at least 100 s earlier; all of it is open by default."""
        every = dict.fromkeys(self.outbox.open, RuleResult(Verdict.FAIL, "of it; expected none"))
        self._apply(self.outbox.reminding(100.0, at_s, every if now is None else now))
        return self.sent()

    def sent(self) -> list[Notification]:
        """Send all that waits."""
        sent = []
        while group := next(self.outbox.groups(), None):
            entry = self.outbox.freezing(group)
            self.outbox.apply(entry)
            sent.append(self.outbox.notification(entry["freeze"]))
            self._apply(list(self.outbox.entries()))  # as a watch finds it when it continues
            self.outbox.apply({"sent": entry["freeze"]})
        return sent

    def _apply(self, entries: Any) -> None:
        again = Outbox("prod")
        for entry in [*self.outbox.entries(), *entries]:
            again.apply(entry)
        self.outbox = again


def kinds_and_nodes(every: list[Notification]) -> list[tuple[str, str]]:
    return [(notification.alerts[0].kind, notification.nodes) for notification in every]


def test_what_stays_open_is_told_again_once_for_all_that_opened_together_and_what_is_over_is_not() -> None:
    receiving = Receiving()
    for at, opened in enumerate((change("a"), change("b"), change("c"), change("c", CLOSED))):
        receiving.add(10.0 * at, opened)
    assert kinds_and_nodes(receiving.sent()) == [("opened", "a,b,c"), ("closed", "c")]
    assert receiving.reminded(99.0) == []
    assert kinds_and_nodes(receiving.reminded(100.0)) == [("reminder", "a,b")]
    assert receiving.reminded(150.0) == []
    assert kinds_and_nodes(receiving.reminded(201.0)) == [("reminder", "a,b")]
    assert kinds_and_nodes(receiving.reminded(-3_400.0)) == [("reminder", "a,b")]  # the clock was set back by an hour
    assert receiving.reminded(-3_350.0) == []
    assert kinds_and_nodes(receiving.reminded(-3_300.0)) == [("reminder", "a,b")]


def test_a_reminder_says_since_when_and_how_it_is_by_now() -> None:
    receiving, key = Receiving(), Key("a", "", "watch.silent")
    (opened,) = receiving.told(1_000.0, change("a"))
    (worse,) = receiving.told(1_010.0, change("a", WORSE))
    less = RuleResult(Verdict.CONCERN, "91 % full; expected at most 90 %")
    (again,) = receiving.reminded(1_200.0, {key: less})
    assert {notification.alerts[0].since_s for notification in (opened, worse, again)} == {1_000.0}
    assert (again.alerts[0].verdict, again.alerts[0].message) == (less.verdict, less.message)
    assert message_of(again).title == "prod: still open: concern watch.silent on a"
    (closed,) = receiving.told(1_300.0, change("a", CLOSED))
    assert (closed.alerts[0].since_s, closed.alerts[0].time_s) == (1_000.0, 1_300.0)
    assert receiving.told(2_000.0, change("a"))[0].alerts[0].since_s == 2_000.0


def test_what_flaps_on_a_node_that_is_watched_no_more_is_not_told_again() -> None:
    receiving = Receiving()
    receiving.told(0.0, change("a", FLAPPING), change("b", FLAPPING))
    due = list(receiving.outbox.reminding(100.0, 100.0, {}, {"b", "c"}))
    assert [entry["add"]["node"] for entry in due] == ["b"]
    assert receiving.outbox.of_others({"b", "c"}) == ["a"]


def test_what_flaps_is_told_again_and_what_becomes_of_it_too() -> None:
    receiving = Receiving()
    receiving.told(0.0, change("a", FLAPPING))
    (again,) = receiving.reminded(100.0, {})
    assert again.alerts[0].message == "flapping: of a; expected none"
    receiving.told(110.0, change("a", WORSE))
    assert [notification.alerts[0].message for notification in receiving.reminded(210.0)] == [
        "flapping: of it; expected none"
    ]
    assert kinds_and_nodes(receiving.told(250.0, change("a"))) == [("opened", "a")]
    assert [notification.alerts[0].message for notification in receiving.reminded(350.0)] == ["of it; expected none"]
    assert kinds_and_nodes(receiving.told(400.0, change("a", CLOSED))) == [("closed", "a")]


def test_of_what_is_not_open_any_more_as_on_a_node_that_nobody_watches_nothing_is_told_again() -> None:
    receiving = Receiving()
    receiving.told(0.0, change("a"))
    assert receiving.reminded(100.0, {}) == []


@pytest.mark.parametrize("kind", [CLOSED, WORSE])
def test_what_opened_apart_is_told_again_and_changes_under_the_incident_of_each(kind: ChangeKind) -> None:
    receiving = Receiving()
    incidents = [receiving.told(10.0 * at, change(node))[0].incident for at, node in enumerate(("a", "b"))]
    again = [notification for at_s in (100.0, 110.0) for notification in receiving.reminded(at_s)]
    assert [notification.incident for notification in again] == incidents
    assert [
        notification.incident for notification in receiving.told(150.0, change("a", kind), change("b", kind))
    ] == incidents


def test_an_incident_of_several_is_closed_with_the_last_of_them_and_not_before() -> None:
    receiving = Receiving()
    (opened,) = receiving.told(0.0, change("a"), change("b"), change("c"))
    (first,) = receiving.told(10.0, change("a", CLOSED))
    (anew,) = receiving.told(20.0, change("a"))
    assert opened.incident not in (first.incident, anew.incident)
    assert [notification.incident for notification in receiving.reminded(110.0) if notification.nodes == "b,c"] == [
        opened.incident
    ]
    (worse,) = receiving.told(150.0, change("c", WORSE))
    (rest,) = receiving.told(160.0, change("b", CLOSED), change("c", CLOSED))
    assert worse.incident == rest.incident == opened.incident
    (alone,) = receiving.told(200.0, change("b"))
    assert alone.incident != opened.incident


def test_parts_that_wait_close_their_incident_with_the_part_that_is_sent_last() -> None:
    receiving = Receiving()
    (opened,) = receiving.told(0.0, change("a"), change("b"))
    receiving.add(10.0, change("a", CLOSED), change("a"), change("a", CLOSED), change("b", CLOSED))
    sent = receiving.sent()
    assert kinds_and_nodes(sent) == [("closed", "a,b"), ("opened", "a"), ("closed", "a")]
    assert [notification.incident == opened.incident for notification in sent] == [True, False, False]
