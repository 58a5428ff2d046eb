"""A SageMaker job: its folder of system metrics beside its timeline, both needed for its profiler's report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import HOST_MEMORY, MEMORY, NETWORK_BYTES
from clusterproof.reports.document.training import training_section
from tests.training_run.builders import result_of

BEGAN_S, US = 1_640_485_615, 1_000_000
Values = Callable[[int], float]  # by second


def written(
    folder: Path,
    *,
    seconds: int = 1_800,
    every_s: int = 2,
    use: Values = lambda _: 50.0,
    memory: Values = lambda _: 30.0,
    cpu: Values = lambda _: 57.0,
    begins_s: int = 20,
    waits: float = 0.01,
    step_s: float = 0.67,
) -> TrainingRun:
    """A job of one node with eight CPUs and a GPU; its steps begin this late and wait for data for this share."""
    random = Random(9)
    system = folder / "system" / "incremental" / "2021122602"
    system.mkdir(parents=True)
    with (system / "1640485617.algo-1.json").open("w", encoding="utf-8") as file:
        for second in range(0, seconds, every_s):
            metrics: list[tuple[str, str, str, float]] = [
                ("gpu", "gpu0", "GPUUtilization", use(second)),
                ("gpu", "gpu0", "GPUMemoryUtilization", memory(second)),
                ("memory", "MemoryUsedPercent", "Memory", 8.3),
                ("network", "eth0", "Algorithm", 1.5e6),
                *(("cpu", f"cpu{core}", "CPUUtilization", cpu(second)) for core in range(8)),
            ]
            for kind, name, dimension, value in metrics:
                noisy = min(100.0, max(0.0, value + random.gauss(0, 0.3))) if dimension != "Algorithm" else value
                line = {"Type": kind, "Name": name, "Dimension": dimension, "Value": round(noisy, 2)}
                file.write(json.dumps({**line, "NodeId": "algo-1", "Timestamp": BEGAN_S + second}) + "\n")
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": BEGAN_S * US}},
        {
            "name": "_MultiProcessingDataLoaderIter.__init__", "ph": "X", "pid": 2, "ts": 0, "dur": 9,
            "args": {"num_workers": 4, "pin_memory": False},
        },
    ]  # fmt: skip
    for step in range(int((seconds - begins_s - 10) / step_s)):
        at, lasted = int((begins_s + step * step_s) * US), int(step_s * US * random.uniform(0.9, 1))
        waited = {"name": "DataLoaderIter::GetNext", "ph": "X", "pid": 3, "ts": at, "dur": int(lasted * waits)}
        took = {"name": "Step:ModeKeys.TRAIN", "ph": "X", "pid": 1, "ts": at, "dur": lasted}
        events += [waited, {**took, "args": {"step_num": str(step)}}]
    framework = folder / "framework" / "pevents" / "2021122602"
    framework.mkdir(parents=True)
    (framework / "1640485640_algo-1_pythontimeline.json").write_text(json.dumps(events), encoding="utf-8")
    return read_run([str(folder)])


@pytest.mark.long
def test_its_memory_network_and_number_of_cpus_are_read(tmp_path: Path) -> None:
    samples, data = (run := written(tmp_path)).data.samples, run.data
    assert set(samples.of(MEMORY)) == {("algo-1", "gpu0")}
    assert all(abs(cell.mean - 8.3) < 1 for cell in samples.of(HOST_MEMORY)["algo-1", ""].values())
    assert {cell.mean for cell in samples.of(NETWORK_BYTES)["algo-1", ""].values()} == {1.5e6}
    assert data.cores == {"algo-1": 8}
    assert data.loaders[0].description == "num_workers=4, pin_memory=False"


@pytest.mark.long
@pytest.mark.parametrize(
    ("seen", "verdict", "words"),
    [
        ({}, Verdict.CONCERN, "gpu0: 95 % of the time at most 50 % used, 30 % of its memory, and 57 % of the CPUs"),
        ({"use": lambda _: 92.0}, Verdict.PASS, ""),
        ({"memory": lambda _: 85.0}, Verdict.PASS, ""),
        ({"cpu": lambda _: 80.0}, Verdict.PASS, ""),
        ({"waits": 0.3}, Verdict.PASS, ""),
    ],
    ids=["room for more", "a busy GPU", "a full GPU", "busy CPUs", "it waits for data"],
)  # fmt: skip
def test_a_batch_is_small_only_where_neither_gpu_memory_nor_cpus_are_used_and_no_step_waits(
    tmp_path: Path, seen: dict[str, Any], verdict: Verdict, words: str
) -> None:
    result = result_of("run.batch_size", written(tmp_path, **seen))
    assert (result.verdict, words in result.message) == (verdict, True), result.message


@pytest.mark.long
def test_memory_of_a_gpu_that_grows_is_named(tmp_path: Path) -> None:
    run = written(tmp_path, seconds=4_000, every_s=10, memory=lambda second: 30 + second / 200)
    result = result_of("run.gpu_memory_growth", run)
    assert result.verdict is Verdict.CONCERN
    assert "algo-1 gpu0 uses 50 % and 17.9 points more" in result.message


@pytest.mark.long
def test_the_wait_for_data_comes_with_how_the_loader_is_set_up(tmp_path: Path) -> None:
    result = result_of("run.data_wait", written(tmp_path, waits=0.3))
    assert "rank 0 waits for data for 30 % of its steps (num_workers=4, pin_memory=False)" in result.message


@pytest.mark.long
@pytest.mark.parametrize(
    ("begins_s", "verdict", "words"),
    [
        (20, Verdict.PASS, ""),
        (1_500, Verdict.CONCERN, "1500 s to the first step; expected at most 1200 s"),
        (400, Verdict.CONCERN, "400 s to the first step, 22.2 % of the job; expected at most 10 %"),
    ],
)
def test_a_start_that_takes_long_is_seen_beside_the_samples_of_its_node(
    tmp_path: Path, begins_s: int, verdict: Verdict, words: str
) -> None:
    result = result_of("run.init_time", written(tmp_path, begins_s=begins_s))
    assert (result.verdict, words in result.message) == (verdict, True), result.message


@pytest.mark.long
def test_the_page_has_what_the_report_of_its_profiler_had(tmp_path: Path) -> None:
    section = training_section(written(tmp_path, begins_s=60, waits=0.02))
    assert section
    for part in (
        "before the first step",
        "from the first step to the last",
        "behind the last step",
        "data loader of rank 0",
        "num_workers=4, pin_memory=False",
        "CPUs that were sampled, each node",
        "how many steps take how long",
        "waits for data",
        "memory of the nodes in use",
        "network traffic as SageMaker counts it",
        "DataLoaderIter::GetNext",
    ):
        assert part in section.body, part


@pytest.mark.long
def test_a_clock_that_fits_no_sample_says_nothing_of_the_start(tmp_path: Path) -> None:
    run = written(tmp_path)
    assert run.data.loop
    for series in run.data.samples.series.values():
        for at in list(series):
            series[at + 10**6] = series.pop(at)
    assert run.before_steps is None
    assert result_of("run.init_time", run).verdict is Verdict.INCOMPLETE
