"""The scripts' state: whole records or none, and nothing kept for ever. And their logs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.integrations.slurm.folder import KEPT_S, MAX_JOBS, Folder, boot_id, since_boot_s
from clusterproof.integrations.slurm.records import Log
from clusterproof.integrations.slurm.state import State
from tests.integrations.slurm.calls import call_of, state_in


@pytest.fixture
def state(tmp_path: Path) -> State:
    return state_in(tmp_path / "var" / "state")


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
    problem = state_in(tmp_path / "file" / "state").prepare()
    assert problem == f"{tmp_path}/file/state: Not a directory; nothing is remembered from job to job"


@pytest.mark.long
def test_a_reader_sees_whole_records_while_another_process_writes(state: State) -> None:
    state.prepare()
    state.write("verdict", {"number": 0})
    ended = threading.Event()
    seen: list[Any] = []

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


@pytest.mark.parametrize(
    ("record", "file_age_s", "is_removed"),
    [
        ({}, 2 * KEPT_S, True),
        ({}, 0.0, False),
        ({"boot_id": "another", "at": 5.0}, 2 * KEPT_S, True),
        ({"boot_id": boot_id(), "at": since_boot_s()}, 2 * KEPT_S, False),  # a clock was set forward by two months
        ({"boot_id": boot_id(), "at": since_boot_s() - 2 * KEPT_S}, 2 * KEPT_S, True),
    ],
)
def test_what_an_old_job_has_left_is_removed_and_not_what_only_looks_old(
    state: State, record: dict[str, object], file_age_s: float, is_removed: bool
) -> None:
    state.prepare()
    state.write("jobs/1", record)
    os.utime(Path(state.folder) / "jobs/1.json", (time.time() - file_age_s,) * 2)
    state.write("cursor", {})
    os.utime(Path(state.folder) / "cursor.json", (time.time() - 2 * KEPT_S,) * 2)
    state.remove_old()
    assert [(Path(state.folder) / name).exists() for name in ("jobs/1.json", "cursor.json")] == [not is_removed, True]


@pytest.mark.long
def test_the_last_thousand_jobs_that_never_end_are_remembered(state: State) -> None:
    state.prepare()
    for number in range(MAX_JOBS + 5):
        state.write(f"jobs/{number}", {"boot_id": boot_id(), "at": since_boot_s()})
    state.remove_old()
    assert (state.read("jobs/4"), len(state.names("jobs"))) == ({}, MAX_JOBS)


@pytest.mark.long
def test_what_a_process_has_begun_to_write_is_removed_once_it_is_gone(state: State) -> None:
    state.prepare()
    with subprocess.Popen(["true"]) as gone:
        pass
    begun = [Path(state.folder) / f".verdict.json.{number}" for number in (os.getpid(), gone.pid)]
    for file in begun:
        file.touch()
    state.remove_old()
    assert [file.exists() for file in begun] == [True, False]


BOTH = ("drain_budget", "drained/prolog-41")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[State]:
    """A state folder on a separate small disk, with the folder beside it on another."""
    for name in ("var", "run"):
        (tmp_path / name).mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=755", "testbed", tmp_path / name])
        if mounted.returncode:
            pytest.skip("needs root: to mount")
    state = State(str(tmp_path / "var/state"), str(tmp_path / "run/state"))
    try:
        yield state
    finally:
        for name in ("var", "run"):
            subprocess.run(["umount", tmp_path / name], check=True)


def full(folder: str) -> None:
    """Fill a folder's disk to the last inode and byte."""
    with contextlib.suppress(OSError), (Path(folder).parent / "full").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()


def unwritable(folder: str) -> None:
    subprocess.run(["mount", "-o", "remount,ro", Path(folder).parent], check=True)


def somebodys(folder: str) -> None:
    os.chown(folder, 65534, 65534)


def everybodys(folder: str) -> None:
    Path(folder).chmod(0o777)


def removed(folder: str) -> None:
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.parametrize("befalls", [full, unwritable, somebodys, everybodys])
def test_what_the_folder_does_not_take_is_remembered_in_run(small: State, befalls: Callable[[str], None]) -> None:
    small.prepare()
    small.write("verdict", {"number": 1})
    befalls(small.folder)
    for name in ("verdict", *BOTH):
        assert small.write(name, {"number": 2}) != ""
        assert small.read(name) == {"number": 2}
    assert small.names("drained") == ("drained/prolog-41",)


@pytest.mark.long
def test_a_disk_that_is_full_with_run_on_it_takes_a_few_records_more(small: State) -> None:
    small.prepare()
    small.write("drain_budget", {"number": 1})
    full(small.folder)
    full(small.runtime_folder)
    for number in range(2, 4):
        small.prepare()
        small.write("drain_budget", {"number": number})
        assert small.read("drain_budget") == {"number": number}
    small.write("drained/prolog-41", {"number": 2})
    assert small.read("drained/prolog-41") == {"number": 2}


@pytest.mark.long
@pytest.mark.parametrize("lost", ["folder", "runtime_folder"])
def test_drains_and_how_many_there_are_outlive_the_loss_of_either_folder(small: State, lost: str) -> None:
    small.prepare()
    for name in BOTH:
        small.write(name, {"number": 1})
    removed(getattr(small, lost))
    assert [small.read(name) for name in BOTH] == [{"number": 1}] * 2


@pytest.mark.long
def test_what_is_kept_of_a_job_is_in_run_where_that_takes_it(small: State) -> None:
    small.prepare()
    small.write("jobs/41", {"number": 1})
    assert Folder(small.folder).read("jobs/41") == {}
    full(small.runtime_folder)
    small.write("jobs/42", {"number": 2})
    assert (small.read("jobs/41"), small.read("jobs/42")) == ({"number": 1}, {"number": 2})


@pytest.mark.long
def test_what_the_folder_takes_again_is_newer_than_what_is_in_run(small: State) -> None:
    small.prepare()
    everybodys(small.folder)
    small.write("verdict", {"number": 1})
    Path(small.folder).chmod(0o700)
    assert small.write("verdict", {"number": 2}) == ""
    assert small.read("verdict") == {"number": 2}
    assert Folder(small.runtime_folder).read("verdict") == {}


@pytest.mark.long
def test_what_is_forgotten_is_forgotten_in_both(small: State) -> None:
    small.prepare()
    small.write("drain_budget", {"number": 1})
    small.forget("drain_budget")
    assert small.read("drain_budget") == {}


def test_a_line_waits_for_room_in_syslogs_queue(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        log = Log("prolog job 42", str(tmp_path / "log"))
        received: list[str] = []
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
    call = call_of("prolog", state)
    later = threading.Thread(target=call.advance, args=(None, ("boot", 9, 9.0)))
    read = State.read

    def read_while_another_advances(self: State, name: str) -> Mapping[str, Any]:
        monkeypatch.setattr(State, "read", read)
        record = read(self, name)
        later.start()
        later.join(0.5)
        return record

    monkeypatch.setattr(State, "read", read_while_another_advances)
    call.advance(None, ("boot", 5, 5.0))
    later.join()
    assert call.cursor == ("boot", 9, 9.0)
