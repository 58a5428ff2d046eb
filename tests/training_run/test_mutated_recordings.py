"""Recordings with known faults, altered: another rank is slow, other columns, missing dumps."""

from __future__ import annotations

import csv
import gzip
from copy import copy
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.rules.hang import missing
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import labelled, ranks_named, result_of

pytestmark = pytest.mark.long

SLOW, TIMES = 0, 2.36  # the slow worker of trace-AR, and its compute time relative to its peers
FAULTY = {12, 14}  # in gpu_error_1st


@pytest.fixture(scope="module")
def recorded() -> TrainingRun:
    return read_run([str(labelled("straggler-analysis/trace-AR.csv.gz"))])


def changed(run: TrainingRun, times: dict[int, float]) -> TrainingRun:
    """The same run with ranks that compute this many times as long."""
    data = copy(run.data)
    data.compute = {
        (rank, name): {step: (seconds * times.get(rank, 1.0), count) for step, (seconds, count) in cells.items()}
        for (rank, name), cells in run.data.compute.items()
    }
    return TrainingRun("changed", data)


def test_nobody_is_named_where_the_slow_worker_is_as_fast_as_the_others(recorded: TrainingRun) -> None:
    assert result_of("run.slow_rank", changed(recorded, {SLOW: 1 / TIMES})).verdict.value == "pass"


@pytest.mark.parametrize("times", [1.1, 1.2, 1.5])
def test_whichever_rank_is_slow_is_named_and_no_other(recorded: TrainingRun, times: float) -> None:
    for rank in Random(times).sample(sorted(recorded.data.positions), 6):
        own = {SLOW: 1 / TIMES}
        own[rank] = own.get(rank, 1.0) * times
        assert ranks_named(changed(recorded, own)) == [rank]


def test_two_slow_workers_of_two_stages_are_both_named(recorded: TrainingRun) -> None:
    stages = {
        position.stage: rank for rank, position in recorded.data.positions.items() if rank != SLOW and position.stage
    }
    other = stages[max(stages)]
    assert sorted(ranks_named(changed(recorded, {other: 1.3}))) == sorted([SLOW, other])


def test_rows_and_columns_in_any_order_read_the_same(recorded: TrainingRun, tmp_path: Path) -> None:
    with gzip.open(labelled("straggler-analysis/trace-AR.csv.gz"), "rt") as file:
        head, *rows = csv.reader(file)
    Random(1).shuffle(rows)
    order = Random(2).sample(range(len(head)), len(head))
    with (tmp_path / "shuffled.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([row[at] for at in order] for row in [head, *rows])
    shuffled = read_run([str(tmp_path / "shuffled.csv")])
    assert result_of("run.slow_rank", shuffled).message == result_of("run.slow_rank", recorded).message


def test_no_healthy_rank_is_named_missing_whichever_dump_is_gone() -> None:
    dumps = read_run([str(labelled("flight-recorder/gpu_error_1st"))]).data.dumps
    for gone in dumps:
        absent = missing({rank: dump for rank, dump in dumps.items() if rank != gone})
        assert set(absent.ranks) <= FAULTY | {gone}
        assert absent.without_dump == (gone,)
