"""Ranks that called different collectives: code, unless a GPU or network error may have caused it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from clusterproof.plugins.case.advice import Case
from tests.case.files import XID_79, case_of
from tests.training_run.recorded import calling

# At 08:00:02 rank 1 calls a barrier, and the others an all_reduce.
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
FAILED = "RuntimeError: CUDA error: unspecified launch failure\n"
NETWORK = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
UNDATED = "[    0.000000] Linux version 6.8.0\n[ 5000.100000] " + XID_79.partition(" ")[2]


def desync(folder: Path, files: dict[str, str], ended: int = 1) -> Case:
    for rank in range(4):
        calls = [("all_reduce", (5,)), ("barrier" if rank == 1 else "all_reduce", (5,))]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(calling(rank, calls, ended=ended)))
    return case_of(folder, files)


def test_by_themselves_they_are_code(tmp_path: Path) -> None:
    verdict = desync(tmp_path, {}).verdict
    assert (verdict.cause, verdict.rank) == ("code", 1)
    assert "rank 1 called barrier, ranks 0, 2, 3 called all_reduce of 5 Float" in verdict.why


@pytest.mark.parametrize("error", [ECC, FAILED, NETWORK])
@pytest.mark.parametrize(
    ("time", "cause"),
    [
        ("", "unknown"),
        ("2026-03-01 07:59:55,000 ", "unknown"),
        ("2026-03-01 08:00:01,900 ", "unknown"),
        ("2026-03-01 08:10:03,000 ", "code"),
    ],
)
def test_an_error_of_a_gpu_or_of_the_network_that_was_not_surely_later_may_have_led_there(
    error: str, time: str, cause: str, tmp_path: Path
) -> None:
    assert desync(tmp_path, {"rank_1.log": f"{time}{error}"}).verdict.cause == cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (XID_79.format(time="07:59:50"), "hardware"),
        (XID_79.format(time="08:00:01"), "unknown"),
        (XID_79.format(time="08:00:40"), "unknown"),  # the kernel's line may be a minute late
        (UNDATED, "unknown"),
    ],
)
def test_a_gpu_that_its_node_says_is_broken_may_have_led_there(log: str, cause: str, tmp_path: Path) -> None:
    verdict = desync(tmp_path, {"gpu003-dmesg.txt": log}).verdict
    assert verdict.cause == cause
    assert "gpu003" in (*verdict.nodes, *verdict.suspects)


def test_where_all_wait_for_another_collective_before_it_is_no_cause(tmp_path: Path) -> None:
    assert desync(tmp_path, {}, ended=0).verdict.cause == "unknown"


RAS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH
    1         4         2         1         2         8   RUNNING  MISMATCH

Errors
======

{errors}
Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
{counts}
#1-2 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  Rank 1 has launched up to operation 9 -- GPU 1 managed by process 12 on node gpu001
  Rank 0 has launched up to operation 900 -- GPU 0 managed by process 11 on node gpu002
"""
ONE_BEHIND = """  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node gpu002
"""
TWO_BEHIND = """  6 ranks have launched up to operation 64
  2 ranks have launched up to operation 60
  Rank 6 -- GPU 2 managed by process 1650385 on node gpu002
  Rank 7 -- GPU 3 managed by process 1650386 on node gpu002
"""
NONE_BEHIND = """  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 63 -- GPU 3 managed by process 1650386 on node gpu002
"""
NOTHING_LAUNCHED = """  7 ranks have launched up to operation 64
  Rank 7 has not launched any operations -- GPU 3 managed by process 1650386 on node 172.16.64.213
"""
DEAD = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (78db921d1c117b4a) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 5
"""


@pytest.mark.parametrize(
    ("counts", "ranks", "node"),
    [
        (ONE_BEHIND, [7], "gpu002"),
        (TWO_BEHIND, [6, 7], "gpu002"),
        (NONE_BEHIND, [], ""),
        (NOTHING_LAUNCHED, [7], ""),
    ],
)
def test_ranks_that_ncclras_shows_behind_are_named_with_their_node(
    tmp_path: Path, counts: str, ranks: list[int], node: str
) -> None:
    collected = case_of(tmp_path, {"ras.txt": RAS.format(errors="", counts=counts)}).collected
    assert [(lead.rank, lead.node) for lead in collected.leads] == [(rank, node) for rank in ranks]
    assert "1 output of ncclras" in collected.read


def test_a_process_that_does_not_answer_ncclras_is_named(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"ras.txt": RAS.format(errors=DEAD, counts=NONE_BEHIND)})
    assert [(lead.rank, lead.words) for lead in case.collected.leads] == [(5, "gave no answer to NCCL's RAS")]
    assert any("process 3487984 on 172.16.64.213, GPU 5, which" in words for words in case.collected.missing)
    assert case.verdict.nodes == ()


def test_of_what_a_job_asked_ncclras_again_and_again_the_last_answer_counts(tmp_path: Path) -> None:
    behind = RAS.format(errors="", counts=ONE_BEHIND)
    later = RAS.format(errors="", counts=NONE_BEHIND.replace(" 6", " 96"))
    step = "2026-03-01 07:59:00,000 iteration 9/90000 | lm loss: 2.1\n"
    assert case_of(tmp_path, {"train.log": step * 2_000 + behind + step + later}).collected.leads == ()
    assert [lead.rank for lead in case_of(tmp_path, {"train.log": later + step + behind}).collected.leads] == [7]


def test_another_programs_summary_of_the_job_hides_no_answer_of_ncclras(tmp_path: Path) -> None:
    text = RAS.format(errors="", counts=ONE_BEHIND) + "Job summary: 8 GPUs, 3 hours\n"
    assert [lead.rank for lead in case_of(tmp_path, {"train.log": text}).collected.leads] == [7]


def test_what_stands_beside_an_answer_of_ncclras_in_a_log_is_read(tmp_path: Path) -> None:
    raised = "[rank3]: KeyError: 'image'\n"
    case = case_of(tmp_path, {"train.log": RAS.format(errors="", counts=NONE_BEHIND) + raised})
    assert (case.verdict.cause, case.verdict.rank) == ("code", 3)
    assert {"1 output of ncclras", "1 file of output"} <= set(case.collected.read)


@pytest.mark.parametrize("filling", ["\n", " ", "1 ", "Rank ", "#"])
def test_no_file_of_a_job_that_begins_like_ncclras_takes_longer_than_its_length(tmp_path: Path, filling: str) -> None:
    text = f"Communicators... (0.00s)\n{filling * (1_000_000 // len(filling))}"  # hours, if by its square
    assert case_of(tmp_path, {"ras.txt": text}).collected.leads == ()
