"""NCCL Inspector's output shows which rank comes last to collectives."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.training_run import RunError, collectives
from clusterproof.plugins.training_run.collectives import CollectiveCall
from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import arriving, result_of


def line(rank: int, number: int, us: float, ranks: int = 4, kind: str = "AllReduce", source: str = "kernel_gpu") -> str:
    """A line like one in DataDog's integrations-core from a real dump of version 4."""
    header = {"id": "0xad56c683b0c4ef", "rank": rank, "n_ranks": ranks, "nnodes": ranks}
    metadata = {
        "inspector_output_format_version": "v4.0",
        "git_rev": "standalone-build",
        "hostname": f"worker-{rank}",
        "pid": 48,
        "dump_timestamp_us": 1772585717263338,
    }
    call = {
        "coll": kind,
        "coll_sn": number,
        "coll_msg_size_bytes": 2360832,
        "coll_exec_time_us": us,
        "coll_timing_source": source,
        "coll_algobw_gbs": 0.416887,
        "coll_busbw_gbs": 0.555850,
    }
    return json.dumps({"header": header, "metadata": metadata, "coll_perf": call}) + "\n"


def test_the_rank_whose_kernel_is_shortest_came_last(tmp_path: Path) -> None:
    random = Random(3)
    for rank in range(4):
        rows = [line(rank, number, (800.0 if rank == 2 else 5663.0) + random.random()) for number in range(150)]
        pairs = [json.dumps({"header": {}, "metadata": {}, "p2p_perf": {"p2p": "Send", "p2p_sn": 1}}) + "\n"]
        (tmp_path / f"worker-{rank}-pid48.log").write_text("".join(rows + pairs), encoding="utf-8")
    result = result_of("run.last_to_come", read_run([str(tmp_path)]))
    assert result.message.startswith(
        "rank 2 of communicator 0xad56c683b0c4ef (worker-2) comes last to 100 % of 150 collectives of 4 ranks"
    )


@pytest.mark.parametrize(
    ("kind", "is_named"),
    [
        ("AllReduce", True),
        ("AllGather", True),
        ("ReduceScatter", True),
        ("AlltoAll", True),
        ("AllToAll", True),
        ("Broadcast", False),
        ("Reduce", False),
        ("Gather", False),
        ("Scatter", False),
        ("Send", False),
        ("Recv", False),
        ("SendRecv", False),
        ("Signal", False),
        ("Invalid", False),
    ],
)
def test_only_what_ends_on_all_ranks_at_once_says_who_came_last(tmp_path: Path, kind: str, is_named: bool) -> None:
    """A Broadcast's root has sent before the others receive: its kernel is shorter, and it is not late."""
    for rank in range(4):
        rows = [line(rank, number, 800.0 if rank == 0 else 5663.0, kind=kind) for number in range(150)]
        (tmp_path / f"{rank}.log").write_text("".join(rows), encoding="utf-8")
    result = result_of("run.last_to_come", read_run([str(tmp_path)]))
    assert result.verdict.value == ("concern" if is_named else "incomplete")
    if not is_named:
        assert result.message.startswith(f"no collective says who comes last: 600 of {kind}; expected AllReduce")


@pytest.mark.long
def test_broadcasts_among_them_change_nothing(tmp_path: Path) -> None:
    """Each kind is numbered separately: the third Broadcast and the third AllReduce are two collectives."""
    for rank in range(4):
        rows = [line(rank, number, 5000.0 + 400 * ((rank + number) % 4)) for number in range(150)]
        rows += [line(rank, number, 9.0 if rank == 0 else 900.0, kind="Broadcast") for number in range(600)]
        (tmp_path / f"{rank}.log").write_text("".join(rows), encoding="utf-8")
    assert result_of("run.last_to_come", read_run([str(tmp_path)])).verdict.value == "pass"


def test_kinds_are_numbered_by_themselves(tmp_path: Path) -> None:
    for rank in range(4):
        rows = [
            line(rank, number, us / (3 if rank == 2 else 1), kind=kind)
            for number in range(100)
            for kind, us in (("AllGather", 100.0), ("ReduceScatter", 5000.0))
        ]
        (tmp_path / f"{rank}.log").write_text("".join(rows), encoding="utf-8")
    message = result_of("run.last_to_come", read_run([str(tmp_path)])).message
    assert "(worker-2) comes last to 100 % of 200 collectives of 4 ranks" in message


@pytest.mark.parametrize("source", ["kernel_cpu", "collective_cpu"])
def test_what_a_cpu_has_timed_says_nothing(tmp_path: Path, source: str) -> None:
    """CPU timing begins when the collective is enqueued, which is early on a rank whose GPU is late."""
    for rank in range(4):
        rows = [line(rank, number, 800.0 if rank == 2 else 5663.0, source=source) for number in range(150)]
        (tmp_path / f"{rank}.log").write_text("".join(rows), encoding="utf-8")
    result = result_of("run.last_to_come", read_run([str(tmp_path)]))
    assert (result.verdict.value, "600 of AllReduce that a CPU timed" in result.message) == ("incomplete", True)


def test_a_rank_without_a_file_leaves_it_open(tmp_path: Path) -> None:
    for rank in range(3):
        text = "".join(line(rank, number, 100 + rank) for number in range(150))
        (tmp_path / f"{rank}.log").write_text(text, encoding="utf-8")
    result = result_of("run.last_to_come", read_run([str(tmp_path)]))
    assert result.verdict.value == "incomplete"
    assert result.message.startswith("0 collectives that every rank recorded; expected at least 100")


def test_a_long_run_keeps_every_second_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "MAX_KEPT", 150)
    run = arriving(3, calls=400)
    assert len(run.data.arrivals.seen) <= 150
    assert result_of("run.last_to_come", run).message.startswith("rank 3 of communicator")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"coll_sn": 1,', '"coll_sn": -1,', "coll_sn is -1; expected a whole number"),
        ('"coll_exec_time_us": 5.0', '"coll_exec_time_us": null', "coll_exec_time_us is None; expected a number"),
        ('"hostname": "worker-0"', '"host": 1', "hostname is None; expected a name"),
        ('"coll_perf": {', '"coll_perf": 7, "x": {', "is no collective; expected"),
        ('{"header"', "[", "is not JSON; expected"),
    ],
)
def test_a_wrong_line_is_one_error_with_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    rows = [line(0, number, 5.0) for number in range(3)]
    rows[1] = rows[1].replace(old, new)
    (tmp_path / "a.log").write_text("".join(rows), encoding="utf-8")
    with pytest.raises(RunError) as wrong:
        read_run([str(tmp_path / "a.log")])
    assert str(wrong.value).startswith(f"{tmp_path}/a.log:2: ")
    assert words in str(wrong.value)


def test_two_communicators_with_too_few_collectives_pass_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        rows = [line(rank, number, 100.0 + rank) for number in range(60)]
        rows += [row.replace("0xad56c683b0c4ef", "0xbeef") for row in rows]
        (tmp_path / f"{rank}.log").write_text("".join(rows), encoding="utf-8")
    result = result_of("run.last_to_come", read_run([str(tmp_path)]))
    assert result.message.startswith("60 collectives that every rank recorded; expected at least 100")


def test_a_communicator_that_lacks_a_rank_is_not_left_out_without_a_word() -> None:
    """One that all recorded has nobody who is late; of another, rank 5 recorded nothing, and may be."""
    run = arriving(-1)
    calls = (
        CollectiveCall("0xdef456", 8, rank, f"gpu{rank // 4}", number, 3e-3)
        for number in range(200)
        for rank in range(8)
        if rank != 5
    )
    run.data.add(calls, "made up")
    result = result_of("run.last_to_come", run)
    assert (result.verdict.value, "0xdef456, of 7 of its 8 ranks" in result.message) == ("incomplete", True)
