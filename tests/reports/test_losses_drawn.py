"""Losses and gradient norms on the page: below the step durations, with what rules name, however many there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import inf, nan

import pytest

from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.loss_curve import MAX_INTERVALS, LossCurve
from clusterproof.plugins.training_run.losses import Loss
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import Fact, RunData
from clusterproof.reports.document.training import training_section
from tests.reports.page import Page

MOST = 80_000  # maximum characters of a section with durations, losses and norms
SLOW = 200


def run_with(*files: Iterable[Fact], policy: Policy = NO_POLICY) -> TrainingRun:
    data = RunData()
    for number, facts in enumerate(files):
        data.add(facts, f"{number}.log")
    return TrainingRun("x", data, policy=policy)


def steps(last: int = 300, first: int = 1) -> Iterator[Fact]:
    return (Step(Position(0), step, 3.0 if step == SLOW else 1.0) for step in range(first, last + 1))


def losses(of: Callable[[int], float], last: int = 300, rank: int = 0, norm: float | None = None) -> Iterator[Fact]:
    return (Loss(rank, step, of(step), norm) for step in range(1, last + 1))


def leaping(step: int) -> float:
    return 30.0 if step == SLOW else 2.0 + step % 3 / 10


def drawn(*files: Iterable[Fact], policy: Policy = NO_POLICY) -> str:
    section = training_section(run_with(*files, policy=policy))
    return section.html if section else ""


def captions(section: str) -> list[str]:
    return [label for label in Page(section).attributes("aria-label") if label.startswith(("loss", "norm"))]


def paths(section: str, name: str) -> list[str]:
    return re.findall(rf'<path class="{name}" d="([^"]*)"', section)


def figures(section: str) -> list[str]:
    return re.findall(r'<figure class="(?:steps|loss)">.*?</figure>', section)


def test_a_spike_stands_below_the_slow_step_that_it_comes_with_and_the_table_says_so() -> None:
    section = drawn(steps(), losses(leaping))
    durations, loss = figures(section)
    places = [paths(durations, "outlier"), paths(loss, "outlier"), paths(loss, "spike")]
    assert [[mark.partition(" ")[0] for mark in marks] for marks in places] == [["M399.3"]] * 3
    assert captions(section) == ["loss by step: 300 lines, 2 to 30, cut at 2.6"]
    assert "dots: the highest spikes" in loss
    spike = "loss 30, 13.6 times the largest of the 100 lines before"
    assert f"step 200rank 0: {spike}3 s3.0" in Page(section).text


def test_what_rises_for_several_lines_is_marked_too_and_so_is_a_norm() -> None:
    section = drawn(losses(lambda step: 2.0 if step < 250 else 6.0))
    assert "step 254rank 0: loss 6, 2.8 times the mean of the 100 lines beforenot known" in Page(section).text
    leap = drawn(Loss(0, step, 2.0, 9.0 if step == SLOW else 0.3) for step in range(1, 301))
    assert "norm of the gradients 9, 30.0 times the largest of the 100 lines before" in Page(leap).text
    assert [len(paths(figure, "spike")) for figure in figures(leap)] == [0, 1]


def test_each_of_several_spikes_has_its_dot() -> None:
    section = drawn(losses(lambda step: {150: 30.0, 290: 25.0}.get(step, 2.0)))
    assert [dot.partition(" ")[0] for dot in paths(section, "spike")] == ["M299.0", "M579.9"]
    assert "step 290rank 0: loss 25, 12.5 times the largest of the 100 lines before" in Page(section).text


def test_a_spike_counts_by_the_numbers_of_the_site() -> None:
    of_site = Policy(thresholds={"run.loss_leap": 20.0})
    assert not paths(drawn(losses(leaping), policy=of_site), "spike")


def test_steps_without_a_number_break_the_line_and_have_a_bar() -> None:
    section = drawn(steps(), losses(lambda step: nan if 100 <= step < 120 else inf if step == 150 else 2.0))
    _, loss = figures(section)
    (line,), (wrong,) = paths(loss, "line"), paths(loss, "wrong")
    assert line.count("M") == 3
    assert wrong.count("M") == 21
    assert captions(section) == ["loss by step: 279 lines, 2; nan or inf in 21 lines"]
    assert "step 100rank 0: loss inf in 21 lines, first here1 s1.0" in Page(section).text


def test_steps_that_no_line_is_of_are_a_gap() -> None:
    (loss,) = figures(drawn(Loss(0, step, 2.0, None) for step in range(1, 301) if not 100 < step < 150))
    (line,) = paths(loss, "line")
    assert line.count("M") == 2


def test_a_loss_that_is_logged_beyond_the_timed_steps_widens_the_axis_of_both() -> None:
    durations, loss = figures(drawn(steps(first=101), losses(leaping)))
    assert all("step 1</span>" in figure and "step 300</span>" in figure for figure in (durations, loss))
    assert paths(durations, "line")[0].startswith("M200.7 ")


@pytest.mark.long
def test_few_timed_steps_among_many_of_the_loss_keep_their_own_axis() -> None:
    durations, loss = figures(drawn(steps(210, 190), losses(leaping, 10_000)))
    assert "step 190</span>" in durations
    assert "step 1</span>" in loss
    assert paths(loss, "outlier") == [""]


def test_losses_by_epoch_have_an_axis_of_epochs() -> None:
    durations, loss = figures(drawn(steps(), (Loss(0, None, 2.0, None, epoch=at / 100) for at in range(1, 301))))
    assert "step 300</span>" in durations
    assert "<span>epoch 0.01</span>" in loss
    assert "<span>epoch 3</span>" in loss


def test_ranks_are_one_picture_from_the_lowest_to_the_highest_and_what_all_have_is_said_once() -> None:
    ranks = (losses(lambda step, rank=rank: leaping(step) + rank / 100, rank=rank) for rank in range(8))  # type: ignore[misc]
    (loss,) = figures(drawn(*ranks))
    assert paths(loss, "spread") != [""]
    assert "2,400 lines, 2 to 30.1" in loss
    alike = drawn(*(losses(leaping, rank=rank) for rank in range(8)))
    assert Page(alike).text.count("rank 0 (0.log) and 7 more: loss 30, ") == 2  # the dot's title, and the table


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([2.0], "loss by step: 1 line, 2"),
        ([2.0, 3.0], "loss by step: 2 lines, 2 to 3"),
        ([nan], "loss by step; nan or inf in 1 line"),
        ([1.7e308, -1.7e308, 5e-324], "loss by step: 3 lines, -1e+300 to 1e+300"),
    ],
)
def test_few_and_extreme_numbers_are_drawn(values: list[float], said: str) -> None:
    section = drawn(losses(lambda step: values[step - 1], len(values)))
    assert captions(section) == [said]
    assert not re.search(r'd="[^"]*(nan|inf)', section)


@pytest.mark.long
def test_a_thousand_ranks_that_spike_each_by_itself_take_no_more_room() -> None:
    ranks = (losses(lambda step, rank=rank: leaping(step - rank) + rank / 1e4, rank=rank) for rank in range(200))  # type: ignore[misc]
    alike = (losses(lambda step, rank=rank: leaping(step) * (rank + 1), rank=rank) for rank in range(200, 1_000))  # type: ignore[misc]
    section = drawn(steps(), *ranks, *alike)
    assert len(section) < MOST + 60_000  # 1,000 ranks side by side
    assert "step 200rank 999 (1000.log) and 800 more: loss 3e+04, " in Page(section).text


@pytest.mark.long
@pytest.mark.parametrize("count", [10_000, 1_000_000])
def test_any_number_of_lines_takes_no_more_room_and_hides_no_extreme(count: int) -> None:
    curve = LossCurve()
    for step in range(count):
        curve.add(step, 99.0 if step == 7_777 else 1.0 + step % 2, is_wrong=step == 5_555)
    intervals = list(curve)
    assert MAX_INTERVALS / 2 <= len(intervals) <= MAX_INTERVALS
    assert (max(interval.high for interval in intervals), min(interval.low for interval in intervals)) == (99.0, 1.0)
    assert (sum(interval.lines for interval in intervals), sum(interval.wrong for interval in intervals)) == (count, 1)
    run = run_with(steps(10_000), losses(leaping, 10_000, norm=0.3))
    run.data.losses.curves["loss", True] = curve
    section = training_section(run)
    assert section
    assert len(section.html) < MOST


@pytest.mark.parametrize("order", [list, reversed])
def test_a_curve_is_the_same_in_whatever_order_its_files_are_read(order: Callable[[range], Iterable[int]]) -> None:
    curve = LossCurve()
    for step in order(range(1, 5_001)):
        curve.add(step * 10**14 if step == 5_000 else step, float(step), is_wrong=False)
    intervals = list(curve)
    assert [interval.begin for interval in intervals] == sorted(interval.begin for interval in intervals)
    assert sum(interval.mean * interval.lines for interval in intervals) == pytest.approx(sum(range(5_001)))
    assert len(intervals) > MAX_INTERVALS / 2 - 50


def test_without_durations_the_loss_has_a_heading_of_its_own_and_without_losses_there_is_nothing() -> None:
    section = drawn(losses(leaping))
    assert "<h3>Loss and gradients</h3>" in section
    assert 'class="steps"' not in section
    assert 'class="loss"' not in drawn(steps())


def test_the_name_of_a_file_is_text() -> None:
    data = RunData()
    for name in ("<b>\u202e.log", "other.log"):
        data.add(losses(leaping), name)
    section = training_section(TrainingRun("x", data))
    assert section
    assert "&lt;b&gt;" in section.html
    assert not re.search("<b>\u202e|\u202e", section.html)
