"""Samples that begin before a run or go on behind it: no GPU that waits then is idle, and no node is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import said

HEAD = "timestamp, index, utilization.gpu [%]"
DMON = "# gpu     sm\n# Idx      %\n"
OF_USE = ("run.gpu_busy", "run.gpu_fluctuates", "run.load_balance")


def smi(sampled: int, used: int) -> str:
    """So many minutes of two GPUs, used in the first of them."""
    rows = [
        f"2026/11/23 {1 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000, {gpu}, "
        f"{96 if second < 60 * used else 0} %"
        for second in range(0, 60 * sampled, 10)
        for gpu in range(2)
    ]
    return "\n".join([HEAD, *rows]) + "\n"


def dmon(idle: int, used: int) -> str:
    """So many minutes, of which nothing says when they began."""
    return DMON + "".join(
        f"    {gpu}     {96 if second >= 60 * idle else 0}\n"
        for second in range(60 * (idle + used))
        for gpu in range(2)
    )


def run_of(folder: Path, files: Mapping[str, str]) -> TrainingRun:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return read_run([str(folder)])


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
    assert {check: said(check, run).message for check in OF_USE if said(check, run).verdict.value != "pass"} == {}
    assert said("run.gpu_lost", run).verdict.value == "pass"


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
    result = said("run.gpu_busy", run_of(tmp_path, files))
    assert (result.verdict.value, words in result.message) == ("incomplete", True), result.message


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_node_whose_job_dies_with_it_is_looked_for_while_half_of_them_are_sampled_on(
    tmp_path: Path, nodes: int
) -> None:
    run = run_of(tmp_path, {f"n{node}": smi(10 if node <= nodes / 2 else 30, 10) for node in range(1, nodes + 1)})
    assert said("run.gpu_lost", run).message.startswith("no sample of n1 after 2026-11-23 01:09:50")


def test_a_gpu_that_is_idle_while_the_run_goes_on_is_still_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"n1": smi(60, 60), "n2": smi(60, 60), "n3": smi(60, 30)})
    assert said("run.load_balance", run).message.startswith("n3 gpu0 4")


@pytest.mark.parametrize("others", [30, 60], ids=["a run that ended with it", "a run that went on"])
def test_a_node_of_which_nothing_is_sampled_while_most_are_is_looked_for(tmp_path: Path, others: int) -> None:
    run = run_of(tmp_path, {"n1": smi(60, others), "n2": smi(60, others), "n3": smi(30, 30)})
    assert said("run.gpu_lost", run).message.startswith("no sample of n3 after 2026-11-23 01:29:50")
