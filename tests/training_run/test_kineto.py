"""Traces of PyTorch's profiler, parsed event by event: steps, waits for data, collectives that run alone."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.formats.kineto import union, within, without
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import labelled, result_of
from tests.training_run.recorded import Event, event, step_events, ten_steps, trace


def read(folder: Path, text: str | bytes) -> TrainingRun:
    path = folder / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run([str(path)])


@pytest.mark.long
def test_a_loader_without_workers_is_found_in_a_real_trace() -> None:
    run = read_run([str(labelled("kineto/resnet50_num_workers_0.pt.trace.json.gz"))])
    result = result_of("run.data_wait", run)
    assert result.message == "rank 0 waits for data for 33.9 % of its steps; expected at most 5 %"
    assert result_of("run.comm_exposed", run).verdict.value == "not applicable"


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "ranks", "verdict"),
    [
        ("hta/control.json.gz", {3}, "pass"),
        ("hta/sampled_rank-0.json.gz", {0}, "incomplete"),  # two steps
        ("hta/sampled_rank-1.json.gz", {1}, "incomplete"),
        ("hta/nccl_data.json.gz", {0}, "incomplete"),  # three
        ("tracelens/b200-eager_trace.json.gz", {0}, "incomplete"),  # no step is marked
    ],
)
def test_real_traces_of_jobs_have_their_collectives(file: str, ranks: set[int], verdict: str) -> None:
    run = read_run([str(labelled(file))])
    assert set(run.data.positions) == ranks
    assert result_of("run.comm_exposed", run).verdict.value == verdict


def test_steps_the_wait_for_data_and_what_is_not_hidden_are_read(tmp_path: Path) -> None:
    run = read(tmp_path, trace(ten_steps(loading=200, alone=300)))
    assert set(run.data.positions) == {3}
    assert {step: round(seconds, 6) for step, (seconds, _) in run.data.steps[3].items()} == dict.fromkeys(
        range(10), 0.001
    )
    assert result_of("run.data_wait", run).message.startswith("rank 3 waits for data for 10")  # then a kernel runs
    assert result_of("run.comm_exposed", run).message.startswith("rank 3: in 30")


def test_traces_that_do_not_say_their_rank_are_of_no_rank(tmp_path: Path) -> None:
    for number in range(8):
        text = trace(ten_steps(alone=300)).replace("distributedInfo", "otherInfo")
        (tmp_path / f"gpu001_{4000 + number}.170000000.pt.trace.json").write_text(text, encoding="utf-8")
    run = read_run([str(tmp_path)])
    for check in ("run.slow_rank", "run.stragglers"):
        result = result_of(check, run)
        assert result.verdict.value == "incomplete"
        assert result.message.startswith("8 files do not say their rank, neither in themselves nor in their names")
    assert result_of("run.comm_exposed", run).message.startswith("a rank that its files do not name: in 30")
    alone = read_run([str(tmp_path / "gpu001_4000.170000000.pt.trace.json")])
    assert result_of("run.comm_exposed", alone).message.startswith("rank 0: in 30")


def test_a_healthy_trace_passes(tmp_path: Path) -> None:
    run = read(tmp_path, gzip.compress(trace(ten_steps(loading=10, alone=50)).encode()))
    assert result_of("run.data_wait", run).verdict.value == result_of("run.comm_exposed", run).verdict.value == "pass"


def test_a_reduction_that_is_a_kernel_of_pytorch_is_compute(tmp_path: Path) -> None:
    run = read(tmp_path, trace(ten_steps(compute="void at::native::reduce_kernel<512, 1>", alone=50)))
    assert result_of("run.comm_exposed", run).verdict.value == "pass"


def test_a_trace_without_a_loader_does_not_say_that_nothing_waits_for_data(tmp_path: Path) -> None:
    run = read(tmp_path, trace(recorded for recorded in ten_steps() if "DataLoader" not in recorded["name"]))
    assert result_of("run.data_wait", run).verdict.value == "incomplete"


def test_a_trace_without_steps_is_one_step(tmp_path: Path) -> None:
    run = read(tmp_path, trace(recorded for recorded in ten_steps() if "ProfilerStep" not in recorded["name"]))
    assert list(run.data.steps[3]) == [0]


def test_the_written_part_of_a_truncated_trace_is_read(tmp_path: Path) -> None:
    text = trace(ten_steps(loading=200))
    for content in (text[: len(text) * 2 // 3].encode(), gzip.compress(text.encode())[:-40]):
        assert len(read(tmp_path, content).data.steps[3]) >= 5
    assert read(tmp_path, text[: len(text) // 2]).data.notes == [f"cut: {tmp_path}/trace.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (trace(ten_steps()).replace('"dur": 500', '"dur": "long"'), "event 4: dur is 'long'; expected a number"),
        (trace(ten_steps()).replace('"dur": 500', '"dur": -1'), "event 4: dur is -1; expected a duration of 0 or more"),
        ('{"schemaVersion": 1, "deviceProperties": []}', "no traceEvents; expected a trace of PyTorch's profiler"),
        ('{"traceEvents": [' + "[" * 100_000, "event 0: it is nested too deeply"),
        ('{"traceEvents": [{"ts": ' + "9" * 5_000 + "}]}", "event 0: a number is too long"),
        ('{"traceEvents": [{"a": 1}, nonsense ' + " " * 2_000_000, "event 1: 'nonsense "),
    ],
)
def test_what_is_wrong_in_a_trace_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RunError) as wrong:
        read(tmp_path, text)
    assert words in str(wrong.value)


@pytest.mark.parametrize("events", [[7, None, "x", [], {}, {"ph": "X"}, {"ph": "X", "name": 7, "cat": "kernel"}]])
def test_events_of_other_kinds_are_passed_over(tmp_path: Path, events: list[Any]) -> None:
    assert read(tmp_path, trace([*events, *ten_steps()])).data.steps[3].keys() == set(range(10))


@pytest.mark.long
def test_memory_stays_flat_however_long_the_trace_is(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        others = [event("aten::add", number, 1, "cpu_op") for number in range(count)]
        (tmp_path / "trace.json").write_text(trace([*others, *ten_steps()]))
        tracemalloc.start()
        read_run([str(tmp_path / "trace.json")])
        used_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used_bytes

    assert peak(20_000) < peak(2_000) + 200_000


STRETCHES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda stretch: (stretch[0], stretch[0] + stretch[1]))
)


@given(STRETCHES, STRETCHES)
def test_what_others_leave_free_is_what_no_second_of_theirs_covers(
    own: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    def seconds(of: list[tuple[float, float]]) -> set[int]:
        return {second for start, end in of for second in range(int(start), int(end))}

    left = without(union(own), union(others))
    assert seconds(left) == seconds(own) - seconds(others)
    assert within(left, 10, 30) == len(seconds(left) & set(range(10, 30)))


def test_a_wait_for_data_beside_kernels_that_run_costs_nothing(tmp_path: Path) -> None:
    def events(begins: float) -> list[Event]:
        steps = [list(step_events(number, loading=300)) for number in range(40)]
        for number, step in enumerate(steps):
            step[3] = event("gemm", 1000.0 * number + begins, 1000 - begins, "kernel")
        return [stretch for step in steps for stretch in step]

    assert result_of("run.data_wait", read(tmp_path, trace(events(0)))).verdict.value == "pass"
    assert result_of("run.data_wait", read(tmp_path, trace(events(300)))).message.startswith(
        "rank 3 waits for data for 30"
    )
