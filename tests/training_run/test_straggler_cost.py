"""A rank that costs all others time in some steps is named; one that is last by chance is not."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bench.pauses import simulate
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.straggler_cost import holds_up, straggler_costs
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import logging_ranks, result_of


def paused(rank: int, step: int) -> float:
    return 2.0 if rank == 1 and step % 5 == 0 else 0.0


def by_chance(rank: int, step: int) -> float:
    """Every rank stops for a second in one step of ten."""
    return float(Random(f"{rank} {step}").random() < 0.1)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [3, 4, 8, 64])
def test_a_rank_that_pauses_in_some_steps_is_named_in_runs_of_any_size(ranks: int) -> None:
    result = result_of("run.held_up", logging_ranks(paused, ranks=ranks))
    assert result.verdict.value == "concern"
    assert "the others wait for rank 1 for 11" in result.message


@pytest.mark.long
@pytest.mark.parametrize("ranks", [3, 4, 8, 64])
def test_nobody_is_named_where_every_rank_pauses_as_often(ranks: int) -> None:
    assert result_of("run.held_up", logging_ranks(by_chance, ranks=ranks)).verdict.value == "pass"


def test_nobody_is_named_where_another_rank_costs_nearly_as_much() -> None:
    two_of_them = logging_ranks(lambda rank, step: {1: 2.0, 2: 1.4}.get(rank, 0.0) if step % 5 == rank else 0.0)
    assert result_of("run.held_up", two_of_them).verdict.value == "pass"


def test_one_long_pause_names_nobody() -> None:
    run = logging_ranks(lambda rank, step: 90.0 if rank == 2 and step == 100 else 0.0)
    assert result_of("run.held_up", run).verdict.value == "pass"


def test_fewer_than_fifty_steps_are_incomplete() -> None:
    result = result_of("run.held_up", logging_ranks(paused, steps=54))
    assert result.message == "49 steps whose duration and compute are known; expected at least 50: log more"


def test_ranks_of_other_stages_are_not_compared() -> None:
    lasted = dict.fromkeys(range(100), 3.0)
    stage = {Position(rank, rank // 4): dict.fromkeys(range(100), 1.0 + rank // 4) for rank in range(8)}
    assert [cost.percent for cost in straggler_costs(stage, lasted)] == [0.0, 0.0]


@pytest.mark.long
def test_pauses_that_every_rank_has_alike_hardly_ever_name_one_and_those_of_one_rank_do() -> None:
    counts = simulate(0.1)
    times, errors = PACKAGED.threshold("run.held_up_times"), PACKAGED.threshold("run.held_up_errors")
    of_alike, of_one = counts["alike", 0.0, 0.0], counts["one", 0.0, 0.0]
    assert counts["alike", times, errors] <= 0.02 * of_alike < counts["alike", 1.0, 0.0]
    assert counts["one", times, errors] > 0.4 * of_one


def for_a_while(rank: int, step: int) -> float:
    return 2.0 if rank == 3 and 100 <= step < 130 else 0.0


@pytest.mark.long
@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_a_rank_that_is_slow_for_a_while_is_named_by_the_steps_that_it_makes_long(ranks: int) -> None:
    run = logging_ranks(for_a_while, ranks=ranks)
    assert result_of("run.held_up", run).verdict.value == "pass"
    assert "; rank 3 computes longest in 30 of them, by " in result_of("run.step_outliers", run).message


@pytest.mark.parametrize(
    "longer",
    [
        lambda _rank, step: 2.0 if 100 <= step < 130 else 0.0,
        lambda rank, step: 2.0 if rank == step % 4 and 100 <= step < 130 else 0.0,
        lambda rank, step: 20.0 if rank == 3 and step in (100, 101) else 0.0,
    ],
    ids=["all at once", "each in turn", "twice"],
)
def test_long_steps_that_no_rank_alone_causes_name_none(longer: Callable[[int, int], float]) -> None:
    result = result_of("run.step_outliers", logging_ranks(longer))
    assert (result.verdict.value, "computes longest" in result.message) == ("concern", False)


def test_a_rank_that_is_a_little_slower_in_every_step_is_not_what_makes_some_long() -> None:
    computed = {Position(rank): dict.fromkeys(range(400), 3.0 + 0.6 * (rank == 3)) for rank in range(8)}
    stalls = dict.fromkeys(range(7, 400, 8), 1.0)
    assert holds_up(computed, stalls, 3.0) is None
    for step in stalls:
        computed[Position(3)][step] += 0.9
    held = holds_up(computed, stalls, 3.0)
    assert held
    assert (held.position.rank, held.times) == (3, len(stalls))


def in_stages(longer: Callable[[int, int], float]) -> TrainingRun:
    """Eight ranks, of which the last four are the second stage."""
    run = logging_ranks(longer, ranks=8)
    run.data.positions.update({rank: Position(rank, 1) for rank in range(4, 8)})
    return run


def test_a_stage_that_loses_most_hides_no_rank_of_another_for_which_others_wait() -> None:
    """In the first stage two ranks pause alike, and neither is named; in the second, one does."""
    pauses = {1: 2.9, 2: 2.8, 5: 2.0}
    run = in_stages(lambda rank, step: pauses.get(rank, 0.0) if step % 5 == rank % 5 % 3 else 0.0)
    result = result_of("run.held_up", run)
    assert (result.verdict.value, "the others wait for rank 5 " in result.message) == ("concern", True), result.message


def test_stragglers_that_change_in_one_stage_are_not_hidden_by_one_rank_of_another() -> None:
    run = in_stages(lambda rank, step: 4.0 * (rank == 1) * (step % 2) if rank < 4 else 1.5 * (rank % 4 == step % 4))
    result = result_of("run.stragglers", run)
    assert (result.verdict.value, "4 of 4 ranks are the slowest in turn" in result.message) == ("concern", True)
