"""`--notify`: what a program receives, and what its failure costs."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.cli import main
from clusterproof.plugins.watch import notifier
from clusterproof.plugins.watch.notifier import NoProgram, Notifier, Waiting, words_of
from clusterproof.plugins.watch.states import Change, Key, Kind
from tests.watch.outlets_of_day import OfDay

TIMEOUT_S = 60.0


def change(node: str, kind: Kind = Kind.OPENED, rule: str = "watch.silent", device: str = "") -> Change:
    return Change(kind, Key(node, device, rule), Verdict.FAIL, f"of {node}; expected none", 1.0)


def notifications(waiting: Waiting) -> list[Any]:
    """What would be sent now, as a program reads it."""
    every = iter(waiting.take, None)
    return [json.loads(one.to_json("prod")) for one in every]


def test_a_storm_is_one_notification_with_a_nodeset() -> None:
    waiting = Waiting()
    waiting.add([change(f"gpu{at:04d}") for at in range(1000)], 1.7e9)
    assert notifications(waiting) == [
        {
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
    ]


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
    ],
)
def test_the_last_notification_of_a_node_is_what_is_so(
    changes: Sequence[Change], said: Sequence[tuple[str, str]]
) -> None:
    waiting = Waiting()
    for one in changes:
        waiting.add([one], 0.0)
    assert [(one["kind"], one["nodes"]) for one in notifications(waiting)] == list(said)


def test_devices_are_named_and_bounded() -> None:
    waiting = Waiting()
    waiting.add([change("a", device=f"GPU {at}") for at in range(500)], 0.0)
    (one,) = notifications(waiting)
    assert one["devices"][:2] == ["a GPU 0", "a GPU 1"]
    assert (len(one["devices"]), one["change_count"]) == (notifier.MAX_DEVICES, 500)


def test_what_waits_is_bounded_and_the_newest_stays() -> None:
    waiting = Waiting()
    waiting.add([change("a", rule=f"rule.{at}") for at in range(1000)], 0.0)
    assert waiting.dropped == 1000 - notifier.MAX_WAITING
    assert notifications(waiting)[-1]["check"] == "rule.999"


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
    with pytest.raises(NoProgram):
        words_of("'true; true'")


class Program:
    """A notifier with a program of ours, which keeps what it reads, and what was said of it."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
        monkeypatch.setattr(notifier, "GATHER_S", 0.05)
        self.file = tmp_path / "received"
        program = f"import sys; open({str(self.file)!r}, 'a').write(sys.stdin.read()); {more}"
        self.own: list[str] = []
        self.notifier = Notifier([sys.executable, "-c", program], "prod", self.own.append)

    def until(self, outcome: str, count: int = 1) -> Program:
        deadline = time.monotonic() + TIMEOUT_S
        while self.notifier.counts[outcome] < count:
            assert time.monotonic() < deadline, self.notifier.counts
            time.sleep(0.01)
        return self

    @property
    def read(self) -> Iterable[Any]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


def test_a_program_is_run_once_for_what_is_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Program(tmp_path, monkeypatch)
    made.notifier.said([change("a"), change("b"), change("a", rule="gpu.no_xid")])
    made.until("delivered", 2).notifier.close()
    assert [(one["check"], one["nodes"]) for one in made.read] == [("watch.silent", "a,b"), ("gpu.no_xid", "a")]
    assert made.own == []


def test_its_failure_is_said_once_and_the_next_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Program(tmp_path, monkeypatch, "sys.exit('no such channel')")
    for count, node in enumerate(("a", "b", "c"), start=1):
        made.notifier.said([change(node)])
        made.until("failed", count)
    made.notifier.close()
    words = "a notification was not delivered: {} ended with exit code 1: no such channel (of watch.silent, a); {}"
    assert made.own == [words.format(Path(sys.executable).name, "watching goes on")]
    assert made.notifier.outage.is_so
    assert [one["nodes"] for one in made.read] == ["a", "b", "c"]


def test_a_disk_that_is_full_costs_notifications_and_not_those_that_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Program(tmp_path, monkeypatch)
    with monkeypatch.context() as full:
        full.setattr(tempfile, "TemporaryFile", _no_room)
        made.notifier.said([change("a")])
        made.until("failed")
    made.notifier.said([change("b")])
    made.until("delivered").notifier.close()
    assert "No space left on device" in made.own[0]
    assert made.own[1] == "notifications are delivered again"


def _no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_program_that_hangs_is_killed_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "TIMEOUT_S", 2.0)
    child = tmp_path / "child"
    more = (
        f"import subprocess as s; c = s.Popen(['sleep', '600']); open({str(child)!r}, 'w').write(str(c.pid)); c.wait()"
    )
    made = Program(tmp_path, monkeypatch, more)
    made.notifier.said([change("a")])
    made.until("failed").notifier.close()
    assert "did not end within 2 s" in made.own[0]
    deadline = time.monotonic() + TIMEOUT_S
    while child.exists() and Path(f"/proc/{child.read_text()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_sends_what_waits_and_does_not_wait_for_what_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Program(tmp_path, monkeypatch)
    made.notifier.said([change("a")])
    made.notifier.close()
    assert [one["nodes"] for one in made.read] == ["a"]
    monkeypatch.setattr(notifier, "END_S", 0.5)
    hangs = Program(tmp_path, monkeypatch, "import time; time.sleep(600)")
    hangs.notifier.said([change("a"), change("a", rule="gpu.no_xid")])
    hangs.notifier.close()
    assert not hangs.notifier._thread.is_alive()
    assert hangs.own[-1] == "notifications that were not delivered, for the watch has ended: 1"


def test_a_watch_runs_it_for_what_it_says_and_counts_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, file = OfDay(), tmp_path / "received"
    with watched.outlets as outlets:
        outlets.notify(["sh", "-c", 'cat >> "$0"', str(file)])
        watched.day.silence(60)
        outlets.said(watched.day.said)
    (one,) = map(json.loads, file.read_text().splitlines())
    assert (one["cluster"], one["check"], one["kind"]) == ("prod", "watch.silent", "opened")
    assert one["nodes"] == "gpu001"
    assert watched.read['notifications_total{outcome="delivered"}'] == 1
    assert watched.read['trouble{part="notify"}'] == 0
