"""Traces of all ranks show who comes last to collectives, how long each rank waits in them, and how busy GPUs are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run.collectives import is_synchronizing, kind_of_kernel
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CPU, Sample
from tests.training_run.builders import result_of
from tests.training_run.recorded import NCCL, Event, all_to_all, event, ten_steps

COMPUTES = [0.50, 0.444, 0.52, 0.47, 0.55, 0.49, 0.51, 0.874]  # of a step, by rank: the last one has most tables
RANKS = range(len(COMPUTES))


def written(folder: Path, traces: dict[int, list[Event]], world: int = 0) -> TrainingRun:
    for rank, events in traces.items():
        info = {"rank": rank, "world_size": world or len(traces)}
        text = json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events})
        (folder / f"trace-{rank}.json").write_text(text, encoding="utf-8")
    return read_run([str(folder)])


def recommending(folder: Path, **how: Any) -> TrainingRun:
    return written(folder, {rank: all_to_all(rank, COMPUTES, **how) for rank in RANKS})


def test_the_rank_that_waits_least_is_the_one_that_others_wait_for(tmp_path: Path) -> None:
    result = result_of("run.comm_exposed", recommending(tmp_path))
    assert result.verdict.value == "concern"
    assert result.message == (
        "others wait for rank 7: only collectives run in 12.6 % of its steps, and in 55.6 % of those of rank 1; "
        "expected at most 20 %"
    )


def test_where_all_wait_alike_the_one_that_waits_longest_is_named(tmp_path: Path) -> None:
    run = written(tmp_path, {rank: all_to_all(rank, [0.5 + rank / 100 for rank in RANKS]) for rank in RANKS})
    assert result_of("run.comm_exposed", run).message.startswith("rank 0: in 50 % of its steps only collectives run")


def test_a_trace_of_few_steps_says_what_it_saw_and_is_incomplete(tmp_path: Path) -> None:
    result = result_of("run.comm_exposed", recommending(tmp_path, steps=4))
    assert result.verdict.value == "incomplete"
    assert result.message.startswith("in 55.6 % of 4 steps of rank 1 only collectives run; expected at least 5 steps")


def test_traces_name_the_rank_that_comes_last_to_collectives(tmp_path: Path) -> None:
    result = result_of("run.last_to_come", recommending(tmp_path, steps=20))
    assert result.verdict.value == "concern"
    assert result.message.startswith(
        "rank 7 comes last to 100 % of 60 collectives of 8 ranks (all, steps 0-19), which wait "
    )


def test_kinds_of_which_none_is_frequent_are_taken_together(tmp_path: Path) -> None:
    message = result_of("run.last_to_come", recommending(tmp_path)).message
    assert message.startswith("rank 7 comes last to 100 % of 24 collectives of 8 ranks (all, steps 0-7)")


def test_too_few_of_each_group_pass_nobody(tmp_path: Path) -> None:
    result = result_of("run.last_to_come", recommending(tmp_path, steps=6))
    assert result.verdict.value == "incomplete"
    assert result.message.startswith("18 collectives that every rank recorded; expected at least 20")


def test_a_rank_last_in_a_few_steps_is_reported_and_nobody_passes(tmp_path: Path) -> None:
    result = result_of("run.last_to_come", recommending(tmp_path, steps=2))
    assert result.verdict.value == "incomplete"
    assert result.message == (
        "rank 7 comes last to 6 of 6 collectives of 8 ranks in fewer than 5 steps of a trace: too few to tell; "
        "expected at least 20: trace more steps, on all ranks"
    )


def test_an_all_to_all_that_is_called_send_recv_is_no_pipeline(tmp_path: Path) -> None:
    computes = [0.5] * 7 + [0.6]
    run = written(tmp_path, {rank: all_to_all(rank, computes, steps=20) for rank in RANKS})
    result = result_of("run.slow_rank", run)
    assert result.verdict.value == "fail"
    assert result.devices == ("rank 7",)


def test_kernels_of_which_nothing_says_that_they_are_an_all_to_all_may_be_of_a_pipeline(tmp_path: Path) -> None:
    run = recommending(tmp_path, steps=20, names_it=False)
    result = result_of("run.slow_rank", run)
    assert (result.verdict.value, "which no trace has" in result.message) == ("incomplete", True)
    assert result_of("run.last_to_come", run).verdict.value == "incomplete"


def named(rank: int, kind: str, kernel: str, *, steps: int = 8, late: int = 2, **more: Any) -> list[Event]:
    """One rank of four whose kernels name their collective: a rank is late to each, at five collectives a step."""
    rows = []
    for step in range(steps):
        rows.append(event(f"ProfilerStep#{step}", 1000.0 * step, 1000, "user_annotation"))
        for place in range(5):
            args: dict[str, Any] = {
                "Collective name": kind,
                "Process Group Name": "3",
                "Process Group Description": "data_parallel",
            }
            args |= {"Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]", **more}
            lasts = 20.0 if rank == late else 150.0
            rows.append(event(kernel, 1000.0 * step + 200 * place + 180 - lasts, lasts, "kernel") | {"args": args})
    return rows


@pytest.mark.parametrize(
    ("kind", "kernel", "is_named"),
    [
        ("allreduce", NCCL, True),
        ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", True),
        ("all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", True),
        ("all_to_all", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("allreduce", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)", True),
        ("broadcast", "ncclDevKernel_Broadcast_RING_LL(x)", False),
        ("allgather", "ncclDevKernel_Broadcast_RING_LL(x)", False),
        ("reduce", "ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", False),
        ("gather", "ncclDevKernel_SendRecv(x)", False),
        ("scatter", "ncclDevKernel_SendRecv(x)", False),
        ("send", "ncclDevKernel_SendRecv(x)", False),
        ("recv", "ncclDevKernel_SendRecv(x)", False),
        ("coalesced", "ncclDevKernel_SendRecv(x)", False),
    ],
)
def test_only_collectives_that_end_together_say_who_came_last(
    tmp_path: Path, kind: str, kernel: str, is_named: bool
) -> None:
    run = written(tmp_path, {rank: named(rank, kind, kernel) for rank in range(4)})
    result = result_of("run.last_to_come", run)
    assert result.verdict.value == ("concern" if is_named else "incomplete"), result.message
    assert ("rank 2 comes last" in result.message) is is_named


def test_collectives_are_matched_by_group_and_number(tmp_path: Path) -> None:
    """Two groups of three; rank 4's traces of its own group say nothing about the other."""
    traces = {}
    for rank in range(6):
        members = [0, 1, 2] if rank < 3 else [3, 4, 5]
        rows = named(rank, "allreduce", NCCL, late=4)
        for number, row in enumerate(row for row in rows if "args" in row):
            row["args"] |= {"Process Group Ranks": str(members), "Group size": 3, "Seq": 700 + number}
        traces[rank] = rows
    result = result_of("run.last_to_come", written(tmp_path, traces))
    assert result.message.startswith(
        "rank 4 comes last to 100 % of 40 collectives of 3 ranks (3 data_parallel [3, 4, 5]), "
    )


@pytest.mark.parametrize("how", ["a rank is missing", "one has more", "other steps", "no rank", "one twice"])
def test_what_cannot_be_matched_names_nobody(tmp_path: Path, how: str) -> None:
    traces = {rank: named(rank, "allreduce", NCCL) for rank in range(4)}
    if how == "a rank is missing":
        del traces[3]
    elif how == "one has more":
        traces[1].append(event(NCCL, 10, 1, "kernel") | {"args": traces[1][1]["args"]})
    elif how == "other steps":
        traces[1] = [recorded | {"name": recorded["name"].replace("Step#", "Step#1")} for recorded in traces[1]]
    elif how == "no rank":
        for rank, events in traces.items():
            (tmp_path / f"{'abcd'[rank]}.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    elif how == "one twice":
        traces[3] = traces[2]
    if how == "no rank":
        run = read_run([str(tmp_path)])
    else:
        run = written(tmp_path, traces)
    if how == "one twice":
        text = (tmp_path / "trace-3.json").read_text(encoding="utf-8").replace('"rank": 3', '"rank": 2')
        (tmp_path / "trace-3.json").write_text(text, encoding="utf-8")
        run = read_run([str(tmp_path)])
    result = result_of("run.last_to_come", run)
    assert result.verdict.value == "incomplete", result.message


def test_ranks_of_which_now_this_one_now_that_one_comes_last_pass(tmp_path: Path) -> None:
    traces = {rank: named(rank, "allreduce", NCCL, late=-1) for rank in range(4)}
    for rank, events in traces.items():
        for number, collective in enumerate(collective for collective in events if "args" in collective):
            collective["dur"] = 30.0 if number % 4 == rank else 150.0
    assert result_of("run.last_to_come", written(tmp_path, traces)).verdict.value == "pass"


def test_a_rank_that_may_be_last_by_chance_is_not_named(tmp_path: Path) -> None:
    """Of three ranks each comes last about a third of the time: three in five of forty prove nothing yet."""
    traces = {rank: named(rank, "allreduce", NCCL, late=-1) for rank in range(3)}
    for rank, events in traces.items():
        for number, collective in enumerate(collective for collective in events if "args" in collective):
            collective["args"] |= {"Process Group Ranks": "[0, 1, 2]", "Group size": 3}
            collective["dur"] = 30.0 if rank == (0, 0, 0, 1, 2)[number % 5] else 150.0
    result = result_of("run.last_to_come", written(tmp_path, traces))
    assert (result.verdict.value, "perhaps by chance" in result.message) == ("incomplete", True)


@pytest.mark.parametrize("sampled", [(), (CPU,)])
def test_gpus_are_as_busy_as_their_kernels_run_where_none_was_sampled(tmp_path: Path, sampled: tuple[str, ...]) -> None:
    run = written(tmp_path, {rank: ten_steps() for rank in range(3)})
    run.data.add([Sample("gpu001", metric, "", 10.0 * at, 50.0) for metric in sampled for at in range(77)], "sar")
    result = result_of("run.gpu_busy", run)
    assert result.verdict.value == "concern"
    assert result.message == (
        "kernels run in 60 % of the steps that were traced, in 60 % of those of rank 0; expected at least 70 %"
    )
    assert result_of("run.gpu_busy", recommending(tmp_path)).verdict.value == "pass"


@pytest.mark.parametrize("how", ["few steps", "no kernels"])
def test_traces_that_do_not_say_how_busy_gpus_are_are_incomplete(tmp_path: Path, how: str) -> None:
    rows = (
        ten_steps()[:20]
        if how == "few steps"
        else [recorded for recorded in ten_steps() if recorded["cat"] != "kernel"]
    )
    result = result_of("run.gpu_busy", written(tmp_path, {0: rows}))
    assert result.verdict.value == "incomplete"
    assert ("expected at least 5: trace more" in result.message) is (how == "few steps")


def test_a_rank_with_one_traced_step_says_nothing_of_how_busy_the_others_are(tmp_path: Path) -> None:
    """Its trace broke off in a step that waited for data."""
    idle = [{**recorded, "dur": 1} if recorded["cat"] == "kernel" else recorded for recorded in ten_steps()[:5]]
    run = written(tmp_path, {0: ten_steps(alone=300), 1: idle})
    result = result_of("run.gpu_busy", run)
    assert result.verdict.value == "incomplete"
    assert result.message == (
        "kernels run in 0 % of the steps that were traced, in 0 % of those of rank 1, of 1 step; "
        "expected at least 5: trace more of them"
    )


@pytest.mark.parametrize(
    ("name", "together"),
    [
        *(
            (name, True)
            for name in ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "all_to_allv", "nccl:barrier")
        ),
        *(
            (name, False)
            for name in ("Broadcast", "Reduce", "reduce", "Gather", "Scatter", "Send", "Recv", "SendRecv", "")
        ),
    ],
)
def test_kinds_are_known_by_any_of_their_names(name: str, together: bool) -> None:
    assert is_synchronizing(name) is together


def test_a_gather_that_is_made_of_broadcasts_is_one_by_its_kernel() -> None:
    assert kind_of_kernel("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", "allgather") == "Broadcast"
