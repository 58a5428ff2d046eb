"""Traces as versions of PyTorch, ROCm and SageMaker have written them, including almost-JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run.files import RunFile
from clusterproof.plugins.training_run.formats.json_items import Events
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.rules.phases import phases
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import labelled, result_of
from tests.training_run.recorded import event, ten_steps, trace

TEN = ten_steps()
INFO = {"distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8}}


def read(folder: Path, text: str | bytes, name: str = "trace.json") -> TrainingRun:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run([str(path)])


@pytest.mark.parametrize(
    "data",
    [
        {"schemaVersion": 1, "deviceProperties": [], **INFO, "traceEvents": TEN},
        {"traceEvents": TEN, **INFO, "traceName": "/tmp/fit-profiler-[Strategy]SingleDevice.pt.trace.json"},
        {"metadata": {"properties": ["x" * 100_000]}, **INFO, "traceEvents": TEN, "schemaVersion": 1},
        {**INFO, "traceEvents": TEN[::-1]},
    ],
    ids=["schemaVersion first", "events first", "metadata first", "newest event first"],
)
def test_keys_and_events_may_stand_in_any_order(tmp_path: Path, data: dict[str, Any]) -> None:
    run = read(tmp_path, json.dumps(data))
    assert {rank: len(steps) for rank, steps in run.data.steps.items()} == {5: 10}
    assert run.data.notes == []


# Profilers' output that is not JSON: pytorch/pytorch#98432 and pytorch/kineto#336 (Windows), pytorch/kineto#131,
# pytorch/pytorch#130622 and #136180 (control characters, bytes that are no UTF-8).
@pytest.mark.parametrize(
    "wrong",
    [
        rb'{"ph": "X", "cat": "python_function", "name": "torch\cuda\__init__.py(219): _lazy_init", "ts": 1, "dur": 1}',
        rb'{"ph": "X", "cat": "python_function", "name": "C:\users\model.py", "ts": 1, "dur": 1, "args": {"a": "\""}}',
        rb'{"ph": "X", "cat": "cpu_op", "name": "to", "ts": 1, "dur": 1, "args": {"x": N/A, "y": -nan, "z": inf}}',
        b'{"ph": "X", "cat": "python_function", "name": "config.py(0): \x01\x1b\n", "ts": 1, "dur": 1}',
        b'{"ph": "X", "cat": "python_function", "name": "config.py(0): \xff\xfe", "ts": 1, "dur": 1}',
        b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1, "args": {"x": NaN, "y": [Infinity]}}',
    ],
)
def test_an_event_that_is_not_quite_json_costs_no_other(tmp_path: Path, wrong: bytes) -> None:
    whole = trace(TEN, rank=5).encode()
    at = whole.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    for content in (whole[:at] + wrong + b",\n" + whole[at:], whole[:-2] + b",\n" + wrong + b"]}"):
        assert set(read(tmp_path, content).data.steps[5]) == set(range(10))


@pytest.mark.parametrize("size", [100, 1_000, 65_500, 65_530, 70_000])
def test_neither_does_one_that_begins_where_a_piece_of_the_file_ends(tmp_path: Path, size: int) -> None:
    first = r'{"name": "' + "x" * size + r'", "ph": "M"}, {"name": "a\b\c\q\n\u12\users\"", "ph": "M"}'
    (tmp_path / "trace.json").write_text(
        '{"traceEvents": [' + f"{first}, " * 5 + '{"name": "last"}]}', encoding="utf-8"
    )
    names = [entry["name"] for entry in Events(RunFile(tmp_path / "trace.json"))]
    assert len(names) == 11
    assert set(names[1::2]) == {'a\b\\c\\q\n\\u12\\users"'}


def test_several_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"host_{rank}.pt.trace.json.gz").write_bytes(gzip.compress(trace(TEN, rank=rank).encode()))
    run = read_run([str(tmp_path)])
    assert set(run.data.positions) == {0, 1, 2}
    assert len(run.data.files) == 3


def computing(folder: Path, *more: str) -> TrainingRun:
    """Traces of five ranks, one of which computes 1.3 times as long, with additional kernels of these names."""
    for rank in range(5):
        lasts = 650 if rank == 3 else 500
        events = [
            logged_event
            for number in range(30)
            for logged_event in (
                event(f"ProfilerStep#{number}", 1000.0 * number, 1000, "user_annotation"),
                event("gemm", 1000.0 * number + 10, lasts + (7 * number + rank) % 5, "kernel"),
                *(event(name, 1000.0 * number + 700, 900 - lasts, "kernel") for name in more),
            )
        ]
        (folder / f"rank{rank}.json").write_text(trace(events, rank=rank), encoding="utf-8")
    return read_run([str(folder)])


@pytest.mark.parametrize(
    "other", ["ncclDevKernel_AllReduce_Sum_bf16", "void vllm::cross_device_reduce_1stage<c10::Half, 4>"]
)
def test_a_slow_gpu_is_named_by_its_kernels_and_none_by_those_that_wait_for_it(tmp_path: Path, other: str) -> None:
    result = result_of("run.slow_rank", computing(tmp_path, other))
    assert result.verdict.value == "fail"
    assert result.devices == ("rank 3",)


def test_nobody_is_named_where_ranks_may_be_of_several_pipeline_stages(tmp_path: Path) -> None:
    run = computing(tmp_path, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    assert result_of("run.slow_rank", run).verdict.value == "incomplete"
    assert {phase.name for phase in phases(run.data)} == {"compute", "communication", "other"}


@pytest.mark.parametrize("tail", [b"\0" * 512, b"garbage", b"\x1f"])
def test_what_stands_behind_the_end_of_a_packed_file_changes_nothing(tmp_path: Path, tail: bytes) -> None:
    run = read(tmp_path, gzip.compress(trace(TEN, rank=5).encode()) + tail)
    assert set(run.data.steps[5]) == set(range(10))


@pytest.mark.parametrize("name", ["Cijk_Ailk_Bljk_BBS_MT128x128", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)"])
def test_kernels_of_rocm_are_compute_and_those_of_rccl_are_not(tmp_path: Path, name: str) -> None:
    events = [
        event("ProfilerStep#1", 0, 1000, "user_annotation"),
        event(name, 100, 600, "kernel"),
    ]
    parts = read(tmp_path, trace(events, rank=0)).data.parts
    assert round(parts[0, "exposed communication"][1][0] * 1e6) == (600 if "nccl" in name else 0)


def test_steps_of_sagemakers_timeline_are_read(tmp_path: Path) -> None:
    """As smdebug wrote framework/pevents/…_pythontimeline.json for PyTorch and TensorFlow."""
    rows: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}}
    ]
    rows += [
        {
            "name": "Step:ModeKeys.TRAIN",
            "pid": 1,
            "ph": "X",
            "ts": 90_000 * step,
            "dur": 84_000,
            "args": {"step_num": str(step)},
        }
        for step in range(1, 9)
    ]
    run = read(
        tmp_path, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", "1594662624718694_905-x_pythontimeline.json"
    )
    assert {step: round(seconds, 3) for step, (seconds, _) in run.data.steps[0].items()} == dict.fromkeys(
        range(1, 9), 0.084
    )


def test_what_sagemakers_timeline_says_of_getting_the_next_batch_is_counted(tmp_path: Path) -> None:
    timeline = labelled("sagemaker/1594662624558411_905-b88ab1bb8259_model_timeline.json")
    spent = read_run([str(timeline)]).data.spent
    assert {name: times for (_, name), (_, times) in spent.items()} == {
        "dataset::GetNext": 621,
        "IteratorGetNextOp::DoCompute": 40,
    }
    step = {"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 0, "dur": 1000, "args": {"step_num": "1"}}
    waits = {"name": "IteratorGetNextOp::DoCompute", "pid": 1, "ph": "X", "ts": 100, "dur": 300}
    run = read(tmp_path, json.dumps([step, waits]))
    assert round(run.data.parts[0, "data"][1][0] * 1e6) == 300


def test_a_trace_without_a_run_is_reported_as_such(tmp_path: Path) -> None:
    run = read(tmp_path, trace([{"ph": "M", "name": "process_name"}], rank=0))
    assert run.data.notes == [f"nothing of a run in: {tmp_path}/trace.json"]


def test_kernels_and_operators_are_counted(tmp_path: Path) -> None:
    events = [event("gemm", 100 * number, 50, "kernel") for number in range(4)]
    events += [event("aten::mm", 100 * number, 80, "cpu_op") for number in range(4)]
    spent = read(tmp_path, trace(events, rank=0)).data.spent
    assert {key: (round(1e6 * seconds), times) for key, (seconds, times) in spent.items()} == {
        ("kernel", "gemm"): (200, 4),
        ("operator", "aten::mm"): (320, 4),
    }
