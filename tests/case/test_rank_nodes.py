"""The node of a rank: from what names the rank, from a launcher's tasks, and from NCCL's communicators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.case.launchers import BY_TASK
from tests.case.files import SACCT, case_of
from tests.case.output_lines import read

pytestmark = pytest.mark.any_user

BLOCK = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_08:00:00
  host      : {node}.cluster.example
  rank      : {rank} (local_rank: {local_rank})
  exitcode  : 1 (pid: 4411)
"""
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
TASKS = (
    "srun: error: gpu001: task 0: Exited with exit code 1",
    "srun: error: gpu004: task 3: Exited with exit code 1",
)


def joined(node: str, rank: int, ranks: int, pid: int = 100) -> str:
    return f"{node}:{pid}:900 [3] NCCL INFO comm 0x55 rank {rank} nranks {ranks} cudaDev 3"


@pytest.mark.parametrize(
    ("lines", "node"),
    [
        ([joined("gpu002", 3, 8), joined("gpu001", 3, 16), joined("gpu002", 11, 16)], "gpu001"),
        ([joined("gpu001", 3, 16), joined("gpu002", 3, 8), joined("gpu003", 3, 8)], "gpu001"),
        ([joined("gpu002", 3, 8), joined("gpu001", 3, 8)], ""),
        ([joined("gpu001", 3, 16), joined("gpu002", 3, 16, pid=200)], ""),
        ([f"[rank3]: {joined('gpu001', 3, 16)}", f"[rank11]: {joined('gpu002', 3, 8)}"], "gpu001"),
        ([joined("gpu001", 3, 16), joined("gpu001", 3, 16, pid=200)], "gpu001"),
    ],
    ids=["all before some", "some behind all", "of two", "restarted elsewhere", "said by its rank", "restarted"],
)
def test_a_rank_is_not_on_the_node_of_another_that_has_its_number_in_a_smaller_communicator(
    lines: list[str], node: str
) -> None:
    (event,) = read("\n".join([*lines, f"[rank3]: {ECC}"])).events
    assert (event.rank, event.node) == (3, node)


@pytest.mark.parametrize(
    ("lines", "node"),
    [
        ([f"0: {joined('gpu001', 3, 32)}", f"3: {joined('gpu004', 26, 32)}", "0: [rank2]: a"], "gpu001"),
        ([f"3: {joined('gpu004', 26, 32)}", f"3: {joined('gpu004', 27, 32, pid=101)}"], ""),
        ([f"3: [rank27]: {joined('gpu004', 27, 32)}", *TASKS], ""),
        ([BLOCK.format(node="gpu001", rank=3, local_rank=0), *TASKS], "gpu001"),
        ([BLOCK.format(node="gpu004", rank=29, local_rank=5), *TASKS], ""),
        (
            [
                f"[1,0]<stderr>:[rank2]: {joined('gpu001', 2, 32)}",
                "process rank 3 with PID 7 on node gpu004 exited on signal 9",
            ],
            "",
        ),
    ],
    ids=["a label", "a label of two ranks", "a rank behind it", "of a failed rank", "of another", "of mpirun"],
)
def test_a_task_that_is_a_torchrun_is_not_the_rank_of_its_number(lines: list[str], node: str) -> None:
    job_output = read("\n".join([*lines[:-1], f"[rank3]: {ECC}", lines[-1]]))
    assert [(event.rank, event.node) for event in job_output.events if event.sign == "ecc"] == [(3, node)]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [joined("gpu004", 1, 4), joined("gpu004", 0, 2)],
        [joined("gpu004", number, 8, pid) for pid in (100, 200) for number in (3, 0)],
    ],
    ids=["alone", "in communicators", "started again, in two of one size"],
)
def test_a_task_that_is_a_rank_has_its_node(before: list[str]) -> None:
    job_output = read("\n".join([*(f"3: {line}" for line in before), f"3: {ECC}", *TASKS]))
    assert [(event.rank, event.node) for event in job_output.events if event.sign == "ecc"] == [(3, "gpu004")]


@pytest.mark.parametrize("order", [1, -1])
def test_a_task_that_is_a_torchrun_is_no_rank(order: int) -> None:
    job_output = read("\n".join([f"3: {ECC}", "0: [rank3]: a", *TASKS][::order]))
    assert [(event.rank, event.node) for event in job_output.events if event.sign == "ecc"] == [(None, "")]
    assert (job_output.ended, job_output.labelled, job_output.nodes_of_ranks) == ({}, frozenset(), {})


@pytest.mark.parametrize(
    ("files", "suspects"),
    [
        ({"a.out": [f"[rank3]: {ECC}", BLOCK.format(node="gpu001", rank=3, local_rank=3), *TASKS]}, ("gpu001",)),
        ({"a.out": [joined("gpu004", 3, 8), joined("gpu001", 3, 8), f"[rank3]: {ECC}"]}, ()),
        (
            {"4.out": [joined("gpu004", 3, 8)], "a.out": [f"[rank3]: {ECC}"], "b.out": [joined("gpu001", 3, 16)]},
            ("gpu001",),
        ),
        ({"4.out": [joined("gpu004", 3, 8)], "a.out": [f"[rank3]: {ECC}"], "b.out": [joined("gpu001", 3, 8)]}, ()),
        ({"task-3.out": [ECC, "[rank27]: a"], "task-0.out": [BLOCK.format(node="gpu001", rank=3, local_rank=3)]}, ()),
        ({"a.out": ["3: [rank27]: a", f"[rank3]: {ECC}"], "a.err": [*TASKS]}, ()),
        (
            {"a.out": [f"[rank3]: {ECC}", BLOCK.format(node="gpu001", rank=3, local_rank=0)], "a.err": TASKS},
            ("gpu001",),
        ),
        ({"a.out": ["3: [rank27]: a"], "a.err": [f"[rank3]: {ECC}", *TASKS]}, ()),
        ({"a.out": ["3: [rank27]: a", joined("gpu001", 3, 32)], "a.err": [f"3: {ECC}", *TASKS]}, ("gpu004",)),
    ],
    ids=[
        "a torchrun on each node",
        "two communicators",
        "in two files, one larger",
        "in two files",
        "files of tasks",
        "errors in a file of their own",
        "errors in a file of their own, of another node",
        "errors and the rank in a file of their own",
        "the task in a file of its own",
    ],
)
def test_no_node_is_suspect_for_the_number_of_another_ones_rank(
    files: dict[str, Sequence[str]], suspects: tuple[str, ...], tmp_path: Path
) -> None:
    outputs = {
        (name if name.startswith("task") else f"node-{name}"): "\n".join(lines) + "\n" for name, lines in files.items()
    }
    case = case_of(tmp_path, {**outputs, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", suspects)
    assert [lead for lead in case.collected.leads if lead.words.startswith(BY_TASK)] == []


@pytest.mark.parametrize(
    "files",
    [
        {"node-1.out": [joined("gpu001", 3, 16, pid=200)], "node-2.out": [joined("gpu002", 3, 8)]},
        {"node-1.out": [joined("gpu002", 3, 8), joined("gpu001", 3, 16, pid=200)]},
        {"node-1.out": [joined("gpu002", 3, 8), "srun: error: gpu001: task 3: Exited with exit code 1"]},
    ],
    ids=["in two files", "in one", "of a task"],
)
def test_a_rank_is_not_the_process_on_another_node_than_its_own(files: dict[str, list[str]], tmp_path: Path) -> None:
    collected = case_of(tmp_path, {name: "\n".join(lines) + "\n" for name, lines in files.items()}).collected
    assert (collected.nodes_of_ranks[3], collected.pids_of_ranks.get(3, 200)) == ("gpu001", 200)


@pytest.mark.parametrize("node", ["gpu001", ""], ids=["placed", "alone"])
def test_the_process_of_a_rank_is_known_where_its_host_is_only_called_localhost(node: str, tmp_path: Path) -> None:
    block = BLOCK.replace("{node}.cluster.example", "localhost").format(rank=3, local_rank=3)
    before = f"{joined(node, 3, 8, pid=4411)}\n" if node else ""
    collected = case_of(tmp_path, {"node-1.out": before + block}).collected
    assert (collected.nodes_of_ranks.get(3, ""), collected.pids_of_ranks) == (node, {3: 4411})
