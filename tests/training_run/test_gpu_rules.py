"""Findings on GPUs' memory and clocks, and on GPUs that only wait."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import pytest

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run import samples as of_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import Sample, Samples
from tests.training_run.builders import result_of
from tests.training_run.watched import BEGAN_S, Change, as_ever, leaking, of_every_gpu, of_gpu, readings, stuck, watched


def verdict(check: str, run: TrainingRun) -> str:
    return result_of(check, run).verdict.value


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "change", "expected"),
    [
        ("grows from the start on", leaking(35.0), "fail"),
        ("grows slowly while there is much room", leaking(0.5, begins=20.0), "pass"),
        ("fills up and stays full", leaking(600.0, begins=20.0, until_s=450), "pass"),
        ("jumps once in the middle", leaking(30_000.0, begins=40.0, after_s=1500, until_s=1505), "pass"),
        ("has stopped growing", leaking(60.0, begins=40.0, until_s=1800), "pass"),
    ],
)
def test_memory_that_grows_is_distinguished_from_what_has_grown(what: str, change: Change, expected: str) -> None:
    assert verdict("run.gpu_memory_growth", watched(change)) == expected, what


def test_many_gpus_whose_memory_grows_are_counted() -> None:
    data = RunData()
    every = ((metric, at, gpu) for metric in (of_run.GPU, of_run.MEMORY) for at in range(90) for gpu in range(12))
    data.add((Sample("gpu001", metric, f"gpu{gpu}", 60.0 * at, 50.0 + at / 4) for metric, at, gpu in every), "made up")
    message = result_of("run.gpu_memory_growth", TrainingRun("made-up", data)).message
    assert message.count("points more each hour") == 8
    assert ", and 4 more; expected memory that does not grow" in message


@pytest.mark.long
def test_noise_of_memory_is_no_growth() -> None:
    def noisy(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        return {of_run.MEMORY: 60 + (hash((node, gpu, time_s)) % 400) / 10} if gpu >= 0 else {}

    assert verdict("run.gpu_memory_growth", watched(noisy)) == "pass"


@pytest.mark.long
def test_a_batch_is_not_said_to_be_small_where_the_gpus_wait_for_cpus() -> None:
    def waits(node: str, gpu: int, _time_s: float) -> Mapping[str, float]:
        slow = {of_run.GPU: 30.0, of_run.MEMORY: 25.0, of_run.TENSOR: 9.0}
        return slow if gpu >= 0 else {of_run.CPU_PRESSURE: 60.0}

    run = watched(waits)
    assert (verdict("run.batch_size", run), verdict("run.cpu_bound", run)) == ("pass", "concern")


@pytest.mark.long
def test_without_tensor_cores_sampled_the_batch_is_judged_by_use_memory_and_cpus_if_these_are() -> None:
    assert result_of("run.batch_size", watched(without=(of_run.TENSOR,))).verdict.value == "pass"
    result = result_of("run.batch_size", watched(without=(of_run.TENSOR, of_run.CPU)))
    assert result.verdict.value == "incomplete"
    assert "GPM, on Hopper and later" in result.message


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "change", "expected"),
    [
        ("lower clocks and nothing that holds them down", {"clock": 1_200.0, "power_cap": 0.0}, "pass"),
        ("the hardware's slowdown without lower clocks", {"hardware_slowdown": 5.0}, "pass"),
        ("idle, so its clock says nothing", {"gpu": 20.0, "clock": 600.0, "hardware_slowdown": 5.0}, "pass"),
        ("lower clocks by heat", {"clock": 1_600.0, "hardware_slowdown": 5.0}, "fail"),
    ],
)
def test_a_clock_is_slow_beside_busy_peers_and_where_something_holds_it(
    what: str, change: Mapping[str, float], expected: str
) -> None:
    assert verdict("run.slow_clock", watched(of_gpu("gpu001", 1, **change))) == expected, what


@pytest.mark.long
def test_a_power_cap_on_all_gpus_alike_is_nothing() -> None:
    assert verdict("run.slow_clock", watched(of_every_gpu(clock=1_300.0, power_cap=95.0))) == "pass"


@pytest.mark.long
@pytest.mark.parametrize("without", [(), (of_run.CLOCK,)])
@pytest.mark.parametrize("healthy", [0, 1, 3])
def test_gpus_that_hardware_slows_down_with_most_others_are_named_though_nothing_is_left_to_compare_with(
    healthy: int, without: tuple[str, ...]
) -> None:
    def change(node: str, gpu: int, _time_s: float) -> Mapping[str, float]:
        is_slowed = gpu >= (healthy if node == "gpu001" else 0)
        return {of_run.CLOCK: 1_200.0, of_run.SLOWED: 100.0} if is_slowed else {}

    result = result_of("run.slow_clock", watched(change, without=without))
    first = "gpu001 gpu3" if healthy else "gpu001 gpu0"
    assert result.verdict.value == "fail", result.message
    assert f"{first} busy for 60 min, slowed by hardware 100 % of it" in result.message
    assert all(f"gpu001 gpu{index} busy" not in result.message for index in range(healthy))


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "change", "verdict_of_fault"),
    [
        ("run.slow_clock", of_gpu("gpu001", 2, clock=1_200.0, hardware_slowdown=60.0), "fail"),
        ("run.gpu_memory_growth", leaking(35.0), "fail"),
        ("run.load_balance", of_gpu("gpu001", 2, gpu=20.0), "concern"),
        ("run.gpu_busy", of_every_gpu(gpu=40.0), "concern"),
    ],
)
def test_a_node_that_was_sampled_for_three_minutes_hides_nothing_of_the_others_and_does_not_pass(
    check: str, change: Change, verdict_of_fault: str
) -> None:
    for of_run_, expected in ((change, verdict_of_fault), (as_ever, "incomplete")):
        late = (
            replace(reading, node="gpu009")
            for reading in readings()
            if reading.node == "gpu002" and reading.time_s > BEGAN_S + 3_420
        )
        data = RunData()
        data.add(chain(readings(of_run_), late), "made up")
        result = result_of(check, TrainingRun("made-up", data))
        assert result.verdict.value == expected, result.message
        assert expected != "incomplete" or "gpu009 gpu0" in result.message, result.message


@pytest.mark.long
def test_a_clock_that_is_low_for_four_minutes_is_nothing() -> None:
    def briefly(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        is_slow = (node, gpu) == ("gpu001", 0) and time_s % 600 < 240
        return {of_run.CLOCK: 900.0, of_run.SLOWED: 80.0} if is_slow else {}

    assert verdict("run.slow_clock", watched(briefly)) == "pass"


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("traffic over NVLink", {of_run.LINK: 900.0}),
        ("work of the tensor cores", {of_run.TENSOR: 20.0}),
        ("as much power as computing takes", {of_run.POWER: 80.0}),
        ("less than full use", {of_run.GPU: 90.0}),
    ],
)
def test_gpus_that_do_anything_do_not_hang(what: str, other: Mapping[str, float]) -> None:
    def change(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        return {**stuck(node, gpu, time_s), **(other if gpu >= 0 else {})}

    assert verdict("run.hung", watched(change)) == "pass", what


@pytest.mark.long
def test_one_gpu_that_computes_is_enough_for_a_run_not_to_hang() -> None:
    def change(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        return {} if (node, gpu) == ("gpu002", 3) else stuck(node, gpu, time_s)

    assert verdict("run.hung", watched(change)) == "pass"


@pytest.mark.long
def test_an_evaluation_of_nine_minutes_on_no_gpu_is_no_hang() -> None:
    def change(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        return stuck(node, gpu, time_s) if 600 <= time_s < 1140 else {}

    assert verdict("run.hung", watched(change)) == "pass"


@pytest.mark.long
def test_power_and_the_network_show_hanging_where_there_is_no_gpm() -> None:
    assert verdict("run.hung", watched(stuck, without=(of_run.TENSOR, of_run.LINK))) == "fail"
    lacking = result_of("run.hung", watched(stuck, without=(of_run.TENSOR, of_run.LINK, of_run.NETWORK)))
    assert lacking.verdict.value == "incomplete"


@pytest.mark.long
def test_samples_of_any_length_take_as_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_run, "MAX_BINS", 5_000)
    samples = Samples()
    for reading in readings(minutes=60):
        samples.add(reading)
        assert samples.bins <= 5_000
    assert samples.bin_s > of_run.BIN_S
    data = RunData(samples=samples)
    with pytest.raises(RunError, match="more than 5,000 things were sampled"):
        data.add((Sample("gpu001", of_run.GPU, f"gpu{number}", 0.0, 1.0) for number in range(5_001)), "made up")


@pytest.mark.long
def test_stretches_that_are_made_longer_lose_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_run, "MAX_BINS", 5_000)
    samples = Samples()
    for reading in readings(minutes=60):
        samples.add(reading)
    assert sum(cell.count for series in samples.series.values() for cell in series.values()) == 360 * 2 * 37


def heated_behind_a_cap(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
    """The power cap holds one GPU for half an hour; then, for ten minutes, heat."""
    if (node, gpu) != ("gpu001", 1) or not (time_s < 1_800 or 2_400 <= time_s < 3_000):
        return {}
    is_hot = time_s >= 2_400
    return {of_run.CLOCK: 1_200.0, of_run.CAPPED: 0.0 if is_hot else 90.0, of_run.SLOWED: 60.0 if is_hot else 0.0}


def test_a_long_time_at_the_power_cap_does_not_hide_a_shorter_one_of_heat() -> None:
    result = result_of("run.slow_clock", watched(heated_behind_a_cap))
    assert result.verdict.value == "fail", result.message
    assert "gpu001 gpu1 at 0.69 of its peers' clock for 10 min, slowed by hardware 60 % of it" in result.message


@pytest.mark.parametrize(
    ("check", "metric", "words"),
    [
        ("run.slow_clock", of_run.CLOCK, "the clock of gpu002 gpu3"),
        ("run.gpu_memory_growth", of_run.MEMORY, "the memory of gpu002 gpu3"),
        ("run.cpu_bound", of_run.CPU, "the CPUs of gpu002"),
        ("run.io_bound", of_run.IO_WAIT, "the wait for I/O of gpu002"),
    ],
)
def test_a_gpu_or_node_of_which_a_metric_was_not_sampled_does_not_pass(check: str, metric: str, words: str) -> None:
    data = RunData()
    lacking = {of_run.CPU: (of_run.CPU, of_run.CPU_PRESSURE), of_run.IO_WAIT: (of_run.IO_WAIT, of_run.IO_PRESSURE)}
    left_out = {("gpu002", of, device) for of in lacking.get(metric, (metric,)) for device in ("gpu3", "")}
    every = (seen for seen in readings() if (seen.node, seen.metric, seen.device) not in left_out)
    data.add(every, "made up")
    result = result_of(check, TrainingRun("made-up", data))
    assert (result.verdict.value, words in result.message) == ("incomplete", True), result.message


def test_gpus_that_only_wait_are_seen_though_each_node_has_sampled_it_by_another_metric() -> None:
    """One node's driver has no GPM, and the other's power limit could not be read."""
    lacking = {("gpu001", of_run.TENSOR), ("gpu001", of_run.LINK), ("gpu002", of_run.POWER)}
    run = TrainingRun("made-up", RunData())
    run.data.add((seen for seen in readings(stuck) if (seen.node, seen.metric) not in lacking), "made up")
    assert verdict("run.hung", run) == "fail"
