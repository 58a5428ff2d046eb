"""Steps far longer than others, lasting changes, and the parts of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.rules.steps import StepTime, drift, outliers, period
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from tests.training_run.builders import logging_ranks, result_of, stepping


def series(seconds: Callable[[int], float], steps: int = 400, noise: float = 0.02, seed: int = 1) -> list[StepTime]:
    random = Random(seed)
    return [StepTime(step, seconds(step) * random.gauss(1, noise)) for step in range(steps)]


def test_all_of_a_tenth_of_steps_that_are_twice_as_slow_are_found() -> None:
    slow = outliers(series(lambda step: 2.0 if step % 10 == 0 else 1.0, 1000))
    assert {slow_step.step for slow_step in slow.steps} == set(range(0, 1000, 10))
    assert slow.share == pytest.approx(0.1 / 1.1, rel=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_neither_an_outlier_nor_a_drift(seed: int) -> None:
    even = series(lambda _: 1.0, noise=0.1, seed=seed)
    assert outliers(even).share < 0.02
    change = drift(even)
    assert change is None or change.times < 1.1


@pytest.mark.parametrize("at", [30, 100, 200, 370])
@pytest.mark.parametrize("times", [1.12, 1.5, 3.0])
def test_a_change_that_stays_is_found_where_it_begins(at: int, times: float) -> None:
    change = drift(series(lambda step: times if step >= at else 1.0))
    assert change
    assert change.times == pytest.approx(times, rel=0.02)
    assert abs(change.step - at) <= 3


@pytest.mark.parametrize(
    "seconds",
    [
        lambda step: 1.5 if 100 <= step < 200 else 1.0,  # it recovers
        lambda step: 1.0 if step >= 200 else 1.5,  # it improves
        lambda step: 30.0 if step == 200 else 1.0,  # one long step
        lambda step: 3.0 if step % 20 == 0 else 1.0,  # occasionally
    ],
)
def test_what_does_not_stay_is_no_drift(seconds: Callable[[int], float]) -> None:
    assert drift(series(seconds)) is None


def test_a_drift_that_creeps_is_found_too() -> None:
    change = drift(series(lambda step: 1 + step / 1000))
    assert change
    assert change.times > 1.1


def test_steps_that_all_take_exactly_as_long_have_no_finding() -> None:
    exact = [StepTime(step, 1.0) for step in range(400)]
    assert outliers(exact).steps == ()
    assert drift(exact) is None


@pytest.mark.parametrize(
    ("at", "times", "every"),
    [
        ([500, 1000, 1500], 1, 500),
        ([510, 1010, 1510, 2000], 20, 500),
        ([500, 501, 1000, 1001, 1500], 1, 500),  # two consecutive steps
        ([500, 1000], 1, 0),
        ([500, 700, 1500], 1, 0),
        ([10, 11, 12, 13], 1, 0),
    ],
)
def test_long_steps_that_come_at_equal_distances_are_told_from_others(at: list[int], times: int, every: int) -> None:
    assert period([StepTime(step, 9.0, times) for step in at]) == every


def test_what_is_saved_or_evaluated_each_hundred_steps_is_said_to_come_so() -> None:
    run = stepping(lambda step: 30.0 if step % 100 == 50 else 1.0)
    assert "about every 100 steps, as by a checkpoint or an evaluation: " in result_of("run.step_outliers", run).message


def test_the_warm_up_does_not_count() -> None:
    run = stepping(lambda step: 60.0 if step <= 5 else 1.0)
    assert result_of("run.step_outliers", run).verdict.value == "pass"


def test_the_rank_that_waits_longest_for_data_is_named() -> None:
    run = stepping(lambda _: 1.0, lambda _: {"data": 0.02})
    for step in run.data.parts[1, "data"]:
        run.data.parts[1, "data"][step] = (0.3, 1)
    assert result_of("run.data_wait", run).message.startswith("rank 1 waits for data for 30")


def test_no_rank_is_named_where_all_wait_for_data() -> None:
    run = logging_ranks()
    run.data.parts.update({(rank, "data"): dict.fromkeys(range(1, 241), (0.3 + rank / 100, 1)) for rank in range(4)})
    assert result_of("run.data_wait", run).message.startswith("all ranks wait for data, for up to 10")


def test_no_rank_is_named_that_waited_for_data_in_a_single_step() -> None:
    run = stepping(lambda _: 1.0, lambda _: {"data": 0.01})
    run.data.parts[1, "data"][200] = (40.0, 1)
    message = result_of("run.data_wait", run).message
    assert message.startswith("up to 10.1 % of a rank's steps is a wait for data, most of it in a few steps, 40 s in")


def test_one_checkpoint_gives_no_share() -> None:
    result = result_of("run.checkpoint_share", stepping(lambda _: 1.0, lambda step: {"save": float(step == 50)}))
    assert result.message == "1 checkpoints; expected at least 2: log a longer part of the run"


def spending(name: str, ranks: Mapping[int, tuple[int, float]]) -> TrainingRun:
    """A run whose ranks log so many steps of ten seconds, and so many of these seconds for this part."""
    data = RunData()
    steps = ((rank, step, spent) for rank, (count, spent) in ranks.items() for step in range(1, count + 1))
    data.add((Step(Position(rank), step, 10.0, {name: spent}) for rank, step, spent in steps), "made up")
    return TrainingRun("made-up", data)


@pytest.mark.parametrize(
    ("check", "part"),
    [("run.comm_exposed", "exposed communication"), ("run.data_wait", "data"), ("run.checkpoint_share", "checkpoint")],
)
def test_a_rank_with_too_few_steps_to_judge_does_not_hide_what_the_others_show(check: str, part: str) -> None:
    result = result_of(check, spending(part, {0: (1, 9.0), 1: (100, 8.0), 2: (100, 0.5)}))
    verdicts = {part.verdict.value: part.message for part in result.by_verdict}
    assert set(verdicts) == {"concern", "incomplete"}, result.message
    assert "80 % of its" in verdicts["concern"]


def test_a_longer_start_of_another_rank_is_not_hidden_by_the_largest_share() -> None:
    data = RunData()
    data.add((Step(Position(0), step, 1.0, {"init": 100.0 * (step == 1)}) for step in range(1, 11)), "made up")
    data.add((Step(Position(1), step, 10.0, {"init": 5_000.0 * (step == 1)}) for step in range(1, 2_001)), "made up")
    assert (
        "5000 s to the first step; expected at most" in result_of("run.init_time", TrainingRun("made-up", data)).message
    )
