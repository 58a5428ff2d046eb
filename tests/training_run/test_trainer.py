"""Output and state of Hugging Face's Trainer give losses and, if its bar shows them, steps and their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.losses import LOG
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.logs import bar, deepspeed, hugging_face, lasting, read, titan

STEPS = 400
EVALUATED = "{'eval_loss': nan, 'eval_runtime': 45.1, 'eval_samples_per_second': 5.0, 'epoch': 0.5}"
ENDED = (
    "{'train_runtime': 80.0, 'train_samples_per_second': 5.0, 'train_steps_per_second': 5.0, "
    "'train_loss': 2.0, 'epoch': 2.0}\n"
)


def nothing(_: int, __: float) -> str:
    return ""


def trained(
    lasts: float = 3.0,
    *,
    first: int = 1,
    each: int = 10,
    behind: Callable[[int, float], str] = nothing,
    held_up: Callable[[int], float] = lambda _: 0.0,
) -> str:
    """A run whose steps take this long; `behind` follows a step, and delays the next one."""
    text, time = bar(0, STEPS, 0), 5.0
    for step in range(first, STEPS + 1):
        time += lasts
        text += bar(step, STEPS, time)
        if step % each == 0:
            text += hugging_face(step / 200, 2 + 9 / step) + bar(step, STEPS, time)
        text += behind(step, time)
        time += held_up(step)
    return text + "\n"


def seconds(run: TrainingRun) -> set[float]:
    return {round(duration, 1) for duration in lasting(run).values()}


def losses(values: Sequence[object], norm: object = 0.9) -> str:
    return "".join(hugging_face(step / 100, value, norm) for step, value in enumerate(values, 1))


@pytest.mark.parametrize("prefix", ["", "0: ", "[rank0]: ", "[default0]:", "trainer-1  | "])
def test_losses_are_read_with_the_epoch_of_their_line(tmp_path: Path, prefix: str) -> None:
    text = losses([2.0] * 150 + [30.0] + [2.0] * 50).replace("{'loss'", f"{prefix}{{'loss'")
    assert result_of("run.loss_spikes", read(tmp_path, text)).message.startswith(
        "rank 0: the loss is 30 at epoch 1.51, 15 times the largest of the 100 lines before"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "inf", "-inf"], ids=repr)
def test_a_loss_that_is_no_number_fails_as_any_version_prints_it(tmp_path: Path, value: object) -> None:
    number: object = "2.31" if isinstance(value, str) else 2.31
    assert result_of("run.loss_finite", read(tmp_path, losses([number] * 9))).verdict.value == "pass"
    result = result_of("run.loss_finite", read(tmp_path, losses([number] * 9 + [value] * 3)))
    assert (
        result.message
        == f"rank 0: the loss is {float(str(value))} from epoch 0.1 on, in 3 of 12 lines; expected a number"
    )


def test_what_it_evaluates_and_its_last_line_are_no_losses_of_training(tmp_path: Path) -> None:
    run = read(tmp_path, losses([2.0] * 9) + f"{EVALUATED}\n" + "{'loss': nan, 'epoch': 1}\n" + ENDED)
    assert run.data.losses.losses[0, LOG].lines == 9
    assert result_of("run.loss_finite", run).verdict.value == "pass"


def test_a_norm_that_is_none_while_trainer_prints_0_for_the_loss_is_a_concern(tmp_path: Path) -> None:
    result = result_of("run.loss_finite", read(tmp_path, losses([2.0] * 9) + losses([0.0] * 9, float("nan"))))
    assert result.verdict.value == "concern"


def test_losses_of_0_without_a_norm_are_no_evidence_of_losses(tmp_path: Path) -> None:
    result = result_of("run.loss_finite", read(tmp_path, losses([2.0] * 9 + [0.0] * 3, None)))
    assert (result.verdict.value, "logging_nan_inf_filter" in result.message) == ("incomplete", True)
    for text in (losses([2.0] * 9 + [0.0] * 2, None), losses([2.0] * 9 + [0.0] * 3)):
        assert result_of("run.loss_finite", read(tmp_path, text)).verdict.value == "pass"


def test_a_line_that_each_node_prints_counts_once(tmp_path: Path) -> None:
    values: Sequence[object] = [2.0] * 150 + [5.0] + [2.0] * 50
    lines = losses(values).splitlines(keepends=True)
    run = read(tmp_path, "".join(line * 8 for line in lines))
    assert run.data.losses.losses[0, LOG].lines == len(values)
    assert result_of("run.loss_spikes", run).verdict.value == "pass"


def test_a_bar_is_of_training_though_each_node_prints_the_losses(tmp_path: Path) -> None:
    text = trained().replace("\r", "\n")
    lines = [line * (8 if line.startswith("{'loss'") else 1) for line in text.splitlines(keepends=True)]
    assert seconds(read(tmp_path, "".join(lines))) == {3.0}


@pytest.mark.parametrize("end", [ENDED, "", bar(0, STEPS, 0)], ids=["ended", "begun again", "a new bar"])
def test_a_second_training_is_not_compared_with_the_first(tmp_path: Path, end: str) -> None:
    falls = losses([20.0 if step < 5 else 0.5 for step in range(150)])
    assert result_of("run.loss_spikes", read(tmp_path, falls + end + falls)).verdict.value == "pass"


def test_steps_are_as_long_as_the_bar_says_in_half_a_minute_and_more(tmp_path: Path) -> None:
    run = read(tmp_path, trained())
    assert seconds(run) == {3.0}
    assert run.step_count == 390  # all but the first, and those for which the end is too short
    assert result_of("run.step_outliers", run).verdict.value == "pass"


def test_a_second_that_is_rounded_is_no_long_step(tmp_path: Path) -> None:
    run = read(tmp_path, trained(1.3))
    assert max(lasting(run).values()) / min(lasting(run).values()) < 1.1
    assert result_of("run.step_outliers", run).verdict.value != "concern"


def test_steps_that_are_longer_from_one_on_are_found(tmp_path: Path) -> None:
    text = trained(40.0, held_up=lambda step: 20.0 * (step > 200))
    assert result_of("run.step_drift", read(tmp_path, text)).message.startswith(
        "from step 202 on steps take 60 s, 1.5 times"
    )


def evaluation(step: int, time: float) -> str:
    """As drawn below the bar after every hundredth step."""
    if step % 100:
        return ""
    below = "".join(bar(batch, 20, 5 * batch, is_nested=True) for batch in range(21))
    return (
        below + f"\r    \n\r    \r\x1b[A{EVALUATED}\n" + bar(step, STEPS, time + 100) + bar(20, 20, 100, is_nested=True)
    )


def saving(step: int, _: float) -> str:
    return "" if step % 100 else "Saving model checkpoint to /fsx/out/checkpoint-100\n"


@pytest.mark.parametrize("behind", [evaluation, saving])
def test_what_an_evaluation_and_a_checkpoint_take_is_none_of_the_steps(
    tmp_path: Path, behind: Callable[[int, float], str]
) -> None:
    text = trained(behind=behind, held_up=lambda step: 0.0 if step % 100 else 100.0)
    for shown in (text, text.replace("\x1b[A", "")):  # as some log collectors leave it
        run = read(tmp_path, shown)
        assert seconds(run) == {3.0}
        assert run.step_count > 300


@pytest.mark.parametrize("batches", [20, STEPS])
def test_a_bar_of_evaluation_is_no_training(tmp_path: Path, batches: int) -> None:
    own = "".join(bar(batch, batches, 7 * batch) for batch in range(batches + 1)) + "\n"
    assert read(tmp_path, losses([2.0] * 9) + own + losses([2.0] * 9) + own).data.steps == {}
    run = read(tmp_path, own + trained() + own)
    assert seconds(run) == {3.0}
    assert run.step_count == 390


def test_a_log_without_carriage_returns_reads_the_same(tmp_path: Path) -> None:
    """As a terminal's text is copied: the remains of overwritten lines."""
    shown = trained().replace("\r", "\n").replace("]\n" + " " * 48 + "\n{", "]{")
    assert "]{'loss'" in shown
    run = read(tmp_path, shown)
    assert (seconds(run), run.step_count) == ({3.0}, 390)
    assert run.data.losses.losses[0, LOG].lines == STEPS // 10


def test_steps_of_ms_swift_are_those_that_its_lines_have(tmp_path: Path) -> None:
    text = trained(
        behind=lambda step, _: hugging_face(step / 200).replace("}", f", 'global_step/max_steps': '{step}/400'}}")
    )
    run = read(tmp_path, text.replace("\r ", "\rTrain:  "))
    assert seconds(run) == {3.0}
    bad = hugging_face(0.1, float("nan")).replace("}", ", 'global_step/max_steps': '7/400'}")
    assert "is nan from step 7 on" in result_of("run.loss_finite", read(tmp_path, bad)).message


@pytest.mark.parametrize(
    "label",
    [
        "0: ",
        "[rank0]:",
        "2026-05-18T16:00:00.123456789Z ",
        "[pod/llama-worker-0/pytorch] ",
        "May 18 16:00:00 gpu001 python[4242]: ",
        "trainer-1  | ",
        "[1,0]<stdout>:",
        "(train_func pid=4242) ",
    ],
)
def test_a_bar_is_read_behind_the_labels_of_its_lines(tmp_path: Path, label: str) -> None:
    lines = trained().replace("\r", "\n").splitlines()
    assert seconds(read(tmp_path, "".join(f"{label}{line}\n" for line in lines))) == {3.0}


def test_a_bar_with_a_name_is_none_of_training(tmp_path: Path) -> None:
    assert read(tmp_path, trained().replace("\r", "\rMap: ")).data.steps == {}


def test_a_run_that_goes_on_from_a_checkpoint_begins_at_its_step(tmp_path: Path) -> None:
    run = read(tmp_path, trained(first=201))
    assert seconds(run) == {3.0}
    assert min(lasting(run)) > 201
    assert run.step_count <= 199


def test_a_bar_by_itself_counts_where_the_number_of_steps_is_said(tmp_path: Path) -> None:
    bars = trained(each=STEPS + 1)
    assert read(tmp_path, "  Total optimization steps = 1,234\n" + bars).data.steps == {}
    assert seconds(read(tmp_path, f"  Total optimization steps = {STEPS}\n" + bars)) == {3.0}


@pytest.mark.long
def test_a_bar_may_be_drawn_for_longer_than_a_line_may_be(tmp_path: Path) -> None:
    text = "it begins\n" + trained(each=STEPS) * 60
    assert max(map(len, text.encode().split(b"\n"))) < len(text) // 50
    long = "it begins\n  Total optimization steps = 400\n" + (trained(each=STEPS + 1).rstrip("\n") * 60)
    assert max(map(len, long.encode().split(b"\n"))) > 1 << 20
    assert seconds(read(tmp_path, long)) == {3.0}


@pytest.mark.long
def test_an_error_behind_a_long_drawn_bar_has_its_line(tmp_path: Path) -> None:
    drawn = "it begins\n" + "".join(bar(step, STEPS, step) for step in range(STEPS)) * 20 + "\n"
    with pytest.raises(RunError, match=r"train\.log:3: month must be in 1\.\.12"):
        read(tmp_path, drawn + titan(7, 1).replace("2025-06", "2025-66"))


def test_steps_that_deepspeed_prints_go_before_those_of_the_bar(tmp_path: Path) -> None:
    def printed(step: int, time: float) -> str:
        return f"\n{deepspeed(step, time)}" if step % 10 == 0 else ""

    run = read(tmp_path, trained(2.5, behind=printed))
    assert set(lasting(run)) == set(range(20, STEPS + 1, 10))
    assert run.data.losses.losses[0, LOG].lines == STEPS // 10


@pytest.mark.long
def test_a_log_whose_first_line_comes_late_is_known_all_the_same(tmp_path: Path) -> None:
    run = read(tmp_path, "gpu001:7:9 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 40_000 + losses([2.0] * 9))
    assert run.data.losses.losses[0, LOG].lines == 9
