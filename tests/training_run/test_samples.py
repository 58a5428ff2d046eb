"""Folders of SageMaker's profiler, and what is said of how busy their GPUs were."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.samples import CPU, GPU, gpus
from tests.training_run.builders import labelled, said
from tests.training_run.sampled import line, readings, sampled

OF_GPUS = ("run.gpu_busy", "run.gpu_fluctuates", "run.load_balance", "run.cpu_bound", "run.io_bound")


@pytest.mark.long
def test_a_folder_of_the_profiler_is_read_hour_by_hour_and_node_by_node(tmp_path: Path) -> None:
    every = list(readings())
    for node in ("algo-1", "algo-2"):
        folder = tmp_path / "profiler-output" / "system" / "incremental" / "2020060305"
        folder.mkdir(parents=True, exist_ok=True)
        for number in (0, 1):
            part = [line(one) for one in every if one.node == node][number::2]
            (folder / f"159116000{number}.{node}.json").write_text("".join(part), encoding="utf-8")
    run = read_run([str(tmp_path / "profiler-output")])
    assert [gpu.name for gpu in run.sampled.gpus] == [f"algo-{node} gpu{gpu}" for node in (1, 2) for gpu in range(4)]
    assert {said(check, run).verdict.value for check in OF_GPUS} == {"pass"}


def test_real_metrics_are_read_and_a_line_that_was_cut_costs_itself_only() -> None:
    whole = read_run([str(labelled("sagemaker/1591160699.algo-1.json"))]).data.samples
    cut = read_run([str(labelled("sagemaker/1591160699.algo-1.json.corrupt"))]).data.samples
    lost = {key: set(series) - set(cut.series.get(key, ())) for key, series in whole.series.items()}
    assert {key: len(times) for key, times in lost.items() if times} == {("memory", "algo-1", "gpu1"): 1}
    assert {device for _, device in whole.of(GPU)} == {"gpu0", "gpu1"}


def test_two_readings_in_three_hours_prove_nothing() -> None:
    result = said("run.gpu_busy", read_run([str(labelled("sagemaker/1591160699.algo-1.json"))]))
    assert result.verdict.value == "incomplete"
    assert "expected at least 30 times and 5 minutes" in result.message


def test_a_job_without_gpus_is_not_applicable_and_never_green() -> None:
    run = read_run([str(labelled("sagemaker/1591748100.algo-1.json"))])
    assert {said(check, run).verdict.value for check in OF_GPUS} == {"not applicable"}


def test_gpus_that_idle_before_the_run_begins_do_not_count() -> None:
    run = sampled(lambda _node, _gpu, time_s: 0.0 if time_s < 200 else 92.0)
    assert said("run.gpu_busy", run).verdict.value == said("run.gpu_fluctuates", run).verdict.value == "pass"


def test_saturated_gpus_count_too() -> None:
    run = sampled(lambda node, _gpu, _time: 100.0 if node == 1 else 80.0)
    assert said("run.load_balance", run).verdict.value == "pass"
    assert said("run.load_balance", sampled(lambda node, *_: 100.0 if node == 1 else 60.0)).verdict.value == "concern"


def test_each_second_counts_the_same_however_often_it_was_sampled() -> None:
    run = sampled()
    for series in run.data.samples.of(GPU).values():
        first = series[min(series)]
        first.count *= 1000
        first.total *= 1000
    assert all(90 < gpu.percent < 94 for gpu in gpus(run.data.samples))


def test_one_busy_cpu_of_many_is_no_bottleneck() -> None:
    run = sampled(lambda *_: 40.0, cpu=lambda _node, cpu, _time: 100.0 if cpu == 0 else 5.0)
    assert said("run.cpu_bound", run).verdict.value == "pass"


def test_without_samples_of_cpus_it_is_not_known_what_gpus_wait_for() -> None:
    run = sampled(lambda *_: 40.0)
    for key in [key for key in run.data.samples.series if key[0] == CPU]:
        del run.data.samples.series[key]
    assert said("run.cpu_bound", run).message.startswith("no file records cpu beside the GPUs")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"NodeId"', '"Node"', "is not a metric; expected"),
        ('"Value": ', '"Value": 9', "Value is 9"),
        ('"Value": ', '"Value": "high", "x": ', "Value is 'high'; expected a number"),
        ('"algo-1"', '""', "NodeId is ''; expected a name"),
        ("{", "", "is not JSON; expected"),
    ],
)
def test_a_wrong_line_is_one_error_with_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    rows = [line(one) for one in islice(readings(), 20)]
    rows[3] = rows[3].replace(old, new, 1)
    (tmp_path / "1.algo-1.json").write_text("".join(rows), encoding="utf-8")
    with pytest.raises(RunError) as wrong:
        read_run([str(tmp_path)])
    assert str(wrong.value).startswith(f"{tmp_path}/1.algo-1.json:4: ")
    assert words in str(wrong.value)
