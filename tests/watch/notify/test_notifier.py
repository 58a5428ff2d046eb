"""`--notify`: which changes are sent, in which order, and how often until they are accepted."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.watch import Change, ChangeKind, notify
from clusterproof.plugins.watch.notify import Alert, Notification, notifier, receiver
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.receiver import ReceiverProgram
from tests.watch.conditions import TIMEOUT_S
from tests.watch.receiving import Notified, WebServer, change, keeping, lines, quick
from tests.watch.sinks_of_day import OfDay
from tests.watch.small_disk import no_room


def notifications(changes: Iterable[Change]) -> list[Any]:
    """The notifications a receiver finally gets about changes that came singly while it accepted none."""
    outbox, sent = Outbox("prod"), []
    for changed in changes:
        for entry in outbox.taking([changed], 1.7e9):
            outbox.apply(entry)
    while group := next(outbox.groups(), None):
        entry = outbox.freezing(group)
        outbox.apply(entry)
        sent.append(json.loads(outbox.notification(entry["freeze"]).to_json()))
        outbox.apply({"sent": entry["freeze"]})
    return sent


def test_a_storm_is_one_notification_with_a_nodeset() -> None:
    (notification,) = notifications(change(f"gpu{at:04d}") for at in range(1000))
    findings = notification.pop("findings")
    assert [finding["node"] for finding in findings] == [f"gpu{at:04d}" for at in range(1000)]
    assert len({finding["id"] for finding in findings}) == 1000
    assert (notification.pop("id")[-2:], len(notification.pop("incident"))) == ("-1", 20)
    assert notification == {
        "version": 1,
        "cluster": "prod",
        "time": 1.7e9,
        "since": 1.7e9,
        "kind": "opened",
        "check": "watch.silent",
        "verdict": "fail",
        "nodes": "gpu[0000-0999]",
        "node_count": 1000,
        "devices": [],
        "change_count": 1000,
        "message": "of gpu0000; expected none",
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([change("a"), change("b"), change("a", ChangeKind.CLOSED)], [("opened", "a,b"), ("closed", "a")]),
        ([change("a"), change("a", ChangeKind.CLOSED), change("b")], [("opened", "a,b"), ("closed", "a")]),
        (
            [change("a"), change("a", ChangeKind.CLOSED), change("a")],
            [("opened", "a"), ("closed", "a"), ("opened", "a")],
        ),
        ([change("a"), change("a", rule="gpu.no_xid"), change("b")], [("opened", "a,b"), ("opened", "a")]),
        ([change("a", ChangeKind.CLOSED)], []),
        ([change("a"), change("a")], [("opened", "a")]),
        ([change("a", ChangeKind.FLAPPING), change("a")], [("flapping", "a"), ("opened", "a")]),
        ([change("a", ChangeKind.HAPPENED), change("a", ChangeKind.HAPPENED)], [("happened", "a"), ("happened", "a")]),
    ],
)
def test_the_order_of_each_finding_is_kept_and_nothing_closes_that_was_not_opened(
    changes: Sequence[Change], said: Sequence[tuple[str, str]]
) -> None:
    assert [(notification["kind"], notification["nodes"]) for notification in notifications(changes)] == list(said)


def test_opened_worse_and_closed_of_a_finding_have_one_incident_and_each_its_own_id() -> None:
    kinds = (ChangeKind.OPENED, ChangeKind.WORSE, ChangeKind.CLOSED)
    every = notifications(change(node, kind, device="GPU 1") for kind in kinds for node in ("a", "b"))
    assert len({notification["incident"] for notification in every}) == 1
    assert len({notification["id"] for notification in every}) == 3
    (alone, *_) = notifications([change("a", device="GPU 1")])
    assert alone["incident"] == alone["findings"][0]["id"] == every[0]["findings"][0]["id"]


def test_devices_are_named_and_bounded() -> None:
    (notification,) = notifications(change("a", device=f"GPU {at}") for at in range(500))
    assert notification["devices"][:2] == ["a GPU 0", "a GPU 1"]
    assert (len(notification["devices"]), notification["change_count"]) == (notify.MAX_DEVICES, 500)


def test_after_growing_pauses_of_a_minute_at_most_and_never_before_the_receiver_asks() -> None:
    assert [notifier.pause_s(failures) for failures in (1, 2, 3, 7, 1000)] == [1, 2, 4, 60, 60]
    assert [notifier.pause_s(1, 30.0), notifier.pause_s(1000, 30.0)] == [30, 60]


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("120", 120),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
        ("9" * 400, receiver.MAX_AFTER_S),
        ("-5", 0),
        ("soon", 0),
    ],
)
def test_a_retry_after_is_a_number_or_a_date_and_is_bounded(words: str, seconds: float) -> None:
    assert receiver.after_s(words, 1_445_412_480.0) == seconds


def test_one_notification_that_is_never_taken_holds_up_no_other() -> None:
    due = notifier.RetrySchedule()
    due.failed("poison", 0.0)
    due.failed("poison", 10.0)
    assert due.next(["poison", "other"]) == "other"
    due.delivered("other")
    assert due.not_before(due.due_s("poison")) == 12.0


@pytest.mark.long
def test_what_came_while_the_receiver_was_down_is_sent_when_it_is_back_in_order_and_once(server: WebServer) -> None:
    server.status = 500
    notified = Notified(server.program)
    notified.notifier.queue([change("a", rule="gpu.no_xid")])
    notified.counted("failed", 2)
    notified.notifier.queue([change(node) for node in ("b", "c", "d")])
    notified.until(lambda: any(notification["check"] == "watch.silent" for notification in server.refused))
    notified.notifier.queue([change(node, ChangeKind.CLOSED) for node in ("b", "c", "d")])
    server.status = 200
    notified.counted("delivered", 3).notifier.close()
    of_silence = [kind for kind, nodes in server.said if nodes == "b,c,d"]
    assert of_silence == ["opened", "closed"]
    assert ("opened", "a") in server.said
    assert len(server.taken) == 3
    assert {notification["id"] for notification in server.refused} <= {
        notification["id"] for notification in server.taken
    }
    assert len(notified.own) == 2
    assert "exit code 1: HTTP 500" in notified.own[0]
    assert notified.own[1] == "notifications are delivered again"


@pytest.mark.long
def test_a_receiver_that_asks_for_a_pause_gets_it(server: WebServer) -> None:
    server.status, server.after = 429, "3600"
    notified = Notified(server.program)
    notified.notifier.queue([change("a")])
    notified.counted("failed")
    notified.notifier.queue([change("b", rule="gpu.no_xid")])
    assert notified.notifier._due_s() > time.monotonic() + 3000
    server.status = 200
    notified.notifier.close()
    assert server.said == [("opened", "a"), ("opened", "b")]


@pytest.mark.long
def test_a_program_is_run_once_for_what_is_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    notified.notifier.queue([change("a"), change("b"), change("a", rule="gpu.no_xid")])
    notified.counted("delivered", 2).notifier.close()
    received = lines(tmp_path / "received")
    assert [(notification["check"], notification["nodes"]) for notification in received] == [
        ("watch.silent", "a,b"),
        ("gpu.no_xid", "a"),
    ]
    assert notified.own == []


@pytest.mark.long
def test_a_program_that_always_fails_costs_a_line_and_is_given_the_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received", "sys.exit('no such channel')"))
    for count, node in enumerate(("a", "b", "c"), start=1):
        notified.notifier.queue([change(node)])
        notified.counted("failed", count)
        notified.until(lambda node=node: any(sent["nodes"] == node for sent in lines(tmp_path / "received")))  # type: ignore[misc]
    notified.notifier.close()
    message = "a notification was not delivered: {} ended with exit code 1: no such channel (of watch.silent, a); {}"
    again = "it is sent again until it is, and watching goes on"
    assert notified.own[0] == message.format(Path(sys.executable).name, again)
    lost = "they are lost; expected --record DIR, where they wait for the next watch"
    assert notified.own[1:] == [f"not delivered when the watch ended: 3 changes by {Path(sys.executable).name}; {lost}"]
    assert notified.notifier.is_failing


@pytest.mark.long
def test_a_pause_that_a_program_asks_for_is_heard_whatever_it_says_after_that() -> None:
    trace = "".join(f"trace line {at} {60 * '.'}\\n" for at in range(99))
    delivery = ReceiverProgram(
        [sys.executable, "-c", f"import sys; sys.stderr.write('Retry-After: 20\\n{trace}down'); sys.exit(3)"]
    ).send(_notification())
    assert (delivery.after_s, delivery.why) == (20.0, f"{Path(sys.executable).name} ended with exit code 3: down")


def _notification() -> Notification:
    alert = Alert.of(1, change("a"), 1.7e9)
    return Notification("d0e-1", "prod", (alert,), "0f1e")


@pytest.mark.long
def test_a_disk_that_is_full_delays_what_a_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    with monkeypatch.context() as full:
        full.setattr(tempfile, "TemporaryFile", no_room)
        notified.notifier.queue([change("a")])
        notified.counted("failed")
    notified.counted("delivered").notifier.close()
    assert [notification["nodes"] for notification in lines(tmp_path / "received")] == ["a"]
    assert "No space left on device" in notified.own[0]
    assert notified.own[1] == "notifications are delivered again"


@pytest.mark.long
def test_a_program_that_hangs_is_killed_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(receiver, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(notifier, "END_S", 0.5)
    child = tmp_path / "child"
    more = (
        f"import subprocess as s; c = s.Popen(['sleep', '600']); open({str(child)!r}, 'w').write(str(c.pid)); c.wait()"
    )
    notified = Notified(keeping(tmp_path / "received", more))
    notified.notifier.queue([change("a")])
    notified.counted("failed").notifier.close()
    assert "did not end within 2 s" in notified.own[0]
    deadline = time.monotonic() + TIMEOUT_S
    while child.exists() and Path(f"/proc/{child.read_text()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.long
def test_the_end_sends_what_waits_and_does_not_wait_for_what_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    notified.notifier.queue([change("a"), change("a", ChangeKind.CLOSED)])
    notified.notifier.close()
    assert [notification["kind"] for notification in lines(tmp_path / "received")] == ["opened", "closed"]
    monkeypatch.setattr(notifier, "END_S", 0.5)
    hangs = Notified(["sleep", "600"])
    hangs.notifier.queue([change("a"), change("a", rule="gpu.no_xid")])
    hangs.notifier.close()
    assert not hangs.notifier._thread.is_alive()
    assert hangs.own[-1].startswith("not delivered when the watch ended: 2 changes by sleep; they are lost")


@pytest.mark.long
def test_a_watch_tells_each_of_what_it_says_and_counts_that(tmp_path: Path) -> None:
    watched, files = OfDay(), [tmp_path / "first", tmp_path / "second"]
    with watched.sinks as sinks:
        sinks.notify([ReceiverProgram(["sh", "-c", 'cat >> "$0"', str(file)]) for file in files], tmp_path)
        watched.day.silence(60)
        sinks.report(watched.day.said)
    for file in files:
        (notification,) = lines(file)
        assert (notification["cluster"], notification["check"], notification["kind"]) == (
            "prod",
            "watch.silent",
            "opened",
        )
        assert notification["nodes"] == "gpu001"
    assert watched.read['notifications_total{outcome="delivered"}'] == 2
    assert watched.read['trouble{part="notify"}'] == 0
