"""`--notify`: what is sent of what changes, in which order, and how often until it is taken."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.suite.cli import main
from clusterproof.plugins.watch import alert, attempts, notifier, receiver
from clusterproof.plugins.watch.notifier import Notifier
from clusterproof.plugins.watch.outbox import Outbox
from clusterproof.plugins.watch.outbox_file import OutboxFile
from clusterproof.plugins.watch.receiver import NoReceiver, Program, words_of
from clusterproof.plugins.watch.states import Change, Kind
from tests.watch.outlets_of_day import OfDay
from tests.watch.receiving import WebServer, change, lines, web_server
from tests.watch.small_disk import small_disk

TIMEOUT_S = 60.0


def notifications(changes: Iterable[Change]) -> list[Any]:
    """What a receiver reads of changes that come one at a time, while it takes none."""
    outbox, found = Outbox("prod"), []
    for one in changes:
        for entry in outbox.taking([one], 1.7e9):
            outbox.apply(entry)
    while group := next(outbox.groups(), None):
        entry = outbox.freezing(group)
        outbox.apply(entry)
        found.append(json.loads(outbox.notification(entry["freeze"]).to_json()))
        outbox.apply({"sent": entry["freeze"]})
    return found


def test_a_storm_is_one_notification_with_a_nodeset() -> None:
    (one,) = notifications(change(f"gpu{at:04d}") for at in range(1000))
    findings = one.pop("findings")
    assert [finding["node"] for finding in findings] == [f"gpu{at:04d}" for at in range(1000)]
    assert len({finding["id"] for finding in findings}) == 1000
    assert (one.pop("id")[-2:], len(one.pop("incident"))) == ("-1", 20)
    assert one == {
        "version": 1,
        "cluster": "prod",
        "time": 1.7e9,
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
        ([change("a"), change("b"), change("a", Kind.CLOSED)], [("opened", "a,b"), ("closed", "a")]),
        ([change("a"), change("a", Kind.CLOSED), change("b")], [("opened", "a,b"), ("closed", "a")]),
        (
            [change("a"), change("a", Kind.CLOSED), change("a")],
            [("opened", "a"), ("closed", "a"), ("opened", "a")],
        ),
        ([change("a"), change("a", rule="gpu.no_xid"), change("b")], [("opened", "a,b"), ("opened", "a")]),
        ([change("a", Kind.CLOSED)], []),
        ([change("a"), change("a")], [("opened", "a")]),
        ([change("a", Kind.FLAPPING), change("a")], [("flapping", "a"), ("opened", "a")]),
        ([change("a", Kind.HAPPENED), change("a", Kind.HAPPENED)], [("happened", "a"), ("happened", "a")]),
    ],
)
def test_the_order_of_each_finding_is_kept_and_nothing_closes_that_was_not_opened(
    changes: Sequence[Change], said: Sequence[tuple[str, str]]
) -> None:
    assert [(one["kind"], one["nodes"]) for one in notifications(changes)] == list(said)


def test_opened_worse_and_closed_of_a_finding_have_one_incident_and_each_its_own_id() -> None:
    kinds = (Kind.OPENED, Kind.WORSE, Kind.CLOSED)
    every = notifications(change(node, kind, device="GPU 1") for kind in kinds for node in ("a", "b"))
    assert len({one["incident"] for one in every}) == 1
    assert len({one["id"] for one in every}) == 3
    (alone, *_) = notifications([change("a", device="GPU 1")])
    assert alone["incident"] == alone["findings"][0]["id"] == every[0]["findings"][0]["id"]


def test_devices_are_named_and_bounded() -> None:
    (one,) = notifications(change("a", device=f"GPU {at}") for at in range(500))
    assert one["devices"][:2] == ["a GPU 0", "a GPU 1"]
    assert (len(one["devices"]), one["change_count"]) == (alert.MAX_DEVICES, 500)


def test_after_growing_pauses_of_a_minute_at_most_and_never_before_the_receiver_asks() -> None:
    assert [attempts.pause_s(failures) for failures in (1, 2, 3, 7, 1000)] == [1, 2, 4, 60, 60]
    assert [attempts.pause_s(1, 30.0), attempts.pause_s(1000, 30.0)] == [30, 60]


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
    due = attempts.Attempts()
    due.failed("poison", 0.0)
    due.failed("poison", 10.0)
    assert due.next(["poison", "other"]) == "other"
    due.taken("other")
    assert due.not_before(due.due_s("poison")) == 12.0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "--notify is empty; expected a program and its arguments"),
        ("notify 'us", '--notify is "notify \'us": No closing quotation; expected a program and its arguments'),
        (
            "/nowhere/notify us",
            "--notify: no program '/nowhere/notify' that may be run; expected its path, or a name on PATH",
        ),
        ("/etc/passwd", "--notify: no program '/etc/passwd' that may be run"),
    ],
)
def test_what_cannot_be_run_is_one_line(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--cluster", "local", "--for", "1s", "--notify", command]) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"clusterproof watch: {said}")
    assert error.count("\n") == 1


def test_no_shell_reads_the_command() -> None:
    assert words_of("true '$HOME; ls' *") == ["true", "$HOME; ls", "*"]
    with pytest.raises(NoReceiver):
        words_of("'true; true'")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    quick(monkeypatch)
    with web_server() as made:
        yield made


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of tests."""
    monkeypatch.setattr(notifier, "GATHER_S", 0.05)
    monkeypatch.setattr(attempts, "FIRST_S", 0.02)
    monkeypatch.setattr(attempts, "MOST_S", 0.1)


class Notified:
    """A notifier with a receiver of ours, and what was said of it."""

    def __init__(self, words: Sequence[str], folder: Path | None = None, remind_s: float | None = None) -> None:
        self.own: list[str] = []
        path = folder / "outbox-1.jsonl" if folder else None
        self.file = OutboxFile(path, Outbox("prod"), self.own.append)
        self.notifier = Notifier(Program(words), self.file, self.own.append, remind_s)

    def until(self, is_so: Callable[[], object]) -> Notified:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, (self.notifier.counts, self.own)
            time.sleep(0.01)
        return self

    def counted(self, outcome: str, count: int = 1) -> Notified:
        return self.until(lambda: self.notifier.counts[outcome] >= count)


def keeping(file: Path, more: str = "") -> list[str]:
    """The words of a program that keeps what it reads, and does more."""
    return [sys.executable, "-c", f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read()); {more}"]


def test_what_came_while_the_receiver_was_down_is_sent_when_it_is_back_in_order_and_once(server: WebServer) -> None:
    server.status = 500
    notified = Notified(server.program)
    notified.notifier.said([change("a", rule="gpu.no_xid")])
    notified.counted("failed", 2)
    notified.notifier.said([change(node) for node in ("b", "c", "d")])
    notified.until(lambda: any(one["check"] == "watch.silent" for one in server.refused))
    notified.notifier.said([change(node, Kind.CLOSED) for node in ("b", "c", "d")])
    server.status = 200
    notified.counted("delivered", 3).notifier.close()
    of_silence = [kind for kind, nodes in server.said if nodes == "b,c,d"]
    assert of_silence == ["opened", "closed"]
    assert ("opened", "a") in server.said
    assert len(server.taken) == 3
    assert {one["id"] for one in server.refused} <= {one["id"] for one in server.taken}
    assert len(notified.own) == 2
    assert "exit code 1: HTTP 500" in notified.own[0]
    assert notified.own[1] == "notifications are delivered again"


def test_a_receiver_that_asks_for_a_pause_gets_it(server: WebServer) -> None:
    server.status, server.after = 429, "3600"
    notified = Notified(server.program)
    notified.notifier.said([change("a")])
    notified.counted("failed")
    notified.notifier.said([change("b", rule="gpu.no_xid")])
    assert notified.notifier._due_s() > time.monotonic() + 3000
    server.status = 200
    notified.notifier.close()
    assert server.said == [("opened", "a"), ("opened", "b")]


def test_a_watch_that_goes_on_sends_what_another_left_with_the_ids_it_had(server: WebServer, tmp_path: Path) -> None:
    server.status = 500
    killed = Notified(server.program, tmp_path)
    killed.notifier.said([change("a")])
    killed.counted("failed").notifier.said([change("a", Kind.CLOSED), change("b", rule="gpu.no_xid")])
    killed.until(lambda: len({one["id"] for one in server.refused}) == 2)
    data = (tmp_path / "outbox-1.jsonl").read_bytes()
    killed.notifier.close()
    (tmp_path / "outbox-1.jsonl").write_bytes(data + b'{"sent": "to')  # as it was, and torn
    server.status = 200
    after = Notified(server.program, tmp_path)
    after.counted("delivered", 3).notifier.close()
    assert after.own == [f"waiting since before, to be sent by {Path(sys.executable).name}: 3 changes"]
    assert sorted(server.said) == [("closed", "a"), ("opened", "a"), ("opened", "b")]
    assert server.said.index(("opened", "a")) < server.said.index(("closed", "a"))
    assert {one["id"] for one in server.refused} <= {one["id"] for one in server.taken}
    assert not outbox_of(tmp_path).count


def outbox_of(folder: Path) -> Outbox:
    return OutboxFile(folder / "outbox-1.jsonl", Outbox("prod"), print).outbox


def test_what_was_taken_is_on_disk_when_it_counts_as_said(tmp_path: Path) -> None:
    notified = Notified(["false"], tmp_path)
    notified.notifier.said([change("a")])
    (header, added) = lines(tmp_path / "outbox-1.jsonl")[:2]
    assert (header["outbox"], added["add"]["node"]) == (1, "a")
    notified.notifier.close()
    assert notified.own[-1] == (
        f"not delivered when the watch ended: 1 change by false; "
        f"they wait in {tmp_path / 'outbox-1.jsonl'}, for the watch that goes on there"
    )


def test_who_is_told_learns_what_a_watch_that_goes_on_finds_otherwise(server: WebServer, tmp_path: Path) -> None:
    before = Notified(server.program, tmp_path)
    before.notifier.said([change("a"), change("b"), change("elsewhere")])
    before.counted("delivered").notifier.close()
    day = OfDay().day
    day.silence(60)
    after = Notified(server.program, tmp_path)
    after.notifier.catch_up(frozenset({"a", "b", "gpu001"}), day.watch.states.open)
    after.counted("delivered", 2).notifier.close()
    assert sorted(server.said[1:]) == [("closed", "a,b"), ("opened", "gpu001")]


def test_an_outbox_in_which_much_is_over_is_written_anew_and_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.watch.outbox_file.SPARE_BYTES", 2_000)
    path = tmp_path / "outbox-1.jsonl"
    file = OutboxFile(path, Outbox("prod"), print)
    for at in range(200):
        file.write(file.outbox.taking([change(f"gpu{at}")], 1.7e9))
        entry = file.outbox.freezing(next(file.outbox.groups()))
        file.write([entry])
        file.write([{"sent": entry["freeze"]}])
        file.write(file.outbox.taking([change(f"gpu{at}", Kind.CLOSED)], 1.7e9))
        entry = file.outbox.freezing(next(file.outbox.groups()))
        file.write([entry])
        if at < 198:
            file.write([{"sent": entry["freeze"]}])
    assert path.stat().st_size < 8_000
    assert list(OutboxFile(path, Outbox("prod"), print).outbox.entries()) == list(file.outbox.entries())


def test_what_stays_open_is_told_again_once_for_all_of_its_cause_and_what_is_over_is_not() -> None:
    outbox = Outbox("prod")

    def notified() -> list[tuple[str, str]]:
        found = []
        while group := next(outbox.groups(), None):
            entry = outbox.freezing(group)
            outbox.apply(entry)
            one = json.loads(outbox.notification(entry["freeze"]).to_json())
            outbox.apply({"sent": one["id"]})
            found.append((one["kind"], one["nodes"]))
        return found

    def remind(wall_s: float) -> list[tuple[str, str]]:
        for entry in list(outbox.reminding(100.0, wall_s)):
            outbox.apply(entry)
        return notified()

    for at, one in enumerate((change("a"), change("b"), change("c"), change("c", Kind.CLOSED))):
        for entry in outbox.taking([one], 10.0 * at):
            outbox.apply(entry)
    assert notified() == [("opened", "a,b,c"), ("closed", "c")]
    assert remind(99.0) == []
    assert remind(100.0) == [("reminder", "a,b")]
    assert remind(150.0) == []
    assert remind(201.0) == [("reminder", "a,b")]


def test_a_program_is_run_once_for_what_is_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    notified.notifier.said([change("a"), change("b"), change("a", rule="gpu.no_xid")])
    notified.counted("delivered", 2).notifier.close()
    received = lines(tmp_path / "received")
    assert [(one["check"], one["nodes"]) for one in received] == [("watch.silent", "a,b"), ("gpu.no_xid", "a")]
    assert notified.own == []


def test_a_program_that_always_fails_costs_a_line_and_is_given_the_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received", "sys.exit('no such channel')"))
    for count, node in enumerate(("a", "b", "c"), start=1):
        notified.notifier.said([change(node)])
        notified.counted("failed", count)
        notified.until(lambda node=node: any(one["nodes"] == node for one in lines(tmp_path / "received")))  # type: ignore[misc]
    notified.notifier.close()
    words = "a notification was not delivered: {} ended with exit code 1: no such channel (of watch.silent, a); {}"
    again = "it is sent again until it is, and watching goes on"
    assert notified.own[0] == words.format(Path(sys.executable).name, again)
    lost = "they are lost; expected --record DIR, where they wait for the next watch"
    assert notified.own[1:] == [f"not delivered when the watch ended: 3 changes by {Path(sys.executable).name}; {lost}"]
    assert notified.notifier.is_failing


def test_a_disk_that_is_full_delays_what_a_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    with monkeypatch.context() as full:
        full.setattr(tempfile, "TemporaryFile", _no_room)
        notified.notifier.said([change("a")])
        notified.counted("failed")
    notified.counted("delivered").notifier.close()
    assert [one["nodes"] for one in lines(tmp_path / "received")] == ["a"]
    assert "No space left on device" in notified.own[0]
    assert notified.own[1] == "notifications are delivered again"


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted")
def test_a_full_disk_under_the_outbox_is_said_and_nothing_is_forgotten(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.watch.outbox_file.RETRY_S", 0.05)
    monkeypatch.setattr(notifier, "LOOK_S", 0.05)
    with small_disk(tmp_path) as (folder, fill, free):
        folder.mkdir()
        notified = Notified(server.program, folder)
        fill()
        server.status = 500
        notified.notifier.said([change(f"gpu{at:03d}", device="x" * 100) for at in range(200)])
        notified.counted("failed", 2)
        assert "No space left on device" in notified.own[0]
        assert not outbox_of(folder).count
        free()
        notified.until(lambda: not notified.file.outage.is_so)
        assert outbox_of(folder).count == 200
        server.status = 200
        notified.counted("delivered").notifier.close()
        assert server.taken[-1]["node_count"] == 200


def test_an_outbox_that_is_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    for make in (lambda path: path.symlink_to("/etc/passwd"), os.mkfifo):
        path = tmp_path / "outbox-1.jsonl"
        make(path)
        with pytest.raises(OSError, match=r"link|regular"):
            OutboxFile(path, Outbox("prod"), print)
        path.unlink()


def test_lines_of_another_version_or_of_nobody_cost_no_alert(tmp_path: Path) -> None:
    path = tmp_path / "outbox-1.jsonl"
    file = OutboxFile(path, Outbox("prod"), print)
    file.write(file.outbox.taking([change("a")], 1.7e9))
    noise = [b"\xff", b"[" * 100_000, b"7", b"null", b'{"sent": []}', b'{"freeze": "x", "of": [9]}', b'{"add": {}}']
    path.write_bytes(b"\n".join([*noise, path.read_bytes(), *noise]))
    assert list(outbox_of(tmp_path).entries()) == list(file.outbox.entries())


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
    notified.notifier.said([change("a")])
    notified.counted("failed").notifier.close()
    assert "did not end within 2 s" in notified.own[0]
    deadline = time.monotonic() + TIMEOUT_S
    while child.exists() and Path(f"/proc/{child.read_text()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_sends_what_waits_and_does_not_wait_for_what_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    notified = Notified(keeping(tmp_path / "received"))
    notified.notifier.said([change("a"), change("a", Kind.CLOSED)])
    notified.notifier.close()
    assert [one["kind"] for one in lines(tmp_path / "received")] == ["opened", "closed"]
    monkeypatch.setattr(notifier, "END_S", 0.5)
    hangs = Notified(["sleep", "600"])
    hangs.notifier.said([change("a"), change("a", rule="gpu.no_xid")])
    hangs.notifier.close()
    assert not hangs.notifier._thread.is_alive()
    assert hangs.own[-1].startswith("not delivered when the watch ended: 2 changes by sleep; they are lost")


def test_a_watch_tells_each_of_what_it_says_and_counts_that(tmp_path: Path) -> None:
    watched, files = OfDay(), [tmp_path / "first", tmp_path / "second"]
    with watched.outlets as outlets:
        outlets.notify([Program(["sh", "-c", 'cat >> "$0"', str(file)]) for file in files], tmp_path)
        watched.day.silence(60)
        outlets.said(watched.day.said)
    for file in files:
        (one,) = lines(file)
        assert (one["cluster"], one["check"], one["kind"]) == ("prod", "watch.silent", "opened")
        assert one["nodes"] == "gpu001"
    assert watched.read['notifications_total{outcome="delivered"}'] == 2
    assert watched.read['trouble{part="notify"}'] == 0
