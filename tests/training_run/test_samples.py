"""Folders of SageMaker's profiler, GPU utilization, and samples from before or after a run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CPU, GPU, gpus
from tests.training_run.builders import labelled, result_of
from tests.training_run.sampled import line, readings, sampled

OF_GPUS = ("run.gpu_busy", "run.gpu_fluctuates", "run.load_balance", "run.cpu_bound", "run.io_bound")


@pytest.mark.long
def test_a_folder_of_the_profiler_is_read_hour_by_hour_and_node_by_node(tmp_path: Path) -> None:
    every = list(readings())
    for node in ("algo-1", "algo-2"):
        folder = tmp_path / "profiler-output" / "system" / "incremental" / "2020060305"
        folder.mkdir(parents=True, exist_ok=True)
        for number in (0, 1):
            part = [line(sample) for sample in every if sample.node == node][number::2]
            (folder / f"159116000{number}.{node}.json").write_text("".join(part), encoding="utf-8")
    run = read_run([str(tmp_path / "profiler-output")])
    assert [gpu.name for gpu in run.sampled.gpus] == [f"algo-{node} gpu{gpu}" for node in (1, 2) for gpu in range(4)]
    assert {result_of(check, run).verdict.value for check in OF_GPUS} == {"pass"}


def test_real_metrics_are_read_and_a_line_that_was_cut_costs_itself_only() -> None:
    whole = read_run([str(labelled("sagemaker/1591160699.algo-1.json"))]).data.samples
    cut = read_run([str(labelled("sagemaker/1591160699.algo-1.json.corrupt"))]).data.samples
    lost = {key: set(series) - set(cut.series.get(key, ())) for key, series in whole.series.items()}
    assert {key: len(times) for key, times in lost.items() if times} == {("memory", "algo-1", "gpu1"): 1}
    assert {device for _, device in whole.of(GPU)} == {"gpu0", "gpu1"}


def test_two_readings_in_three_hours_prove_nothing() -> None:
    result = result_of("run.gpu_busy", read_run([str(labelled("sagemaker/1591160699.algo-1.json"))]))
    assert result.verdict.value == "incomplete"
    assert "expected at least 30 times and 5 minutes" in result.message


def test_a_job_without_gpus_is_not_applicable_and_never_green() -> None:
    run = read_run([str(labelled("sagemaker/1591748100.algo-1.json"))])
    assert {result_of(check, run).verdict.value for check in OF_GPUS} == {"not applicable"}


def test_gpus_that_idle_before_the_run_begins_do_not_count() -> None:
    run = sampled(lambda _node, _gpu, time_s: 0.0 if time_s < 200 else 92.0)
    assert result_of("run.gpu_busy", run).verdict.value == result_of("run.gpu_fluctuates", run).verdict.value == "pass"


def test_saturated_gpus_count_too() -> None:
    run = sampled(lambda node, _gpu, _time: 100.0 if node == 1 else 80.0)
    assert result_of("run.load_balance", run).verdict.value == "pass"
    assert (
        result_of("run.load_balance", sampled(lambda node, *_: 100.0 if node == 1 else 60.0)).verdict.value == "concern"
    )


def test_each_second_counts_the_same_however_often_it_was_sampled() -> None:
    run = sampled()
    for series in run.data.samples.of(GPU).values():
        first = series[min(series)]
        first.count *= 1000
        first.total *= 1000
    assert all(90 < gpu.percent < 94 for gpu in gpus(run.data.samples))


def test_one_busy_cpu_of_many_is_no_bottleneck() -> None:
    run = sampled(lambda *_: 40.0, cpu=lambda _node, cpu, _time: 100.0 if cpu == 0 else 5.0)
    assert result_of("run.cpu_bound", run).verdict.value == "pass"


def test_without_samples_of_cpus_it_is_not_known_what_gpus_wait_for() -> None:
    run = sampled(lambda *_: 40.0)
    for key in [key for key in run.data.samples.series if key[0] == CPU]:
        del run.data.samples.series[key]
    assert result_of("run.cpu_bound", run).message.startswith("no file records cpu beside the GPUs")


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
    rows = [line(sample) for sample in islice(readings(), 20)]
    rows[3] = rows[3].replace(old, new, 1)
    (tmp_path / "1.algo-1.json").write_text("".join(rows), encoding="utf-8")
    with pytest.raises(RunError) as wrong:
        read_run([str(tmp_path)])
    assert str(wrong.value).startswith(f"{tmp_path}/1.algo-1.json:4: ")
    assert words in str(wrong.value)


HEAD = "timestamp, index, utilization.gpu [%]"
DMON = "# gpu     sm\n# Idx      %\n"
OF_USE = ("run.gpu_busy", "run.gpu_fluctuates", "run.load_balance")


def smi(sampled: int, used: int) -> str:
    """Minutes of two GPUs, used in the first of them."""
    rows = [
        f"2026/11/23 {1 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000, {gpu}, "
        f"{96 if second < 60 * used else 0} %"
        for second in range(0, 60 * sampled, 10)
        for gpu in range(2)
    ]
    return "\n".join([HEAD, *rows]) + "\n"


def dmon(idle: int, used: int) -> str:
    """Minutes without a start time."""
    return DMON + "".join(
        f"    {gpu}     {96 if second >= 60 * idle else 0}\n"
        for second in range(60 * (idle + used))
        for gpu in range(2)
    )


def run_of(folder: Path, files: Mapping[str, str]) -> TrainingRun:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return read_run([str(folder)])


@pytest.mark.long
@pytest.mark.parametrize(
    "files",
    [
        {"n1": smi(60, 60), "n2": smi(60, 60), "n3": smi(60, 60), "n4": smi(75, 60)},
        {"n1": smi(64, 60)},
        {"n1": smi(240, 220)},
        {"n1": dmon(0, 30), "n2": dmon(15, 30), "n3": dmon(0, 30)},
    ],
    ids=["one samples on", "the only one, for minutes", "for less than a tenth", "one without dates begins early"],
)
def test_a_gpu_that_is_sampled_before_or_behind_the_run_is_not_idle(tmp_path: Path, files: Mapping[str, str]) -> None:
    run = run_of(tmp_path, files)
    assert {
        check: result_of(check, run).message for check in OF_USE if result_of(check, run).verdict.value != "pass"
    } == {}
    assert result_of("run.gpu_lost", run).verdict.value == "pass"


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"n1": smi(600, 60)}, "no GPU was used for the last 9.0 h of the samples"),
        ({"n1": smi(60, 40), "n2": smi(60, 40)}, "no GPU was used for the last 20 min of the samples"),
        ({"n1": dmon(0, 30) + dmon(20, 0), "n2": dmon(0, 30)}, "no GPU of n1 was used for the last 20 min"),
    ],
    ids=["the only one", "all nodes", "one without dates"],
)
def test_gpus_that_are_used_no_more_long_before_the_samples_end_do_not_pass(
    tmp_path: Path, files: Mapping[str, str], words: str
) -> None:
    result = result_of("run.gpu_busy", run_of(tmp_path, files))
    assert (result.verdict.value, words in result.message) == ("incomplete", True), result.message


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_node_whose_job_dies_with_it_is_looked_for_while_half_of_them_are_sampled_on(
    tmp_path: Path, nodes: int
) -> None:
    run = run_of(tmp_path, {f"n{node}": smi(10 if node <= nodes / 2 else 30, 10) for node in range(1, nodes + 1)})
    assert result_of("run.gpu_lost", run).message.startswith("no sample of n1 after 2026-11-23 01:09:50")


def test_a_gpu_that_is_idle_while_the_run_goes_on_is_still_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"n1": smi(60, 60), "n2": smi(60, 60), "n3": smi(60, 30)})
    assert result_of("run.load_balance", run).message.startswith("n3 gpu0 4")


@pytest.mark.parametrize("others", [30, 60], ids=["a run that ended with it", "a run that went on"])
def test_a_node_of_which_nothing_is_sampled_while_most_are_is_looked_for(tmp_path: Path, others: int) -> None:
    run = run_of(tmp_path, {"n1": smi(60, others), "n2": smi(60, others), "n3": smi(30, 30)})
    assert result_of("run.gpu_lost", run).message.startswith("no sample of n3 after 2026-11-23 01:29:50")
