"""Varying compute counts as uneven work only with evidence; slow steps among those of many lengths are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.work import common_to_stages
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CPU_PRESSURE, Sample
from tests.training_run.builders import computing, result_of, uneven
from tests.training_run.logs import megatron, read

EITHER = "the work is uneven, or CPUs are shared or programs pause, and nothing recorded tells which"


def under_pressure(percent: float) -> TrainingRun:
    """One stage that varies, on a node and an idle one, whose tasks wait this much for a CPU."""
    run = computing(uneven(0.6), steps=400)
    samples = [
        Sample(node, CPU_PRESSURE, "", 10.0 * at, of) for at in range(60) for node, of in (("a", 0), ("b", percent))
    ]
    run.data.add(samples, "samples")
    return run


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: computing(uneven(0.6), steps=400), EITHER),
        (
            lambda: under_pressure(45),
            "tasks wait for a CPU 45 % of the time, so CPUs are shared; the work may be uneven",
        ),
        (lambda: under_pressure(2), "tasks wait for a CPU 2 % of the time, so the work is uneven, or programs pause"),
        (lambda: computing(uneven(0.6), stages=4, steps=400), "is common to ranks that share their work, so the work"),
    ],
    ids=["nothing known", "CPUs short", "CPUs idle", "stages alike"],
)
def test_a_swing_is_laid_to_what_the_run_shows(run: Callable[[], TrainingRun], why: str) -> None:
    result = result_of("run.work_uneven", run())
    assert result.verdict is Verdict.CONCERN
    assert why in result.message


@pytest.mark.long
@pytest.mark.parametrize("of_work", [0.0, 0.5, 1.0])
def test_the_share_that_ranks_of_several_stages_have_in_common_is_found(of_work: float) -> None:
    random = Random(3)
    work = {(replica, step): random.gauss(0, 0.1) for replica in range(8) for step in range(400)}
    alone = {(rank, step): random.gauss(0, 0.1) for rank in range(24) for step in range(400)}

    def seconds(position: Position, step: int) -> float:
        own = alone[position.rank, step - 1]
        return float(2.718 ** (of_work**0.5 * work[position.replica or 0, step - 1] + (1 - of_work) ** 0.5 * own))

    common = common_to_stages(computing(seconds, stages=3, replicas=8, steps=400).computed)
    assert common == pytest.approx(of_work, abs=0.1)


def test_one_stage_or_unknown_data_parallel_ranks_tell_nothing() -> None:
    assert common_to_stages(computing(uneven(0.6)).computed) is None
    unknown = {Position(rank, rank // 4): dict.fromkeys(range(40), 1.0) for rank in range(8)}
    assert common_to_stages(unknown) is None


def of_length(step: int, ms: float, length: int) -> str:
    return megatron(step, ms).replace("|\n", f"| actual seqlen:  {length} |\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("lengths", "of_outliers", "of_drift"),
    [
        (lambda random, _: 4000 + 8 * random.randint(0, 90), "concern", "concern"),
        (lambda random, _: 4000 + 4000 * random.randint(0, 1) + 8 * random.randint(0, 90), "concern", "concern"),
        (lambda random, step: random.choice((2000, 4000, 8000)) + step, "concern", "concern"),
        (lambda _, step: 2000 + 20 * step, "concern", "incomplete"),
        (lambda random, step: 4000 + 640 * (step > 300) + 8 * random.randint(0, 9), "incomplete", "incomplete"),
    ],
    ids=["within a fifth", "of two kinds", "far apart", "growing", "longer from a step on"],
)
def test_sequences_of_any_length_hide_no_slow_step_unless_they_grow(
    tmp_path: Path, lengths: Callable[[Random, int], int], of_outliers: str, of_drift: str
) -> None:
    def verdict(check: str, times: Callable[[int], float]) -> str:
        random = Random(3)
        lines = [of_length(step, 1000 * times(step), lengths(random, step)) for step in range(1, 601)]
        return result_of(check, read(tmp_path, "".join(lines))).verdict.value

    assert verdict("run.step_outliers", lambda step: 10 if step % 20 == 0 else 1) == of_outliers
    assert verdict("run.step_drift", lambda step: 2 if step > 300 else 1) == of_drift


@pytest.mark.parametrize(
    ("slow_ranks", "words"),
    [
        ((1, 2, 3, 5, 6), " times as long as ranks 0, 4, 7 of 8 in their stage: most are slow, or have more work"),
        ((0, 1, 2, 3, 4, 5), " times as long as ranks 6, 7 of 8"),
        ((1, 2, 3, 4, 5, 6, 7), ""),  # a rank with less work costs nothing
        ((4, 5, 6, 7), ""),  # run.slow_rank names it
        ((), ""),
    ],
)
def test_a_pace_that_most_ranks_of_a_stage_do_not_keep_is_a_concern(slow_ranks: tuple[int, ...], words: str) -> None:
    run = computing(lambda position, _: 1.3 if position.rank in slow_ranks else 1.0, replicas=8)
    result = result_of("run.work_uneven", run)
    assert (result.verdict.value, words in result.message) == ("concern" if words else "pass", True), result.message


def slow_rank(seconds: Callable[[Position, int], float], steps: int = 40) -> str:
    return result_of("run.slow_rank", computing(seconds, stages=2, steps=steps)).message


def test_a_rank_is_named_that_is_far_slower_than_the_work_of_its_replica_explains() -> None:
    message = slow_rank(lambda position, _: {2: 1.5, 6: 1.06}.get(position.rank, 1.0))
    assert "rank 2" in message
    assert "computes 1.5 times as long as its 3 peers" in message


@pytest.mark.parametrize(("of_rank", "of_mate"), [(1.3, 1.3), (1.6, 1.4), (1.2, 1.6)])
def test_no_rank_is_named_whose_replica_has_as_much_more_work(of_rank: float, of_mate: float) -> None:
    assert slow_rank(lambda position, _: {2: of_rank, 6: of_mate}.get(position.rank, 1.0)) == ""


def test_no_rank_is_named_whose_replica_has_more_work_in_the_later_half() -> None:
    def seconds(position: Position, step: int) -> float:
        return 1.2 if position.replica == 2 and step >= 54 else 1.0

    assert slow_rank(seconds, steps=100) == ""


def test_each_stage_in_which_most_ranks_are_slow_is_named() -> None:
    fast = {0, 4, 7, 8, 9}
    run = computing(lambda position, _: 1.0 if position.rank in fast else 1.3, stages=2, replicas=8)
    message = result_of("run.work_uneven", run).message
    assert "times as long as ranks 0, 4, 7 of 8 in their stage" in message
    assert "times as long as ranks 8, 9 of 8 in their stage" in message
