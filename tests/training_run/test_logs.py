"""Logs of Megatron-LM, NeMo and torchtitan give iteration times, whatever else they contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import result_of
from tests.training_run.logs import MEGATRON, SAVED, breakdown, deepspeed, lasting, megatron, read, titan


@pytest.mark.parametrize(
    "prefix", ["", " ", "1: ", "[default0]: [2025-05-27 15:23:07] ", "[Rank 0 | Local Rank 0] INFO "]
)
def test_iterations_of_megatron_are_read_by_their_elapsed_time(tmp_path: Path, prefix: str) -> None:
    run = read(tmp_path, "".join(megatron(step, 500 + step, prefix) + "warning: anything\n" for step in range(1, 9)))
    assert lasting(run) == {step: 0.5 + step / 1000 for step in range(1, 9)}


def test_seconds_of_megatron_deepspeed_are_read_as_such(tmp_path: Path) -> None:
    """BLOOM's log of 2022, as quoted in bigscience's chronicles."""
    text = "".join(megatron(step, 105.25, "[default7]: ").replace("(ms): 105.2", "(s): 105.25") for step in range(1, 9))
    assert lasting(read(tmp_path, text)) == dict.fromkeys(range(1, 9), 105.25)


def test_a_mean_behind_the_elapsed_time_is_not_it(tmp_path: Path) -> None:
    text = megatron(7, 500).replace("500.0 |", "500.0/444.4 |")
    assert lasting(read(tmp_path, text)) == {7: 0.5}


def test_timers_of_megatron_give_the_start_the_wait_for_data_and_checkpoints(tmp_path: Path) -> None:
    text = MEGATRON + "".join(
        megatron(step, 1000)
        + "    batch-generator ................................: (34.22, 150.00)\n"
        + (SAVED if step % 50 == 0 else "")
        for step in range(1, 201)
    )
    run = read(tmp_path, text)
    assert {name for _, name in run.data.parts} == {"init", "data", "checkpoint"}
    assert run.data.parts[0, "init"][1][0] == pytest.approx(74.648, abs=0.001)
    assert lasting(run)[50] == 9.162
    assert result_of("run.data_wait", run).message.startswith(
        "a rank that its files do not name waits for data for 12.8 %"
    )
    assert result_of("run.checkpoint_share", run).message.startswith(
        "a rank that its files do not name spends 14 % of its time on 4 checkpoints"
    )
    assert result_of("run.step_outliers", run).verdict.value == "pass"


def test_a_timer_on_the_line_of_its_head_is_read_too(tmp_path: Path) -> None:
    line = "(min, max) time across ranks (ms):save-checkpoint ................................: (1658.80, 1658.85)\n"
    assert read(tmp_path, megatron(7, 500) + line).data.parts[0, "checkpoint"][7][0] == pytest.approx(1.65885)


def test_steps_of_torchtitan_are_as_long_as_the_time_between_their_lines(tmp_path: Path) -> None:
    text = "".join(titan(10 * number, 14.0 * number) for number in range(1, 30))
    assert lasting(read(tmp_path, text)) == {10 * number: 1.4 for number in range(2, 30)}


def test_colours_lines_of_other_ranks_and_checkpoints_are_understood(tmp_path: Path) -> None:
    saved = (
        "[rank0]:[titan] - INFO - Finished saving the checkpoint (or staging if async is enabled) in 5.53 seconds.\n"
    )
    text = (
        titan(1, 1) + titan(1, 1, prefix="[rank3]:") + titan(2, 3, colour="\x1b[31m") + titan(2, 4, prefix="[rank3]:")
    )
    run = read(tmp_path, text + saved + titan(3, 12))
    assert lasting(run) == {2: 2, 3: 9}
    assert lasting(run, 3) == {2: 3}
    assert run.data.parts[0, "checkpoint"][3][0] == 5.53


@pytest.mark.parametrize("between", ["validate step: {} loss: 5.1 memory: 9.46GiB", "Training starts at step {}"])
def test_the_clock_of_torchtitan_begins_anew_behind_a_validation_and_a_restart(tmp_path: Path, between: str) -> None:
    line = titan(0, 1000).partition("step:")[0] + between.format(10) + "\n"
    text = titan(9, 9) + titan(10, 10) + line + titan(11, 1001 if "validate" in line else 1002) + titan(12, 1003)
    assert lasting(read(tmp_path, text)) == ({10: 1, 11: 1, 12: 2} if "validate" in line else {10: 1, 12: 1})


def test_losses_of_a_validation_are_none_of_training(tmp_path: Path) -> None:
    text = "".join(titan(step, step) + titan(step, step).replace("step:", "validate step:") for step in range(1, 9))
    assert read(tmp_path, text).data.losses.losses[0, 0].lines == 8


def test_timers_on_one_line_as_older_versions_print_them_are_read(tmp_path: Path) -> None:
    """NVIDIA/nccl#743, and deepspeedai/DeepSpeed#3742 of GPT-NeoX."""
    timers = "time (ms) | forward-compute: 193.77 | optimizer: 63.01 | {}: 250.00\n"
    for name in ("batch-generator", "batch generator"):
        run = read(tmp_path, "".join(megatron(step, 1000) + timers.format(name) for step in range(1, 9)))
        assert run.data.parts[0, "data"][8] == (0.25, 1)
    saved = read(tmp_path, megatron(1, 1000) + megatron(2, 1000) + "time (ms) | save-checkpoint: 91615.24\n")
    assert lasting(saved)[2] == 92.615


def test_lines_of_ranks_that_do_not_say_so_count_once(tmp_path: Path) -> None:
    text = "".join(titan(step, 2 * step, prefix="") * 8 for step in range(1, 9))
    assert lasting(read(tmp_path, text)) == dict.fromkeys(range(2, 9), 2.0)


def test_bytes_that_are_no_text_and_an_end_that_was_cut_cost_nothing_else(tmp_path: Path) -> None:
    text = "".join(megatron(step, 500) for step in range(1, 9)).encode()
    run = read(
        tmp_path, b"\xff\xfe progress \r\r\r 50%\n" + text + b"iteration 9/ 10 | elapsed time per iteration (ms): 4"
    )
    assert set(range(1, 9)) <= set(lasting(run))


def test_a_number_that_is_none_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"train\.log:1: elapsed time is '1\.2\.3'; expected a number"):
        read(tmp_path, megatron(7, 500).replace("500.0", "1.2.3"))
    with pytest.raises(RunError, match=r"train\.log:1: month must be in 1\.\.12"):
        read(tmp_path, titan(7, 1).replace("2025-06", "2025-66"))


@pytest.mark.long
def test_a_log_whose_first_iteration_comes_late_is_known_all_the_same(tmp_path: Path) -> None:
    start = "gpu001:7:9 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 40_000
    assert lasting(read(tmp_path, start + megatron(7, 500))) == {7: 0.5}


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("lm loss: NAN | loss scale: 1.0 | grad norm: 0.231", "fail"),
        ("lm loss: INF | loss scale: 1.0 | grad norm: 0.231", "fail"),
        ("lm loss: -NAN | loss scale: 1.0 | grad norm: nan", "fail"),
        ("lm loss: 2.5E+00 | load_balancing_loss: NAN | loss scale: 1.0 | grad norm: 0.231", "pass"),
        ("lm loss: 2.5E+00 | loss scale: 1.0 | grad norm: inf", "pass"),  # in one step, while the scale adapts
    ],
)
def test_a_loss_that_is_no_number_is_read(tmp_path: Path, words: str, verdict: str) -> None:
    bad = megatron(9, 500).replace("lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231", words)
    run = read(tmp_path, "".join(megatron(step, 500) for step in range(1, 9)) + bad)
    assert result_of("run.loss_finite", run).verdict.value == verdict


def test_a_loss_of_torchtitan_that_is_no_number_is_read(tmp_path: Path) -> None:
    text = "".join(titan(step, step) for step in range(1, 9)) + titan(9, 9).replace("6.0388", "nan")
    assert result_of("run.loss_finite", read(tmp_path, text)).message == (
        "rank 0: the loss is nan from step 9 on, in 1 of 9 lines; expected a number"
    )


def test_gradients_that_are_no_numbers_in_the_last_lines_are_a_concern(tmp_path: Path) -> None:
    lines = [
        megatron(step, 500).replace("norm: 0.231", "norm: nan" if step > 5 else "norm: 0.231") for step in range(9)
    ]
    assert result_of("run.loss_finite", read(tmp_path, "".join(lines))).verdict.value == "concern"


def test_steps_of_deepspeed_are_as_long_as_the_time_between_their_lines(tmp_path: Path) -> None:
    run = read(tmp_path, "".join(deepspeed(step, 1.5 * step) for step in (10, 20, 30)))
    assert lasting(run) == {20: 1.5, 30: 1.5}
    assert run.step_count == 20


@pytest.mark.parametrize("how", ["its first line", "a count of steps that begins again"])
def test_the_time_between_two_runs_is_no_step_of_deepspeed(tmp_path: Path, how: str) -> None:
    before, after = deepspeed(10, 10) + deepspeed(20, 20), deepspeed(30, 2000) + deepspeed(40, 2010)
    if how == "its first line":
        after = "[2024-04-21 02:30:00,723] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0\n" + after
    else:
        after = after.replace("global_step=30", "global_step=10").replace("global_step=40", "global_step=20")
    assert lasting(read(tmp_path, before + after)) == {20: 1, 40: 1}


def test_an_evaluation_of_trainer_is_no_step_of_deepspeed(tmp_path: Path) -> None:
    evaluation = "{'eval_loss': 2.1, 'eval_runtime': 120.1, 'epoch': 0.3}\n"
    text = deepspeed(10, 10) + deepspeed(20, 20) + evaluation + deepspeed(30, 150) + deepspeed(40, 160)
    assert lasting(read(tmp_path, text)) == {20: 1, 40: 1}


def test_timers_of_deepspeed_are_those_of_the_steps_that_a_line_stands_for(tmp_path: Path) -> None:
    text = "".join(breakdown(step) if step % 2 else deepspeed(step, step) + breakdown(step) for step in range(1, 8))
    run = read(tmp_path, text)
    assert {step: round(mean, 5) for step, (mean, _) in run.data.compute[0, "forward"].items()} == {
        4: 0.0035,
        6: 0.0055,
    }
    assert run.data.compute[0, "backward"][4][0] == pytest.approx(0.4)


def test_steps_of_megatron_that_runs_by_deepspeed_count_once(tmp_path: Path) -> None:
    run = read(tmp_path, "".join(deepspeed(step, step) + megatron(step, 500) for step in range(1, 6)))
    assert lasting(run) == dict.fromkeys(range(1, 6), 0.5)
    assert run.step_count == 5


@pytest.mark.long
def test_a_log_of_deepspeed_whose_steps_come_late_is_known(tmp_path: Path) -> None:
    run = read(tmp_path, "NCCL INFO says a lot\n" * 100_000 + deepspeed(1, 1) + deepspeed(2, 3))
    assert lasting(run) == {2: 2.0}


# A line as quoted in NeMo 2's own benchmarks, with and without srun's label.
NEMO = (
    "Training epoch 0, iteration {0}/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: {0} | "
    "max_memory_reserved: 127785762816 | reduced_train_loss: {1} | train_step_timing in s: {2} | "
    "TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888 | val_loss: 2.861\n"
)


@pytest.mark.parametrize("label", ["", "0: "])
def test_a_line_of_nemos_is_one_step_with_its_time_and_the_loss_of_training(tmp_path: Path, label: str) -> None:
    lines = [label + NEMO.format(step, 11.96 - step / 100, 6.08) for step in range(60)]
    (tmp_path / "log.out").write_text("[NeMo I nemo_logging:393] begins\n" + "".join(lines), encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert [run.data.steps[0][step] for step in (0, 59)] == [(6.08, 1), (6.08, 1)]
    assert run.data.losses.losses[0, False].lines == 60


def test_a_loss_of_nemos_that_is_no_number_fails(tmp_path: Path) -> None:
    lines = [NEMO.format(step, "nan" if step > 40 else 2.5, 6.08) for step in range(60)]
    (tmp_path / "log.out").write_text("".join(lines), encoding="utf-8")
    result = result_of("run.loss_finite", read_run([str(tmp_path)]))
    assert result.message.startswith("rank 0: the loss is nan from step 41 on, in 19 of 60 lines")
