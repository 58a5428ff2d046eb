"""A log line covers all iterations since the previous one: results do not depend on the logging interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.suite.training_run import RunHeader
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.logs import MEGATRON, megatron, read, titan

STEPS, SAVE_EACH = 1000, 100


def logged(each: Sequence[int], *, lasts: float = 1.0, save_s: float = 4.0, data_ms: float = 20.0) -> str:
    """A run of Megatron-LM that saves every hundredth iteration, and logs at these."""
    lines = []
    for step in range(1, STEPS + 1):
        if step in each:
            lines.append(megatron(step, 1000 * lasts))
            lines.append(f"    batch-generator ................................: ({data_ms:.2f}, {data_ms:.2f})\n")
        if step % SAVE_EACH == 0:
            ms = 1000 * save_s
            lines.append(f"    save-checkpoint ................................: ({ms:.2f}, {ms:.2f})\n")
    return MEGATRON + "".join(lines)


def every(interval: int) -> range:
    return range(interval, STEPS + 1, interval)


def spent(run: TrainingRun, check: str) -> str:
    return result_of(check, run).message.partition(";")[0]


INTERVALS = pytest.mark.parametrize(
    "at", [every(1), every(2), every(10), every(100), [1, 3, 10, 12, 50, *range(100, 1001, 25)]], ids=str
)


@pytest.mark.long
@INTERVALS
def test_a_run_has_as_many_steps_and_spends_as_much_on_checkpoints(tmp_path: Path, at: Iterable[int]) -> None:
    run = read(tmp_path, logged(list(at)))
    assert RunHeader(run).pytest_report_header()[0] == "run: train: 1 file, 1 rank, 1,000 steps"
    assert sum(step.times for step in run.every_step) == STEPS
    share = run.share("checkpoint")
    assert (share.times, share.seconds, share.of) == pytest.approx((10, 40, 1040))
    assert result_of("run.checkpoint_share", run).verdict.value == "pass"


@pytest.mark.long
@INTERVALS
def test_what_it_says_of_checkpoints_the_start_and_data_is_the_same(tmp_path: Path, at: Iterable[int]) -> None:
    run = read(tmp_path, logged(list(at), save_s=20.0, data_ms=100.0, lasts=0.4))
    assert spent(run, "run.checkpoint_share") == (
        "a rank that its files do not name spends 33.3 % of its time on 10 checkpoints"
    )
    assert spent(run, "run.init_time") == "75 s to the first step, 11.1 % of all that was logged"
    assert run.share("data").share == pytest.approx(100 / 600)


@pytest.mark.long
@pytest.mark.parametrize("interval", [1, 2, 5, 10])
def test_what_is_lost_in_long_steps_does_not_depend_on_how_often_it_is_logged(tmp_path: Path, interval: int) -> None:
    seconds = [31.0 if step % 200 == 50 else 1.0 for step in range(1, STEPS + 1)]
    lines = [megatron(step, 1000 * sum(seconds[step - interval : step]) / interval) for step in every(interval)]
    result = result_of("run.step_outliers", read(tmp_path, "".join(lines)))
    assert result.verdict.value == "concern"
    assert "13.1 % of the time is lost" in result.message or "13.2 %" in result.message


@pytest.mark.long
@pytest.mark.parametrize("interval", [1, 2, 10])
def test_a_change_that_stays_is_found_at_its_step(tmp_path: Path, interval: int) -> None:
    lines = [megatron(step, 1200.0 if step > 500 else 1000.0) for step in every(interval)]
    message = result_of("run.step_drift", read(tmp_path, "".join(lines))).message
    assert message.startswith("from step 501 on steps take 1.2 s, 1.2 times the 1 s before")


def test_few_lines_of_many_steps_are_incomplete_and_say_what_to_log(tmp_path: Path) -> None:
    run = read(tmp_path, logged(every(100)))
    message = "9 lines that stand for 900 steps; expected at least"
    for check in ("run.step_outliers", "run.step_drift"):
        result = result_of(check, run)
        assert result.verdict.value == "incomplete"
        assert result.message.startswith(message)
        assert "--log-interval" in result.message


def test_time_that_is_lost_within_lines_is_no_pass(tmp_path: Path) -> None:
    """One step of ten takes twice as long: that raises the mean of two in ten lines by a tenth."""
    lines = [megatron(step, 1160.0 if step % 50 == 0 else 1000.0) for step in every(10)]
    result = result_of("run.step_outliers", read(tmp_path, "".join(lines)))
    assert result.verdict.value == "incomplete"
    assert "log each step" in result.message


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (megatron(10, 500), {10: 1}),
        (megatron(10, 500) + megatron(20, 500), {10: 10, 20: 10}),
        (MEGATRON + megatron(10, 500), {10: 10}),
        (megatron(1010, 500) + megatron(1020, 500), {1010: 10, 1020: 10}),
        (megatron(3, 500) + megatron(10, 500) + megatron(20, 500), {3: 3, 10: 7, 20: 10}),
        (
            MEGATRON
            + " loading checkpoint from /fsx/a at iteration 1005\n"
            + "  successfully loaded checkpoint from /fsx/a [ t 0, p 0 ] at iteration 1005\n"
            + megatron(1010, 500)
            + megatron(1020, 500),
            {1010: 5, 1020: 10},
        ),
        (megatron(10, 500) * 2 + megatron(20, 500) * 2, {10: 10, 20: 10}),
    ],
    ids=["alone", "from the start", "one line", "later", "irregular", "after a restart", "printed twice"],
)
def test_the_first_line_stands_for_what_can_be_known(tmp_path: Path, text: str, times: dict[int, int]) -> None:
    run = read(tmp_path, text)
    assert {step.step: step.times for step in run.every_step} == times


GROWING = [("global batch size:   288", "global batch size:   576"), ("|\n", "| actual seqlen:  4096 |\n")]


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), GROWING, ids=["a larger batch", "longer sequences"])
def test_steps_that_take_longer_as_they_do_more_are_neither_outliers_nor_a_drift(
    tmp_path: Path, before: str, after: str
) -> None:
    def text(ms: float) -> str:
        lines = [megatron(step, 500) for step in range(1, 401)]
        lines += [megatron(step, 1000).replace(before, after) for step in range(401, 651)]
        return "".join([*lines, *(megatron(step, ms).replace(before, after) for step in range(651, 901))])

    run = read(tmp_path, text(1000))
    assert [result_of(check, run).verdict.value for check in ("run.step_outliers", "run.step_drift")] == [
        "pass",
        "pass",
    ]
    slower = result_of("run.step_drift", read(tmp_path, text(1300))).message
    assert slower.startswith("from step 651 on steps take 1.3 s, 1.3 times the 1 s before")


@pytest.mark.long
@pytest.mark.parametrize("interval", [1, 10])
def test_a_log_that_is_there_twice_has_as_many_steps(tmp_path: Path, interval: int) -> None:
    for name in ("out.log", "stdout.log"):
        (tmp_path / name).write_text("".join(megatron(step, 500) for step in every(interval)), encoding="utf-8")
    assert read_run([str(tmp_path)]).step_count == STEPS


@pytest.mark.parametrize("how", ["each line", "each block"])
def test_what_is_printed_twice_takes_no_longer(tmp_path: Path, how: str) -> None:
    blocks = []
    for step in range(10, 101, 10):
        waiting = "    batch-generator ................................: (200.00, 200.00)\n"
        saved = "    save-checkpoint ................................: (4000.00, 4000.00)\n"
        blocks.append([megatron(step, 1000), waiting, *([saved] if step % 50 == 0 else [])])
    twice = (
        "".join("".join(block) * 2 for block in blocks)
        if how == "each block"
        else "".join(line * 2 for block in blocks for line in block)
    )
    run = read(tmp_path, twice)
    share = run.share("checkpoint")
    assert (share.seconds, share.of, share.times) == pytest.approx((8, 108, 2))
    assert run.share("data").seconds == pytest.approx(20)


def test_a_restart_within_a_log_counts_what_was_done_twice_as_time_and_once_as_steps(tmp_path: Path) -> None:
    loaded = "  successfully loaded checkpoint from /fsx/a [ t 0, p 0 ] at iteration 25\n"
    text = "".join(megatron(step, 1000) for step in (10, 20, 30)) + MEGATRON + loaded
    run = read(tmp_path, text + "".join(megatron(step, 1000) for step in (30, 40)))
    assert sum(taken.times for taken in run.every_step) == 40
    assert run.share("init").of == pytest.approx(30 + 5 + 10 + 74.648 - 1, abs=0.01)
    assert {taken.step: round(taken.seconds, 6) for taken in run.every_step} == dict.fromkeys((10, 20, 30, 40), 1.0)


@pytest.mark.long
def test_several_starts_are_not_one_long_start(tmp_path: Path) -> None:
    text = (MEGATRON + "".join(megatron(step, 1000) for step in range(10, 5001, 10))) * 20
    assert result_of("run.init_time", read(tmp_path, text)).verdict.value == "pass"


def test_the_load_of_a_checkpoint_is_a_part_of_the_setup_of_the_model(tmp_path: Path) -> None:
    text = (
        "    load-checkpoint ................................: (20000.0, 20000.0)\n"
        "    model-and-optimizer-setup ......................: (30000.0, 30000.0)\n"
    )
    assert read(tmp_path, text + megatron(1, 1000)).share("init").seconds == pytest.approx(30)


@pytest.mark.parametrize("interval", [1, 2, 10])
def test_steps_of_torchtitan_weigh_as_many_as_they_are(tmp_path: Path, interval: int) -> None:
    saved = "[rank0]:[titan] - INFO - Finished saving the checkpoint in 3.00 seconds.\n"
    lines = ""
    for step in range(0, 201, interval):
        lines += titan(step, 1.0 * step + 3 * (step > 100))
        lines += saved * (step in (100, 200))
    run = read(tmp_path, lines + titan(210, 216))
    assert sum(taken.times for taken in run.every_step) == 210
    share = run.share("checkpoint")
    assert (share.times, share.seconds, share.of) == pytest.approx((2, 6, 216))


def test_checkpoints_count_to_the_rank_that_saves_them(tmp_path: Path) -> None:
    lines = "".join(titan(step, 10.0 * step, prefix=f"[rank{rank}]:") for step in (0, 1) for rank in range(8))
    saved = "".join(f"[rank{rank}]:[titan] Finished saving the checkpoint in 5.00 seconds.\n" for rank in range(8))
    last = "".join(titan(2, 35.0, prefix=f"[rank{rank}]:") for rank in range(8))
    run = read(tmp_path, lines + saved + last)
    assert {rank: cells[2][0] for (rank, _), cells in run.data.parts.items()} == dict.fromkeys(range(8), 5.0)
