"""Whom ranks waited for, by the collectives that each had enqueued for PyTorch's watchdogs, and as Gloo and JAX say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import SACCT, case_of

OF_ALL = ("[PG 0 Rank {rank}]", "[PG 0 (default_pg) Rank {rank}]", "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]")
STATUS = (
    "Timeout at NCCL work: {at}, last enqueued NCCL work: {last}, last completed NCCL work: 21.",
    "Exception (either an error or timeout) detected by watchdog at work: {at}, last enqueued NCCL work: {last}, last",
    " failure detected by watchdog at work sequence id: {at} PG status: last enqueued work: {last}, last completed",
)
SIGNAL = (
    "Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. "
    "Last enqueued NCCL work: {last}, last completed NCCL work: {last}.This is most likely caused by incorrect usages"
)
LINE = "[rank{rank}]:[E301 08:10:03.100000 4120 ProcessGroupNCCL.cpp:1870] {group} {words}\n"
RECORD = {"sacct.txt": SACCT.format(state="FAILED")}


def waiting(rank: int, at: int, last: int, generation: int = 2) -> str:
    words = STATUS[generation].format(at=at, last=last)
    return LINE.format(rank=rank, group=OF_ALL[generation].format(rank=rank), words=words)


def asked(rank: int, last: int, generation: int = 2) -> str:
    words = SIGNAL.format(last=last)
    return LINE.format(rank=rank, group=OF_ALL[generation].format(rank=rank), words=words)


def leads_of(folder: Path, lines: str) -> list[tuple[int, str]]:
    case = case_of(folder, {**RECORD, "job.out": lines})
    return [(lead.rank, lead.words) for lead in case.collected.leads]


@pytest.mark.parametrize("generation", range(3))
def test_a_rank_that_did_not_come_to_the_collective_of_the_others_is_named(generation: int, tmp_path: Path) -> None:
    lines = "".join(waiting(rank, 22, 24, generation) for rank in (0, 1, 3)) + asked(2, 21, generation)
    assert leads_of(tmp_path, lines) == [
        (2, "had not enqueued collective 22 of all ranks, in which ranks 0, 1, 3 waited"),
    ]


def test_one_that_never_called_a_collective_is_named(tmp_path: Path) -> None:
    lines = "".join(waiting(rank, 1, 1) for rank in (0, 1, 3)) + asked(2, -1)
    assert [rank for rank, _ in leads_of(tmp_path, lines)] == [2]


@pytest.mark.parametrize(
    "lines",
    [
        waiting(0, 22, 22) + asked(1, 21) + asked(2, 21) + asked(3, 21),  # rank 0 called one that the others do not
        "".join(waiting(rank, 22, 24) for rank in (0, 1, 3)) + asked(2, 22),
        "".join(waiting(rank, 22, 24) for rank in (0, 1, 3)) + asked(2, 7),  # of another attempt
        "".join(waiting(rank, 22, 24) for rank in (0, 1, 3))
        + asked(2, 21)
        + LINE.format(rank=2, group="[PG ID 1 PG GUID 4 Rank 0]", words=STATUS[2].format(at=9, last=9)),
        LINE.format(rank=0, group="[PG ID 1 PG GUID 4 Rank 0]", words=STATUS[2].format(at=9, last=9)) + asked(2, 8),
    ],
)
def test_one_that_waits_itself_or_with_the_most_is_not(lines: str, tmp_path: Path) -> None:
    assert leads_of(tmp_path, lines) == []


def test_its_node_is_to_be_tested(tmp_path: Path) -> None:
    lines = "".join(waiting(rank, 22, 24) for rank in (0, 1, 3)) + asked(2, 21)
    placed = "gpu002:10:20 [1] NCCL INFO comm 0x55 rank 2 nranks 4 cudaDev 1\n"
    case = case_of(tmp_path, {**RECORD, "job.out": placed + lines})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), ("gpu002",))
    assert case.verdict.why.startswith("ranks waited in vain for rank 2")


GLOO = "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 3. "
JAX = "task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 "


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        (f"[E ProcessGroupGloo.cpp:136] {GLOO}Please check rank 3 logs for faulty rank.", [3]),
        ("RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 1800000 ms", [2, 5]),
        (f"2026-03-01 08:10:15.1: E x.cc:954] {JAX}heartbeat timeout. This indicates that the remote task has", [37]),
    ],
)
def test_a_rank_that_others_name_is_named(line: str, ranks: list[int], tmp_path: Path) -> None:
    case = case_of(tmp_path, {**RECORD, "job.out": f"{line}\n"})
    assert [lead.rank for lead in case.collected.leads] == ranks
    assert case.verdict.why.startswith("ranks waited in vain for rank")
