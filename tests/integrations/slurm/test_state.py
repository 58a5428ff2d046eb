"""What the scripts remember: whole records or none, and nothing for ever. And what they log."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.log import Log
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.state import KEPT_S, UNFINISHED_S, State
from clusterproof.integrations.slurm.verdict import NO_JOB


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(str(tmp_path / "var" / "state"))


def test_a_record_is_read_as_it_was_written(state: State) -> None:
    assert state.prepare() == ""
    state.write("jobs/42", {"cursor": ["boot", 7, 1.5]})
    assert state.read("jobs/42") == {"cursor": ["boot", 7, 1.5]}
    state.forget("jobs/42")
    assert state.read("jobs/42") == {}


def test_the_folder_is_for_its_owner_alone(state: State) -> None:
    state.prepare()
    assert Path(state.folder).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = State(str(tmp_path / "file" / "state")).prepare()
    assert data == f"{tmp_path}/file/state: Not a directory; nothing is remembered from job to job"


def test_who_reads_while_another_writes_sees_a_whole_record(state: State) -> None:
    state.prepare()
    state.write("verdict", {"number": 0})
    ended = threading.Event()
    seen = []

    def read() -> None:
        while not ended.is_set():
            seen.append(state.read("verdict").get("number"))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        state.write("verdict", {"number": number, "more": "x" * 10_000})
    ended.set()
    reader.join()
    assert None not in seen
    assert seen == sorted(seen)
    assert [path.name for path in Path(state.folder).iterdir()] == ["verdict.json"]


def test_a_record_that_cannot_be_written_leaves_the_old_one(state: State) -> None:
    state.prepare()
    state.write("verdict", {"number": 1})
    (Path(state.folder) / f".verdict.json.{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        state.write("verdict", {"number": 2})
    assert state.read("verdict") == {"number": 1}


def test_a_lock_is_tried_without_waiting_for_who_has_it(state: State) -> None:
    state.prepare()
    with state.tried("next.lock") as first, state.tried("next.lock") as second, state.tried("other.lock") as other:
        assert (first, second, other) == (True, False, True)
    with state.tried("next.lock") as again:
        assert again


def test_where_a_disk_knows_no_locks_nobody_has_one(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_file: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    state.prepare()
    monkeypatch.setattr(fcntl, "flock", unknown)
    with state.tried("next.lock") as is_ours:
        assert is_ours


def test_what_is_old_is_removed_and_what_is_young_or_in_use_is_not(state: State) -> None:
    state.prepare()
    ages_s = {
        "jobs/1": 2 * KEPT_S,
        "jobs/2": UNFINISHED_S,
        ".verdict": 2 * UNFINISHED_S,
        ".cursor": 1.0,
        "cursor": 2 * KEPT_S,
    }
    for name, age_s in ages_s.items():
        state.write(name, {})
        file = Path(state.folder) / f"{name}.json"
        if name.startswith("."):
            file = file.rename(f"{file}.77")
        os.utime(file, (time.time() - age_s,) * 2)
    state.remove_old()
    left = sorted(str(path.relative_to(state.folder)) for path in Path(state.folder).rglob("*.json*"))
    assert left == [".cursor.json.77", "cursor.json", "jobs/2.json"]


def test_a_line_waits_for_room_in_syslogs_queue(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        log = Log("prolog job 42", str(tmp_path / "log"))
        received = []
        reader = threading.Thread(target=lambda: received.extend(listener.recv(8192).decode() for _ in range(100)))
        reader.start()
        for number in range(100):
            log(f"line {number}\nof two")
        reader.join()
    assert received == [f"<30>clusterproof: prolog job 42: line {number} of two" for number in range(100)]


def test_a_syslog_that_hangs_is_waited_for_once_and_no_line_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        log = Log("prolog", str(tmp_path / "log"))
        for number in range(1000):
            log(f"line {number}")
    assert "clusterproof: prolog: line 999\n" in capsys.readouterr().err


def test_how_far_the_log_was_evaluated_never_goes_back_where_two_say_so_at_once(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.prepare()
    call = Call("prolog", "gpu001", NO_JOB, Settings("drain"), state, Log("test", ""))
    later = threading.Thread(target=call.advance, args=(("boot", 9, 9.0),))
    read = State.read

    def read_while_another_advances(self: State, name: str) -> Mapping[str, Any]:
        monkeypatch.setattr(State, "read", read)
        data = read(self, name)
        later.start()
        later.join(0.5)
        return data

    monkeypatch.setattr(State, "read", read_while_another_advances)
    call.advance(("boot", 5, 5.0))
    later.join()
    assert call.cursor == ("boot", 9, 9.0)
