"""An outbox belongs to a receiver, wherever that is on the command line, and to nobody once it has gone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.watch import ChangeKind
from clusterproof.plugins.watch.notify import Notification, notifier
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile, paths_for
from clusterproof.plugins.watch.notify.receiver import Delivery, ReceiverProgram, identity_of
from clusterproof.plugins.watch.notify.services import receiver_of
from tests.watch.conditions import until
from tests.watch.days import NODE, Day
from tests.watch.receiving import change, lines, quick
from tests.watch.sinks_of_day import OfDay


@pytest.mark.parametrize(
    ("kept", "receivers", "numbers"),
    [
        ({}, "ab", [1, 2]),
        ({1: "a", 2: "b"}, "ab", [1, 2]),
        ({1: "a", 2: "b"}, "ba", [2, 1]),
        ({1: "a", 2: "b"}, "b", [2]),
        ({1: "a"}, "b", [2]),
        ({1: "a"}, "ba", [2, 1]),
        ({1: "a", 2: "a"}, "aa", [1, 2]),
        ({1: "a"}, "aa", [1, 2]),
        ({1: "", 2: ""}, "ab", [1, 2]),
        ({1: "", 2: ""}, "a", [1]),
        ({2: ""}, "ab", [1, 2]),
        ({1: "", 2: "a"}, "ab", [2, 3]),
        ({}, "", []),
    ],
)
def test_an_outbox_is_its_receivers_and_an_old_one_is_of_who_is_in_its_place(
    kept: Mapping[int, str], receivers: str, numbers: Sequence[int]
) -> None:
    outboxes = {Path(f"outbox-{number}.jsonl"): Outbox("prod", receiver) for number, receiver in kept.items()}
    assert paths_for(Path(), receivers, outboxes) == [Path(f"outbox-{number}.jsonl") for number in numbers]


def program(name: str, folder: Path, code: int = 0) -> ReceiverProgram:
    """A program that keeps notifications while `refuse` does not exist."""
    script = folder / name
    script.write_text(f'#!/bin/sh\n[ -e "{folder}/refuse" ] && exit 3\ncat >>"{folder}/{name}.told"\n')
    script.chmod(0o755)
    return ReceiverProgram([str(script)])


def delivered(name: str, folder: Path) -> list[tuple[str, str]]:
    path = folder / f"{name}.told"
    return [(notification["kind"], notification["nodes"]) for notification in lines(path)] if path.exists() else []


def said_by(watched: OfDay, receivers: Sequence[ReceiverProgram], folder: Path, *changes: object) -> OfDay:
    """A watch with these receivers that reports this."""
    with watched.sinks as sinks:
        sinks.notify(receivers, folder)
        sinks.report(changes)  # type: ignore[arg-type]
    return watched


@pytest.mark.long
def test_a_receiver_in_another_place_is_sent_what_waits_and_nobody_inherits_what_others_were_told(
    tmp_path: Path,
) -> None:
    first, second = program("first", tmp_path), program("second", tmp_path)
    (tmp_path / "refuse").touch()
    said_by(OfDay(), [first, second], tmp_path, change("gpu001"))
    (tmp_path / "refuse").unlink()
    waits = said_by(OfDay(), [second], tmp_path).own
    assert delivered("second", tmp_path) == [("opened", "gpu001"), ("closed", "gpu001")]
    assert delivered("first", tmp_path) == []
    left = f"nobody is sent what waits in {tmp_path / 'outbox-1.jsonl'}: 1 change; expected the --notify that it was"
    assert [line.partition(" kept for")[0] for line in waits] == [
        "waiting since before, to be sent by second: 1 change",
        left,
    ]


@pytest.mark.long
def test_what_stays_open_is_told_again_by_a_watch_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(notifier, "CHECK_S", 0.05)
    watched = OfDay()
    watched.day.silence(60)
    with watched.sinks as sinks:
        sinks.notify([program("first", tmp_path)], None, 0.5)
        sinks.states_changed([NODE])
        until(lambda: delivered("first", tmp_path)[1:])
    first, *again = lines(tmp_path / "first.told")
    assert {(notification["kind"], notification["incident"], notification["since"]) for notification in again} == {
        ("reminder", first["incident"], first["since"])
    }


@pytest.mark.long
def test_a_receiver_that_is_new_is_told_what_is_open_and_since_when(tmp_path: Path) -> None:
    day = Day()
    day.silence(60)
    for name in ("slack", "pagerduty", "pagerduty"):
        watched = OfDay()
        watched.day.watch.resume(day.said, 0.0)
        said_by(watched, [program(name, tmp_path)], tmp_path)
    assert delivered("slack", tmp_path) == delivered("pagerduty", tmp_path) == [("opened", "gpu001")]
    (notification,) = lines(tmp_path / "pagerduty.told")
    assert notification["since"] < notification["time"] - 1.0


@pytest.mark.long
def test_metrics_show_what_waits_for_nobody_until_its_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    said_by(OfDay(), [program("first", tmp_path)], tmp_path, change("gpu001"))
    watched = OfDay()
    with watched.sinks as sinks:
        sinks.notify([], tmp_path)
        assert watched.read['trouble{part="notify"}'] == 1
        (tmp_path / "outbox-1.jsonl").unlink()
        assert watched.read['trouble{part="notify"}'] == 0
    assert "nobody is sent what waits" in watched.own[0]


def test_an_outbox_of_somebody_else_stops_no_watch_that_does_not_need_it(tmp_path: Path) -> None:
    (tmp_path / "outbox-2.jsonl").symlink_to("/etc/passwd")
    (message,) = said_by(OfDay(), [program("first", tmp_path)], tmp_path).own
    assert message.startswith(f"what waits in {tmp_path / 'outbox-2.jsonl'} is not known: is a link, which is not")


OLD = [  # the format of outboxes before they had receivers
    {"outbox": 1, "name": "5bb0e4f2a1c3", "next": 4},
    {"add": {"number": 2, "time": 1.7e9, "kind": "worse", "node": "a", "device": "", "rule": "watch.silent",
             "verdict": "fail", "message": "of a"}},
    {"add": {"number": 3, "time": 1.7e9, "kind": "opened", "node": "b", "device": "", "rule": "watch.silent",
             "verdict": "fail", "message": "of b"}},
    {"freeze": "5bb0e4f2a1c3-2", "of": [2]},
    {"delivered": {"number": 1, "time": 1.6e9, "kind": "reminder", "node": "gpu001", "device": "",
                   "rule": "watch.silent", "verdict": "fail", "message": "of gpu001"}},
]  # fmt: skip


@pytest.mark.long
def test_an_outbox_that_was_kept_before_it_had_its_receiver_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "outbox-1.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in OLD))
    said_by(OfDay(), [program("first", tmp_path)], tmp_path, change("gpu001", ChangeKind.CLOSED))
    every = lines(tmp_path / "first.told")
    assert sorted((notification["kind"], notification["nodes"]) for notification in every) == [
        ("closed", "gpu001"),
        ("opened", "b"),
        ("worse", "a"),
    ]
    assert "5bb0e4f2a1c3-2" in {notification["id"] for notification in every}
    assert {notification["since"] for notification in every} == {1.6e9, 1.7e9}
    assert json.loads(path.read_text().splitlines()[0])["receiver"] == program("first", tmp_path).identity


@pytest.mark.long
def test_what_was_reminded_of_before_is_since_it_was_opened_as_recorded(tmp_path: Path) -> None:
    (tmp_path / "outbox-1.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (OLD[0], OLD[-1])))
    opened, watched = replace(change(NODE), time_s=1.5e9), OfDay()
    watched.day.watch.resume([opened], time.time() - time.monotonic())
    said_by(watched, [program("first", tmp_path)], tmp_path, change(NODE, ChangeKind.CLOSED))
    (closed,) = lines(tmp_path / "first.told")
    assert (closed["kind"], round(closed["since"])) == ("closed", 1_500_000_000)


@pytest.mark.long
def test_what_is_kept_of_a_receiver_shows_nothing_of_it() -> None:
    urls = [f"json://ops:passw0rd@127.0.0.1:{port}/token" for port in (8080, 8081)]
    first, again, other = (receiver_of(url, 1).identity for url in (urls[0], f" {urls[0]} ", urls[1]))
    assert first == again == identity_of(urls[0])
    assert other != first
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")


@pytest.mark.long
def test_a_watch_without_notify_says_what_waits_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "refuse").touch()
    said_by(OfDay(), [program("first", tmp_path)], tmp_path, change("gpu001"))
    main(["watch", "local", "--every", "1", "--for", "0.1s", "--record", str(tmp_path)])
    assert f"nobody is sent what waits in {tmp_path / 'outbox-1.jsonl'}: 1 change" in capsys.readouterr().out


def test_a_receiver_that_fails_in_a_way_that_nobody_expected_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no thread can be started: it ends neither the sending nor the watch."""
    quick(monkeypatch)
    sent, said = [], list[str]()

    class Failing:
        name, identity = "failing", "failing"

        def send(self, notification: Notification) -> Delivery:
            sent.append(notification.id)
            if len(sent) == 1:
                raise RuntimeError("can't start new thread")
            return Delivery()

        def cancel(self) -> None:
            """Nothing is in progress."""

    made = notifier.Notifier(Failing(), OutboxFile(None, Outbox("prod"), said.append), said.append)
    made.queue([change("gpu001")])
    until(lambda: len(sent) == 2)
    made.close()
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert "failing: RuntimeError" in said[0]
