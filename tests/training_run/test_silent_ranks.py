"""A rank that stops logging while the others continue, or is missing, is reported; none passes because of it."""

from __future__ import annotations

import pytest

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import logging_ranks, result_of

CHECKS = ("run.held_up", "run.stragglers", "run.step_outliers")


def without(rank: int, behind: int, ranks: int = 8) -> TrainingRun:
    """A run of 240 steps in which a rank stops logging after one of them."""
    run = logging_ranks(ranks=ranks)
    for cells in (run.data.steps[rank], run.data.compute[rank, "forward"]):
        for step in [step for step in cells if step > behind]:
            del cells[step]
    return run


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("rank", "behind", "words"),
    [(5, 120, "rank 5 logs nothing after step 120 of 240"), (6, 0, "rank 6 logs nothing; expected the steps of")],
)
def test_a_rank_that_logs_no_more_does_not_pass(check: str, rank: int, behind: int, words: str) -> None:
    result = result_of(check, without(rank, behind))
    assert (result.verdict.value, words in result.message) == ("incomplete", True), result.message


def test_the_rank_itself_is_not_known_to_be_as_fast_as_the_others() -> None:
    result = result_of("run.slow_rank", without(5, 120))
    assert (result.verdict.value, list(result.devices)) == ("incomplete", ["rank 5"])


@pytest.mark.parametrize("check", [*CHECKS, "run.slow_rank"])
def test_what_a_buffer_held_when_a_run_was_stopped_is_not_missed(check: str) -> None:
    assert result_of(check, without(5, 225)).verdict.value == "pass"


def test_where_few_ranks_were_to_log_none_is_missed() -> None:
    run = logging_ranks(ranks=16)
    for rank in set(range(16)) - {0, 8, 15}:
        del run.data.steps[rank], run.data.compute[rank, "forward"], run.data.positions[rank]
    assert run.silent == {}


def test_one_rank_that_logs_more_than_all_others_makes_none_silent() -> None:
    run = logging_ranks()
    run.data.steps[0].update(dict.fromkeys(range(241, 1000), (3.0, 1)))
    assert run.silent == {}


@pytest.mark.parametrize("ranks", [2, 16])
def test_half_of_the_ranks_are_missed_too(ranks: int) -> None:
    run = logging_ranks(ranks=ranks, steps=400)
    for rank in range(ranks // 2):
        run.data.steps[rank] = {step: cell for step, cell in run.data.steps[rank].items() if step <= 200}
        run.data.compute.pop((rank, "forward"))
    assert next(iter(run.silent.items())) == (0, "rank 0 logs nothing after step 200 of 400")
    assert len(run.silent) == ranks // 2


@pytest.mark.parametrize(("last", "silent"), [(300, False), (100, True)])
def test_a_rank_that_logs_every_hundredth_step_is_silent_when_two_of_its_lines_are_missing(
    last: int, silent: bool
) -> None:
    run = logging_ranks(steps=399)
    run.data.steps[0] = dict.fromkeys(range(0, last + 1, 100), (3.0, 1))
    run.data.compute.pop((0, "forward"))
    assert bool(run.silent) is silent


@pytest.mark.parametrize("check", ["run.held_up", "run.stragglers", "run.slow_rank"])
def test_a_rank_that_lacks_an_operation_of_its_stage_is_not_left_out_of_a_comparison(check: str) -> None:
    """Of rank 5 only the forward pass was logged, so how long it computes is not known."""
    run = logging_ranks(ranks=8)
    for rank in set(range(8)) - {5}:
        run.data.compute[rank, "backward"] = dict(run.data.compute[rank, "forward"])
    result = result_of(check, run)
    assert (result.verdict.value, "rank 5" in (*result.devices, result.message[:6])) == ("incomplete", True), (
        result.message
    )
