"""Outboxes of an older version, without opening times of findings and incidents: how they are continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult
from clusterproof.plugins.watch.notify import Alert, Notification, finding_id, incident_of
from clusterproof.plugins.watch.notify.outbox import Entry, Outbox
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile
from tests.watch.receiving import change

CLOSED, WORSE = ChangeKind.CLOSED, ChangeKind.WORSE
RULE = "watch.silent"


def alert(node: str, time_s: float, kind: str = "opened", number: int = 1) -> dict[str, Any]:
    """An alert in the older version's format."""
    about = {"node": node, "device": "", "rule": RULE, "verdict": "fail", "message": f"of {node}; expected none"}
    return {"number": number, "time": time_s, "kind": kind, **about}


def delivered(node: str, time_s: float, kind: str = "opened") -> Entry:
    """A delivered alert as an old watch rewrites it on restart, without what was sent together."""
    return {"delivered": alert(node, time_s, kind)}


def kept(folder: Path, *entries: Entry) -> OutboxFile:
    """An old watch's outbox, as this version reads it, twice."""
    path = folder / "outbox-1.jsonl"
    header = {"outbox": 1, "name": "5bb0e4f2a1c3", "next": 9}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in (header, *entries)))
    OutboxFile(path, Outbox("prod"), print).close()
    return OutboxFile(path, Outbox("prod"), print)


def notified(file: OutboxFile, at_s: float, *changes: Change) -> list[Notification]:
    """The notifications when these change then."""
    file.write(file.outbox.taking(changes, at_s))
    return sent(file)


def sent(file: OutboxFile) -> list[Notification]:
    """Send all that waits."""
    every = []
    while group := next(file.outbox.groups(), None):
        entry = file.outbox.freezing(group)
        file.write([entry])
        every.append(file.outbox.notification(entry["freeze"]))
        file.write([{"sent": entry["freeze"]}])
    return every


def together(*nodes: str) -> str:
    """The incident of findings that were opened together."""
    return incident_of("prod", (Alert.from_data(alert(node, 0.0)) for node in nodes))


@pytest.mark.parametrize(
    ("kind", "opened_s", "since_s"),
    [
        ("reminder", 1000.0, 1000.0),
        ("worse", 1000.0, 1000.0),
        ("reminder", None, 2000.0),
        ("reminder", 5000.0, 2000.0),
        ("opened", 1000.0, 2000.0),
        ("flapping", 1000.0, 2000.0),
    ],
)
def test_what_is_open_is_since_it_was_opened_and_not_since_it_was_told_last(
    tmp_path: Path, kind: str, opened_s: float | None, since_s: float
) -> None:
    file, key = kept(tmp_path, delivered("a", 2000.0, kind)), Key("a", "", RULE)
    now = {key: RuleResult(Verdict.FAIL, "of a; expected none")}
    file.write(file.outbox.catching_up({"a"}, now, 6000.0, {} if opened_s is None else {key: opened_s}))
    file.write(file.outbox.reminding(100.0, 6000.0, now))
    every = [*sent(file), *notified(file, 6010.0, change("a", WORSE)), *notified(file, 6020.0, change("a", CLOSED))]
    assert [(notification.alerts[0].kind, notification.alerts[0].since_s) for notification in every] == [
        ("reminder", since_s),
        ("worse", since_s),
        ("closed", since_s),
    ]


def test_what_was_over_when_the_watch_began_is_since_it_was_opened(tmp_path: Path) -> None:
    file, key = kept(tmp_path, delivered("a", 2000.0, "reminder")), Key("a", "", RULE)
    file.write(file.outbox.catching_up({"a"}, {}, 6000.0, {key: 1000.0}))
    assert [notification.alerts[0].since_s for notification in sent(file)] == [1000.0]


@pytest.mark.parametrize("times", [(1000.0, 1000.0, 1000.0), (1000.0, 1000.4, 1001.9)])
def test_what_was_opened_together_is_closed_under_its_incident_with_the_last_of_it(
    tmp_path: Path, times: Sequence[float]
) -> None:
    file = kept(tmp_path, *map(delivered, "abc", times))
    (first,) = notified(file, 2000.0, change("b", CLOSED))
    (rest,) = notified(file, 2100.0, change("a", CLOSED), change("c", CLOSED))
    assert (first.incident, rest.incident) == (finding_id("prod", Key("b", "", RULE)), together("a", "b", "c"))


def test_what_was_opened_apart_or_reminded_of_together_is_closed_under_the_incident_of_each(tmp_path: Path) -> None:
    again = [delivered(node, 3000.0, "reminder") for node in ("c", "d")]
    file = kept(tmp_path, delivered("a", 1000.0), delivered("b", 1003.0), *again)
    closed = notified(file, 4000.0, *(change(node, CLOSED) for node in ("a", "b", "c", "d")))
    assert {notification.incident for notification in closed} == {together("a"), together("b"), together("c", "d")}


def test_what_an_old_watch_closed_after_it_began_again_leaves_the_incident_to_the_others(tmp_path: Path) -> None:
    after: list[Entry] = [{"add": alert("a", 1500.0, "closed", 9)}, {"freeze": "x", "of": [9]}, {"sent": "x"}]
    file = kept(tmp_path, *(delivered(node, 1000.0) for node in ("a", "b", "c")), *after)
    (rest,) = notified(file, 2100.0, change("b", CLOSED), change("c", CLOSED))
    assert rest.incident == together("a", "b", "c")


def test_what_still_waits_is_no_part_of_an_incident(tmp_path: Path) -> None:
    waits: Entry = {"add": alert("b", 1000.0, number=8)}
    file = kept(tmp_path, waits, delivered("a", 1000.0), delivered("b", 1000.0))
    (opened,) = sent(file)
    closed = notified(file, 2000.0, change("a", CLOSED), change("b", CLOSED))
    assert (opened.incident, {notification.incident for notification in closed}) == (
        together("b"),
        {together("a"), together("b")},
    )
