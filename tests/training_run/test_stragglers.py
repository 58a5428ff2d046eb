"""A slow rank is distinguished from uneven work and from uneven stages, whatever the trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.training_run import Operation, Position
from clusterproof.plugins.training_run.rules.stragglers import medians_of_others, steady
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from tests.training_run.builders import Seconds, computing, labelled, ranks_named, result_of, slow, uneven, verdicts

from clusterproof.plugins.training_run.reading import read_run  # isort: skip

NAMES = [
    ("forward-compute", "backward-compute"),
    ("fwd", "bwd"),
    ("ForwardPass", "BackwardPass"),
    ("F", "B"),  # user-defined words
    ("layer_1", "layer_2"),
]


@pytest.mark.long
def test_the_labelled_slow_worker_is_named_and_nobody_else() -> None:
    run = read_run([str(labelled("straggler-analysis/trace-AR.csv.gz"))])
    assert verdicts(run) == {**verdicts(run), "run.slow_rank": "fail", "run.stages_uneven": "pass"}
    assert ranks_named(run) == [0]
    assert result_of("run.work_uneven", run).verdict.value == "pass"


@pytest.mark.long
def test_nobody_is_named_for_labelled_uneven_stages() -> None:
    run = read_run([str(labelled("straggler-analysis/trace-ST.csv.gz"))])
    assert ranks_named(run) == []
    assert result_of("run.stages_uneven", run).message.startswith("stage 3 computes 1.63 times as long as stage 0")
    assert result_of("run.slow_rank", run).message.startswith("2 ranks a stage; expected 3")


@pytest.mark.long
@pytest.mark.parametrize("replicas", [3, 4, 16, 128])
@pytest.mark.parametrize("stages", [1, 2, 8])
def test_the_slow_rank_is_named_in_runs_of_any_size(replicas: int, stages: int) -> None:
    rank = stages * replicas - 1
    assert ranks_named(computing(slow(rank, 1.2), stages=stages, replicas=replicas, steps=25)) == [rank]


def test_two_slow_ranks_of_one_stage_are_both_named() -> None:
    seconds = slow(6, 1.2, slow(3, 1.5))
    run = computing(seconds, replicas=8)
    lines = result_of("run.slow_rank", run).message
    assert "rank 3" in lines
    assert "rank 6" in lines


@pytest.mark.parametrize("seconds", [uneven(0.4), uneven(1.0), lambda p, _: 1.5 if p.replica == 1 else 1.0])
def test_nobody_is_named_for_uneven_work(seconds: Seconds) -> None:
    for stages in (1, 4) if seconds(Position(1, 0, 1), 1) != 1.5 else (2, 4):
        assert ranks_named(computing(seconds, stages=stages, replicas=8)) == []


@pytest.mark.long
def test_a_slow_rank_among_uneven_work_is_named_once_it_is_slow_in_each_part_of_the_run() -> None:
    assert ranks_named(computing(slow(3, 1.1, uneven(0.5)), stages=2, replicas=8)) == []
    assert ranks_named(computing(slow(3, 1.8, uneven(0.5)), stages=2, replicas=8)) == [3]
    assert ranks_named(computing(slow(3, 1.15, uneven(0.9)), replicas=8, steps=400)) == [3]


def test_a_slow_rank_on_cpus_that_others_use_is_named_though_most_of_its_steps_overlap_with_those_of_others() -> None:
    assert ranks_named(computing(slow(1, 1.5, shared_cpus), steps=150)) == [1]
    assert ranks_named(computing(shared_cpus, steps=150)) == []


def shared_cpus(position: Position, step: int) -> float:
    """In each step, a rank waits at random for a CPU, up to four times as long as it computes."""
    return 1 + 4 * Random(f"{position.rank} {step}").random() ** 3


@pytest.mark.long
@pytest.mark.parametrize("others", [lambda *_: 1.0, shared_cpus], ids=["even", "on CPUs that others use"])
def test_a_rank_that_becomes_slow_is_named_by_the_later_half_of_the_run(others: Seconds) -> None:
    run = computing(
        lambda position, step: others(position, step) * (1.6 if position.rank == 2 and step > 200 else 1), steps=400
    )
    assert ranks_named(run) == [2]
    assert "peers in the later half of the run, in " in result_of("run.slow_rank", run).message


@pytest.mark.parametrize("others", [lambda *_: 1.0, shared_cpus], ids=["even", "on CPUs that others use"])
def test_nobody_is_named_beside_one_rank_that_is_fast(others: Seconds) -> None:
    assert ranks_named(computing(slow(3, 0.4, slow(0, 1.04, others)), steps=150)) == []


def in_a_part(times: float, others: Seconds) -> Seconds:
    """Rank 3 computes this many times as long in the first three quarters of the run."""
    return lambda position, step: others(position, step) * (times if position.rank == 3 and step < 300 else 1)


@pytest.mark.parametrize(
    ("run", "verdict", "words"),
    [
        (partial(computing, noise=0.2, steps=25), "incomplete", "too much to tell whether it is slow; expected about"),
        (partial(computing, noise=0.2, steps=400), "pass", ""),
        (partial(computing, noise=0.01, steps=25), "pass", ""),
        (partial(computing, uneven(0.5), replicas=8, steps=400), "pass", ""),
        (
            partial(computing, in_a_part(1.4, uneven(0.9)), replicas=8, steps=400),
            "incomplete",
            "its work swings too much to tell",
        ),
    ],
    ids=["noise", "noise and many steps", "no noise", "uneven work and many steps", "slow among uneven work"],
)
def test_what_hides_a_rank_that_is_slower_by_a_tenth_is_no_pass(
    run: Callable[[], TrainingRun], verdict: str, words: str
) -> None:
    result = result_of("run.slow_rank", run())
    assert (result.verdict.value, words in result.message) == (verdict, True), result.message


def test_a_rank_that_has_to_wait_for_others_is_not_named() -> None:
    data = computing(slow(0, 1.5)).data
    assert not {name for _, name in data.compute if name == "forward-recv"}


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_operations_may_have_other_names(names: tuple[str, str]) -> None:
    assert ranks_named(renamed(computing(slow(1, 1.3), steps=30), names)) == [1]


def test_steps_that_are_missing_here_and_there_change_nothing() -> None:
    run = computing(slow(2, 1.3), replicas=8, steps=60)
    random = Random(3)
    for cells in run.data.compute.values():
        for step in [step for step in cells if random.random() < 0.3]:
            del cells[step]
    assert ranks_named(run) == [2]


def test_warm_up_steps_in_which_one_rank_compiles_flag_no_rank() -> None:
    run = computing(lambda position, step: 30.0 if position.rank == 0 and step <= 5 else 1.0, steps=26)
    assert ranks_named(run) == []


def test_rows_that_are_there_twice_change_nothing() -> None:
    run = computing(slow(1, 1.3))
    twice = RunData()
    for _ in range(2):
        twice.add(
            (
                Operation(run.data.positions[rank], step, name, mean)
                for (rank, name), cells in run.data.compute.items()
                for step, (mean, _) in cells.items()
            ),
            "twice" if not twice.files else "again",
        )
    assert verdicts(TrainingRun("twice", twice)) == verdicts(run)


def test_too_few_steps_or_ranks_are_incomplete_and_say_what_to_collect() -> None:
    assert result_of("run.slow_rank", computing(steps=19)).message.startswith(
        "19 steps; expected at least 20: trace more"
    )
    assert result_of("run.slow_rank", computing(steps=1)).message.startswith("1 step; expected at least 20: trace more")
    assert "trace more data-parallel ranks" in result_of("run.slow_rank", computing(replicas=2)).message


def test_a_rank_that_is_named_beside_one_of_too_few_steps_stays_named() -> None:
    run = computing(slow(2, 1.4))
    for name in ("forward-compute", "backward-compute"):
        cells = run.data.compute[3, name]
        for step in list(cells)[5:]:
            del cells[step]
    assert ranks_named(run) == [2]


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=30))
def test_the_median_of_others_leaves_out_its_own(values: list[float]) -> None:
    expected = [median(values[:index] + values[index + 1 :]) for index in range(len(values))]
    assert medians_of_others(values) == pytest.approx(expected)


def test_warm_up_is_left_out_as_far_as_twenty_steps_are_left() -> None:
    assert steady(range(100)) == list(range(5, 100))
    assert steady(range(22)) == list(range(2, 22))
    assert steady([16, 21, 27, *range(400, 430)])[0] == 21


def renamed(run: TrainingRun, names: tuple[str, str]) -> TrainingRun:
    """The same run with these names of operations."""
    data = RunData()
    old = ("forward-compute", "backward-compute")
    data.add(
        (
            Operation(run.data.positions[rank], step, dict(zip(old, names, strict=True))[name], mean)
            for (rank, name), cells in run.data.compute.items()
            for step, (mean, _) in cells.items()
        ),
        "renamed",
    )
    return TrainingRun("renamed", data)
