"""Samples of rank processes: real ones, and files of /proc as a hostile user would have them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host import collect_ranks_samples as ranks
from clusterproof.plugins.training_run.rank_processes import look_of

RANK = """
import os, sys, threading, time
if not os.fork():  # a loader of data, which has the same environment
    time.sleep(600)
for _ in range(3):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
exec(sys.argv[1])
"""
JOB = f"{os.geteuid()}@127.0.0.1:{os.getpid()}"
THIS = Node()


@pytest.fixture(autouse=True)
def at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LOOK_S", 0.0)


@pytest.fixture
def job() -> Iterator[list[int]]:
    """Three ranks: one sleeps, one computes, one is stopped; each has a data loader."""
    started = []
    for rank, program in enumerate(("time.sleep(600)", "while True: pass", "os.kill(os.getpid(), 19)")):
        own = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid())}
        command = ["nice", sys.executable, "-c", RANK, program]
        process = subprocess.Popen(
            command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        started.append(process)
    yield [process.pid for process in started]
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()
        assert process.stdout
        process.stdout.close()


def rows(sampler: ranks.Sampler, node: Node = THIS) -> dict[int, list[Any]]:
    """The next sample's entries for this job, by rank."""
    values: Any = sampler.sample(node).get("values", [])
    return {row[0]: row for row in values if row[2] == JOB}


@pytest.mark.long
def test_what_the_main_thread_of_each_rank_does_is_what_the_kernel_says(job: list[int]) -> None:
    sampler = ranks.Sampler(THIS)
    computed = rows(sampler)[1][5]
    while rows(sampler)[2][3] != "T" or rows(sampler)[1][5] <= computed or rows(sampler)[0][3] != "S":
        time.sleep(0.05)
    by_rank = rows(sampler)
    assert sorted(by_rank) == [0, 1, 2]
    assert [row[1] for row in by_rank.values()] == [3, 3, 3]
    assert look_of(by_rank[0]).state == "S"
    if os.geteuid() == 0:
        assert "nanosleep" in by_rank[0][4]
    assert len(job) == 3


def of_proc(root: Path, pid: int, environ: bytes, *, threads: int = 1, state: str = "S", lies_at: str = "7000") -> None:
    """A process as /proc shows it."""
    fields = [
        str(pid),
        "(x) y)",
        state,
        *["0"] * 10,
        "100",
        "50",
        *["0"] * 4,
        str(threads),
        "0",
        "777",
        *["0"] * 27,
        lies_at,
    ]
    for folder in (root / f"proc/{pid}", root / f"proc/{pid}/task/{pid}"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(" ".join(fields))
    (root / f"proc/{pid}/environ").write_bytes(environ)
    (root / f"proc/{pid}/wchan").write_text("futex_do_wait")


def test_of_processes_of_one_rank_the_one_with_most_threads_is_taken(tmp_path: Path) -> None:
    environ = f"RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=127.0.0.1\0MASTER_PORT={os.getpid()}\0".encode()
    for pid, threads in ((10, 2), (11, 40), (12, 2)):
        of_proc(tmp_path, pid, environ, threads=threads)
    (tmp_path / "proc/11/wchan").write_text("do_poll")
    node = Node(str(tmp_path))
    assert rows(ranks.Sampler(node), node) == {1: [1, 2, JOB, "S", "do_poll", 150 / os.sysconf("SC_CLK_TCK")]}


def test_a_process_of_another_user_is_no_rank_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = f"RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=127.0.0.1\0MASTER_PORT={os.getpid()}\0".encode()
    of_proc(tmp_path, 10, environ, threads=40)
    of_proc(tmp_path, 11, environ, threads=400)
    (tmp_path / "proc/11/wchan").write_text("hrtimer_nanosleep")
    if os.geteuid() == 0:
        os.chown(tmp_path / "proc/11", 65534, 65534)
    else:
        monkeypatch.setattr(ranks, "_owner", lambda _node, pid: str(os.geteuid() + (pid == "11")))
    node = Node(str(tmp_path))
    assert [row[4] for row in rows(ranks.Sampler(node), node).values()] == ["futex_do_wait"]


@pytest.mark.parametrize(
    "environ",
    [
        b"",
        b"RANK=1\0",
        b"RANK=-1\0WORLD_SIZE=2\0",
        b"RANK=\xd9\xa1\0WORLD_SIZE=2\0",
        b"RANK=99999999999999999999\0WORLD_SIZE=2\0",
        b"\xff\xfe=\0=\0RANK\0WORLD_SIZE=2\0",
    ],
)
def test_what_names_no_rank_is_none(tmp_path: Path, environ: bytes) -> None:
    of_proc(tmp_path, 10, environ)
    node = Node(str(tmp_path))
    assert ranks.Sampler(node).sample(node) == {}


def test_the_environment_of_a_process_that_is_blocked_is_not_asked_for(tmp_path: Path) -> None:
    of_proc(tmp_path, 10, b"RANK=1\0WORLD_SIZE=2\0", state="D")
    node = Node(str(tmp_path))
    assert ranks.Sampler(node).sample(node) == {}


def test_open_mpi_numbers_ranks_too(tmp_path: Path) -> None:
    of_proc(tmp_path, 10, b"OMPI_COMM_WORLD_RANK=5\0OMPI_COMM_WORLD_SIZE=16\0PMIX_NAMESPACE=prterun-7\0")
    node = Node(str(tmp_path))
    values: Any = ranks.Sampler(node).sample(node)["values"]
    assert [row[:3] for row in values] == [[5, 16, f"{os.geteuid()}@prterun-7"]]


ENVIRON = f"RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=127.0.0.1\0MASTER_PORT={os.getpid()}\0".encode()


@pytest.mark.parametrize(
    ("before", "after", "is_rank"),
    [
        ({"lies_at": "7000"}, {"lies_at": "7000"}, False),  # nothing ran meanwhile
        ({"lies_at": "7000"}, {"lies_at": "8000"}, True),
        ({"lies_at": "0"}, {"lies_at": "0"}, True),  # unknown whether anything ran
        ({"state": "D"}, {}, True),
    ],
)
def test_a_process_that_was_no_rank_is_asked_again_once_it_runs_another_program(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], is_rank: bool
) -> None:
    node = Node(str(tmp_path))
    of_proc(tmp_path, 10, b"HOME=/root\0", **before)  # type: ignore[arg-type]
    sampler = ranks.Sampler(node)
    assert rows(sampler, node) == {}
    of_proc(tmp_path, 10, ENVIRON, **after)  # type: ignore[arg-type]
    assert bool(rows(sampler, node)) is is_rank


def test_no_user_s_processes_push_out_the_ranks_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MAX_RANKS", 4)
    monkeypatch.setattr(ranks, "_owner", lambda _node, pid: str(os.geteuid() if pid == "99" else 65534))
    for pid in range(10, 20):
        of_proc(tmp_path, pid, f"RANK=0\0WORLD_SIZE=2\0MASTER_PORT={pid}\0".encode())
    of_proc(tmp_path, 99, ENVIRON)
    node = Node(str(tmp_path))
    assert list(rows(ranks.Sampler(node), node)) == [1]
