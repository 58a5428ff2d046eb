"""The outbox of `--notify` on disk: what a killed watch leaves there, and a full disk."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch import Change, ChangeKind
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.notify import notifier
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile, with_delivered
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from clusterproof.plugins.watch.states import States
from tests.watch.days import NODE
from tests.watch.receiving import Notified, WebServer, change, lines
from tests.watch.sinks_of_day import OfDay
from tests.watch.small_disk import no_room, small_disk


@pytest.mark.long
def test_a_watch_that_goes_on_sends_what_another_left_with_the_ids_it_had(server: WebServer, tmp_path: Path) -> None:
    server.status = 500
    killed = Notified(server.program, tmp_path)
    killed.notifier.queue([change("a")])
    killed.counted("failed").notifier.queue([change("a", ChangeKind.CLOSED), change("b", rule="gpu.no_xid")])
    killed.until(lambda: len({notification["id"] for notification in server.refused}) == 2)
    data = (tmp_path / "outbox-1.jsonl").read_bytes()
    killed.notifier.close()
    (tmp_path / "outbox-1.jsonl").write_bytes(data + b'{"sent": "to')  # unchanged, and torn
    server.status = 200
    after = Notified(server.program, tmp_path)
    after.counted("delivered", 3).notifier.close()
    assert after.own == [f"waiting since before, to be sent by {Path(sys.executable).name}: 3 changes"]
    assert sorted(server.said) == [("closed", "a"), ("opened", "a"), ("opened", "b")]
    assert server.said.index(("opened", "a")) < server.said.index(("closed", "a"))
    assert {notification["id"] for notification in server.refused} <= {
        notification["id"] for notification in server.taken
    }
    assert not outbox_of(tmp_path).count


def outbox_of(folder: Path) -> Outbox:
    return OutboxFile(folder / "outbox-1.jsonl", Outbox("prod"), print).outbox


@pytest.mark.long
def test_what_was_taken_is_on_disk_when_it_counts_as_said(tmp_path: Path) -> None:
    notified = Notified(["false"], tmp_path)
    notified.notifier.queue([change("a")])
    (header, added) = lines(tmp_path / "outbox-1.jsonl")[:2]
    assert (header["outbox"], added["add"]["node"]) == (1, "a")
    notified.notifier.close()
    assert notified.own[-1] == (
        f"not delivered when the watch ended: 1 change by false; "
        f"they wait in {tmp_path / 'outbox-1.jsonl'}, for the watch that goes on there"
    )


@pytest.mark.long
def test_who_is_told_learns_what_a_watch_that_goes_on_finds_otherwise(server: WebServer, tmp_path: Path) -> None:
    before = Notified(server.program, tmp_path)
    before.notifier.queue([change("a"), change("b"), change("elsewhere")])
    before.counted("delivered").notifier.close()
    day = OfDay().day
    day.silence(60)
    after = Notified(server.program, tmp_path)
    after.notifier.catch_up(frozenset({"a", "b", "gpu001"}), day.watch.states.open)
    after.counted("delivered", 2).notifier.close()
    assert sorted(server.said[1:]) == [("closed", "a,b"), ("opened", "gpu001")]
    others = "has open findings of nodes that are not watched now, and hears no more of them: elsewhere"
    assert after.own[0].endswith(others)


@pytest.mark.long
def test_an_outbox_in_which_much_is_over_is_written_anew_and_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.watch.notify.outbox_file.SPARE_BYTES", 2_000)
    path = tmp_path / "outbox-1.jsonl"
    file = OutboxFile(path, Outbox("prod"), print)
    for at in range(200):
        file.write(file.outbox.taking([change(f"gpu{at}")], 1.7e9))
        entry = file.outbox.freezing(next(file.outbox.groups()))
        file.write([entry])
        file.write([{"sent": entry["freeze"]}])
        file.write(file.outbox.taking([change(f"gpu{at}", ChangeKind.CLOSED)], 1.7e9))
        entry = file.outbox.freezing(next(file.outbox.groups()))
        file.write([entry])
        if at < 198:
            file.write([{"sent": entry["freeze"]}])
    assert path.stat().st_size < 8_000
    assert list(OutboxFile(path, Outbox("prod"), print).outbox.entries()) == list(file.outbox.entries())


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted")
def test_a_full_disk_under_the_outbox_is_said_and_nothing_is_forgotten(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.watch.notify.outbox_file.RETRY_S", 0.05)
    monkeypatch.setattr(notifier, "CHECK_S", 0.05)
    with small_disk(tmp_path) as (folder, fill, free):
        folder.mkdir()
        notified = Notified(server.program, folder)
        fill()
        server.status = 500
        notified.notifier.queue([change(f"gpu{at:03d}", device="x" * 100) for at in range(200)])
        notified.counted("failed", 2)
        assert "No space left on device" in notified.own[0]
        assert not outbox_of(folder).count
        free()
        notified.until(lambda: not notified.file.outage.is_failing)
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


@pytest.mark.parametrize("recorded", [[], [change("b")], [change("a"), change("a", ChangeKind.CLOSED)]])
def test_what_a_receiver_knows_stays_open_where_the_record_of_changes_is_lost(
    recorded: list[Change], tmp_path: Path
) -> None:
    """Rotated away, or begun anew: nothing says that it is over, and the next visit does."""
    file = OutboxFile(tmp_path / "outbox-1.jsonl", Outbox("prod"), print)
    file.write(file.outbox.taking([change("a")], 1.7e9))
    states = States()
    states.resume(with_delivered(recorded, tmp_path, "prod"), 2e9)
    is_over = any(one.kind is ChangeKind.CLOSED for one in recorded)
    assert (change("a").key in states.open) is not is_over
    entries = list(outbox_of(tmp_path).catching_up(["a"], states.open, 1.7e9, {}))
    assert [entry["add"]["kind"] for entry in entries if entry["add"]["node"] == "a"] == ["closed"] * is_over


@pytest.mark.long
def test_nothing_is_recorded_as_said_while_its_notification_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "CHECK_S", 0.05)
    monkeypatch.setattr("clusterproof.plugins.watch.notify.outbox_file.RETRY_S", 0.05)
    watched, record_file = OfDay(), tmp_path / "changes.jsonl"
    recording = Recording(tmp_path, 1.0, watched.own.append)
    cluster = Cluster("prod", "ssh", (Target(NODE),))
    settings = WatchSettings(SamplerOptions(1.0), Limits(), ProbeOptions())
    notified = Notified(["false"], tmp_path)
    watched.sinks._notifiers.append(notified.notifier)
    controller = Controller(cluster, watched.day.watch, settings, recording, lambda _: None, watched.sinks)
    with monkeypatch.context() as full:
        full.setattr(OutboxFile, "_append", no_room)
        full.setattr(OutboxFile, "_rewrite", no_room)
        controller._report([change("a")])
        controller._report([change("a", ChangeKind.CLOSED)])
        assert not record_file.exists() or not lines(record_file)[1:]
    notified.until(lambda: not notified.file.outage.is_failing)
    assert outbox_of(tmp_path).count == 2
    recording.guard(lambda: None, time.monotonic() + 120.0)
    assert [record["kind"] for record in lines(record_file)] == ["opened", "closed"]
    notified.notifier.close()
