"""Writing and reading a file system: past the cache, within its free space, and with nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load import fs_bandwidth
from clusterproof.plugins.benchmarks.load.asking import program
from clusterproof.plugins.benchmarks.load.fs_bandwidth import JOBS, PREFIX, scratch_file
from clusterproof.plugins.benchmarks.load.options import LoadOptions
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.evidence.perf.facts import FsBandwidth
from tests.benchmarks.load.loaded import evidence_of, loaded, read
from tests.builders.probed import PATH
from tests.testbed.load import SCRATCH, loadable_p5
from tests.testbed.needs import needs_fio, needs_nodes
from tests.testbed.node import without_file

pytestmark = pytest.mark.long

SETTLE_S = 600.0


def settles(is_so: Callable[[], object]) -> bool:
    """Whether a condition becomes true after a while."""
    until = time.monotonic() + SETTLE_S
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(is_so())


@needs_fio
def test_fio_writes_and_reads_past_the_cache_and_leaves_nothing(tmp_path: Path) -> None:
    collector = loaded({"fs_bandwidth"}, LoadOptions(fs_folder=str(tmp_path), fs_mib=64)).collectors["fs_bandwidth"]
    if "Invalid argument" in collector.detail:
        pytest.skip(f"{tmp_path} has no direct I/O")
    assert collector.status is Status.READ, collector.detail
    assert collector.value["write"]["bytes"] == collector.value["read"]["bytes"] == 64 * 1024 * 1024
    assert set(FsBandwidth(collector.value).gb_per_s) == {"write", "read"}
    assert list(tmp_path.iterdir()) == []


@needs_fio
def test_a_user_who_gives_the_scratch_files_name_to_another_file_does_not_have_that_written(tmp_path: Path) -> None:
    own, folder, is_over = tmp_path / "own", tmp_path / "of_everybody", threading.Event()
    own.write_text("precious")
    folder.mkdir()

    def rename() -> None:
        while not is_over.is_set():
            for scratch in folder.glob(f"{PREFIX}*"):
                if not scratch.is_symlink():
                    (folder / "link").symlink_to(own)
                    (folder / "link").replace(scratch)

    user = threading.Thread(target=rename)
    user.start()
    collector = loaded({"fs_bandwidth"}, LoadOptions(fs_folder=str(folder), fs_mib=64)).collectors["fs_bandwidth"]
    is_over.set()
    user.join()
    if "Invalid argument" in collector.detail:
        pytest.skip(f"{tmp_path} has no direct I/O")
    assert (own.read_text(), collector.value["read"]["bytes"]) == ("precious", 64 * 1024 * 1024)


@needs_fio
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_users_own_fio_runs_as_that_user_and_may_write_the_scratch_file() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        own = folder / "fio"
        own.write_text('#!/bin/sh\nexec fio "$@"\n')
        own.chmod(0o755)
        os.chown(own, 65534, 65534)
        options = LoadOptions(fs_folder=name, fs_mib=64, folders=name)
        collector = loaded({"fs_bandwidth"}, options).collectors["fs_bandwidth"]
    if "Invalid argument" in collector.detail:
        pytest.skip(f"{name} has no direct I/O")
    assert (collector.status, collector.detail) == (Status.READ, "")


@pytest.mark.parametrize("counted", [{"io_bytes": 512 * 1024}, {"io_bytes": 512 * 1024**2, "io_kbytes": 512 * 1024}])
def test_bytes_are_counted_alike_by_fio_2_which_calls_kib_so(
    counted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = [{direction: {**counted, "runtime": 500} for direction in ("write", "read")}] * JOBS
    ran = {"command": "fio", "exit": 0, "output": json.dumps({"fio version": "fio-2.14", "jobs": jobs})}
    monkeypatch.setattr(fs_bandwidth, "measured", lambda *_, **__: ran)
    node = Node(settings={"fs_folder": str(tmp_path), "fs_mib": "8"})
    size = {"bytes": JOBS * 512 * 1024**2, "seconds": 0.5}
    assert fs_bandwidth.fs_bandwidth(node) == {"folder": str(tmp_path), "write": size, "read": size}


@needs_fio
def test_where_little_is_free_nothing_is_written(tmp_path: Path) -> None:
    free_mib = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize // 1024**2
    collector = loaded({"fs_bandwidth"}, LoadOptions(fs_folder=str(tmp_path), fs_mib=free_mib)).collectors[
        "fs_bandwidth"
    ]
    assert collector.status is Status.BROKE
    assert "MiB free; expected" in collector.detail


@needs_fio
def test_a_run_that_is_cut_off_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    to_run = program(["fs_bandwidth"], LoadOptions(fs_folder=str(tmp_path), fs_mib=4096))
    running = subprocess.Popen(
        ["/bin/sh", "-c", to_run.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PATH": PATH},
    )
    assert running.stdin
    assert running.stdout
    running.stdin.write(to_run.stdin)
    running.stdin.close()
    assert settles(lambda: list(tmp_path.iterdir()))
    running.stdout.close()  # close the connection
    assert settles(lambda: not list(tmp_path.iterdir()))
    assert settles(lambda: not writers(tmp_path))
    running.wait(SETTLE_S)


def writers(folder: Path) -> list[bytes]:
    """Running programs with this folder on their command line."""
    lines = map(read, Path("/proc").glob("[0-9]*/cmdline"))
    return [line for line in lines if f"--description={folder}".encode() in line]


def test_a_scratch_file_of_a_server_that_makes_roots_files_nobodys_is_left_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As NFS and Lustre do with root_squash."""

    def refused(*_: int) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchown", refused)
    with scratch_file(str(tmp_path), os.geteuid()) as (path, _):
        Path(path).write_text("x")


def test_a_scratch_file_is_removed_when_its_writers_are_killed(tmp_path: Path) -> None:
    writer = os.fork()
    if not writer:
        os.setsid()
        with scratch_file(str(tmp_path), os.geteuid()):
            os.execvp("sleep", ["sleep", "1000"])
    assert settles(lambda: list(tmp_path.iterdir()))
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600]
    os.killpg(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    assert settles(lambda: not list(tmp_path.iterdir()))


@needs_nodes
def test_a_folder_that_is_not_there_is_absent() -> None:
    collector = evidence_of(without_file(loadable_p5(), SCRATCH), "fs_bandwidth")
    assert (collector.status, collector.detail) == (Status.ABSENT, f"no folder {SCRATCH}")
