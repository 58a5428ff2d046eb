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
