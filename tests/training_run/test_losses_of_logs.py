"""Losses in logs: also omitted, printed elsewhere, or from several ranks and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import result_of
from tests.training_run.logs import finite, megatron, read, titan

LOSS, NORM = "lm loss: 2.504220E+00 |", "grad norm: 0.231 |"


def iteration(step: int, *, loss: str = LOSS, norm: str = NORM, skipped: int = 0, nans: int = 0) -> str:
    """A Megatron-LM line: a loss that is nan is not above 0, and is omitted."""
    counted = f"number of skipped iterations: {skipped:3d} | number of nan iterations: {nans:3d} |"
    line = megatron(step, 500).replace(LOSS, loss).replace(NORM, norm)
    return line.replace("number of skipped iterations:   0 |", counted)


def healthy(count: int, of: Callable[[int], str] = iteration) -> str:
    return "".join(of(step) for step in range(1, count + 1))


@pytest.mark.parametrize(
    ("last", "verdict", "words"),
    [
        # bigscience-workshop/Megatron-DeepSpeed#396, epfLLM/Megatron-LLM#33
        ({"skipped": 1, "nans": 1, "norm": ""}, "fail", "rank 0: the loss is nan from step 9 on, in 4 of 12 lines"),
        ({"norm": "grad norm: nan |"}, "fail", "rank 0: the loss is nan from step 9 on, in 4 of 12 lines"),
        ({"skipped": 1, "norm": ""}, "concern", "the optimizer skips every step from step 9 on, in 4 of 12 lines"),
        ({"skipped": 1, "norm": "", "loss": "lm loss: 0.000000E+00 |"}, "concern", "the optimizer skips every step"),
        ({}, "incomplete", "rank 0: the last 4 of its lines have no loss, which Megatron-LM leaves out if it is nan"),
    ],
)
def test_a_loss_that_megatron_leaves_out_at_the_end_does_not_pass(
    tmp_path: Path, last: dict[str, Any], verdict: str, words: str
) -> None:
    result = finite(tmp_path, healthy(8) + "".join(iteration(step, **{"loss": "", **last}) for step in range(9, 13)))
    assert (result.verdict.value, words in result.message) == (verdict, True), result.message


def test_a_loss_that_megatron_leaves_out_of_each_line_beside_a_norm_that_is_nan_is_nan(tmp_path: Path) -> None:
    """bigscience-workshop/Megatron-DeepSpeed#396: the job had begun from a checkpoint that was."""
    text = "".join(iteration(step, loss="", norm="grad norm: nan |") for step in range(5426, 5446))
    assert finite(tmp_path, text).message.startswith("rank 0: the loss is nan from step 5426 on, in 20 of 20 lines")


@pytest.mark.parametrize(
    "text",
    [
        "".join(iteration(step, loss="", norm="", skipped=1) for step in range(1, 12)) + iteration(12),
        healthy(8) + iteration(9, loss="", norm="grad norm: inf |", skipped=1) + iteration(10),
        healthy(8) + iteration(9, loss="", norm="", skipped=1) + iteration(10),
        healthy(8) + iteration(9)[: iteration(9).index("lm loss")],
        "".join(iteration(step, skipped=1) for step in range(10, 100, 10)),
    ],
    ids=["while the scale settles", "once, with its norm", "once", "a line that was cut", "in one of ten iterations"],
)
def test_a_line_without_its_loss_in_a_healthy_log_accuses_nobody(tmp_path: Path, text: str) -> None:
    assert finite(tmp_path, text).verdict.value == "pass"


@pytest.mark.parametrize("steps", [range(1, 5), range(10, 50, 10)])
@pytest.mark.parametrize(("later", "is_settling"), [(0, True), (40, False)])
def test_a_run_that_ends_while_its_loss_scale_settles_is_not_said_to_skip(
    tmp_path: Path, steps: range, later: int, is_settling: bool
) -> None:
    """bigscience: 20 minutes of a job that made four steps."""
    text = "".join(iteration(later + step, loss="", norm="", skipped=steps.step) for step in steps)
    result = finite(tmp_path, text)
    assert result.verdict.value == "incomplete"  # it has no loss
    assert ("while the loss scale settles" in result.message) == is_settling
    assert ("concern: rank 0: the optimizer skips every step" in result.message) != is_settling


def test_iterations_of_megatron_that_were_nan_in_the_middle_are_named(tmp_path: Path) -> None:
    result = finite(tmp_path, healthy(8) + iteration(9, nans=3) + iteration(10))
    assert result.verdict.value == "concern"
    assert "the loss is nan in 1 of 10 lines, first at step 9, then a number again" in result.message


def test_a_loss_of_gpt_neox_is_read(tmp_path: Path) -> None:
    """deepspeedai/DeepSpeed#3742."""
    neox = (
        " samples/sec: 7.799 | iteration {:8d}/   10000 | elapsed time per iteration (ms): 4103.1 | learning rate: "
        "2.111E-06 | lm_loss: {} | number of skipped iterations:   0 | number of nan iterations:   {} |\n"
    )
    text = "".join(neox.format(step, *(("NAN", 1) if step == 9 else ("9.8E+00", 0))) for step in range(1, 10))
    assert finite(tmp_path, text).message.startswith("rank 0: the loss is nan from step 9 on, in 1 of 9 lines")


def test_the_name_of_a_file_is_printed_on_one_line(tmp_path: Path) -> None:
    result = finite(tmp_path, ending(1, 9, 5), ending(1, 9), names=("a\nb\x1b[31m.log", "c.log"))
    assert result.message.isprintable()


def test_what_is_the_same_of_many_ranks_is_said_once(tmp_path: Path) -> None:
    lines = [titan(9, 9, prefix=f"[rank{rank}]:").replace("6.0388", "nan") for rank in range(8)]
    assert finite(tmp_path, "".join(lines)).message == (
        "rank 0 and 7 more: the loss is nan from step 9 on, in 1 of 1 lines; expected a number"
    )


def test_a_loss_of_minus_one_is_that_of_a_rank_without_the_last_stage_of_a_pipeline(tmp_path: Path) -> None:
    text = healthy(9, lambda step: titan(step, step).replace("6.0388", "-1.00000"))
    assert finite(tmp_path, text).verdict.value == "incomplete"
    whole = text + healthy(9, lambda step: titan(step, step, prefix="[rank4]:"))
    assert finite(tmp_path, whole).verdict.value == "pass"


def of_two_ranks(line: Callable[[int], str], number: str, last: int = 12) -> str:
    """Unattributed lines: of one rank, and of another whose loss is nan from step 9 on."""
    of_other = (line(step).replace(number, "nan" if step >= 9 else number) for step in range(1, last + 1))
    return "".join(line(step) + other for step, other in enumerate(of_other, 1))


UNLABELLED = pytest.mark.parametrize(
    ("line", "number"),
    [
        (lambda step: titan(step, step, prefix=""), "6.0388"),
        (iteration, "2.504220E+00"),
        (lambda step: f"iter {step}: loss 2.5000, time 500.00ms, mfu 4.20%\n", "2.5000"),
    ],
    ids=["torchtitan", "Megatron-LM", "nanoGPT"],
)


@UNLABELLED
def test_a_loss_that_is_nan_on_the_second_line_of_a_step_alone_is_said_once_for_each_step(
    tmp_path: Path, line: Callable[[int], str], number: str
) -> None:
    text = of_two_ranks(line, number)
    result = finite(tmp_path, text + text.splitlines(keepends=True)[-1])
    assert (result.verdict.value, result.message) == (
        "fail",
        "rank 0: the loss is nan from step 9 on, in 4 of 16 lines; expected a number",
    )


@UNLABELLED
def test_a_loss_that_was_nan_on_the_second_line_of_a_step_alone_is_a_concern(
    tmp_path: Path, line: Callable[[int], str], number: str
) -> None:
    text = of_two_ranks(line, number) + line(13)
    result = finite(tmp_path, text)
    assert result.verdict.value == "concern"
    assert "the loss is nan in 4 of 17 lines, first at step 9, then a number again" in result.message


@UNLABELLED
def test_a_second_line_of_each_step_counts_no_loss_twice(
    tmp_path: Path, line: Callable[[int], str], number: str
) -> None:
    assert read(tmp_path, of_two_ranks(line, number, 8)).data.losses.losses[0, 0].lines == 8


def test_a_line_of_torchtitan_that_comes_late_is_read_where_its_loss_is_nan(tmp_path: Path) -> None:
    text = healthy(9, lambda step: titan(step, step, prefix=""))
    result = finite(tmp_path, text + titan(7, 9, prefix="").replace("6.0388", "nan"))
    assert result.message == "rank 0: the loss is nan from step 7 on, in 1 of 10 lines; expected a number"


def test_the_norm_on_the_second_line_of_a_step_is_said_beside_the_loss_on_the_first(tmp_path: Path) -> None:
    lines = (iteration(step) + iteration(step, norm="grad norm: nan |") for step in range(1, 9))
    run = read(tmp_path, "".join(lines))
    assert (run.data.losses.losses[0, 0].wrong, run.data.losses.norms[0, 0].at_end) == (0, 8)


def ending(first: int, last: int, nan_from: int = 10**6) -> str:
    return "".join(
        titan(step, step % 3000).replace("6.0388", "nan" if step >= nan_from else "6.0388")
        for step in range(first, last + 1)
    )


def again(last: int, nan_from: int = 10**6) -> str:
    """The same lines from a job on the next day."""
    return ending(1, last, nan_from).replace("2025-06-16", "2025-06-17")


def undated(last: int, nan_from: int = 10**6) -> str:
    return "".join(iteration(step, loss="lm loss: nan |" if step >= nan_from else LOSS) for step in range(1, last + 1))


@pytest.mark.parametrize(
    ("names", "texts", "verdict", "words"),
    [
        (("slurm-1000.out", "slurm-999.out"), (ending(31, 50, 40), ending(1, 30)), "fail", "rank 0 (slurm-1000.out)"),
        (("slurm-1000.out", "slurm-999.out"), (ending(26, 50), ending(1, 30, 26)), "concern", "rank 0 (slurm-999.out)"),
        (("a.log", "b.log"), (ending(1, 30, 20), ending(1, 33)), "fail", "rank 0 (a.log)"),
        (("slurm-999.out", "slurm-1000.out"), (ending(1, 30, 20), again(33)), "concern", "rank 0 (slurm-999.out)"),
        (("b.log", "a.log"), (ending(1, 30, 20), again(33)), "concern", "rank 0 (b.log)"),
        (("slurm-1.out", "slurm-2.out"), (again(33, 20), ending(1, 33)), "fail", "rank 0 (slurm-1.out)"),
        (("slurm-1.out", "slurm-2.out"), (ending(1, 30, 20), again(29)), "fail", "rank 0 (slurm-1.out)"),
        (("slurm-9.out", "slurm-10.out"), (undated(30, 20), undated(33)), "concern", "rank 0 (slurm-9.out)"),
        (("slurm-9.out", "slurm-10.out"), (undated(33), undated(30, 20)), "fail", "rank 0 (slurm-10.out)"),
        (("a.log", "b.log"), (undated(30, 20), undated(33)), "fail", "rank 0 (a.log)"),
        (("rank0.log", "rank3.log"), (ending(1, 30), ending(1, 30, 20)), "fail", "rank 3 (rank3.log)"),
        (
            tuple(f"attempt_0/{rank}/stderr.log" for rank in range(3)),
            (ending(1, 30), ending(1, 30, 20), ending(1, 30)),
            "fail",
            "rank 1 (attempt_0/1/stderr.log)",
        ),
    ],
    ids=[
        "read before the job that it went on from",
        "went on in another job",
        "side by side",
        "begun again from the first step",
        "begun again, as the dates say",
        "begun before",
        "begun again, and not yet as far",
        "begun again without dates, as the numbers of the jobs say",
        "begun again, and nan",
        "without dates or numbers",
        "of two ranks",
        "of torchrun's folders",
    ],
)
def test_the_losses_of_several_files_are_told_apart(
    tmp_path: Path, names: tuple[str, ...], texts: tuple[str, ...], verdict: str, words: str
) -> None:
    result = finite(tmp_path, *(text.replace("[rank0]:", "") for text in texts), names=names)
    assert (result.verdict.value, result.message.partition(":")[0]) == (verdict, words), result.message


@pytest.mark.long
@pytest.mark.parametrize(("files", "times"), [(2, 1), (1, 2), (5, 1)], ids=["saved twice", "appended to", "copies"])
def test_losses_that_begin_again_are_no_spike(tmp_path: Path, files: int, times: int) -> None:
    lines = [titan(step, step).replace("6.0388", f"{2 + 7 / step:.4f}") for step in range(1, 301)]
    for number in range(files):
        (tmp_path / f"{number}.log").write_text("".join(lines * times), encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert result_of("run.loss_finite", run).verdict.value == "pass"
    assert "the loss is" not in result_of("run.loss_spikes", run).message


def test_a_time_that_is_none_leaves_the_loss_on_its_line(tmp_path: Path) -> None:
    bad = [megatron(9, 500).replace("500.0", time).replace(NORM, "grad norm: nan |") for time in ("nan", "-5.0")]
    run = read(tmp_path, healthy(8) + bad[0] + bad[1].replace("9/", "10/"))
    assert run.data.losses.norms[0, 0].at_end == 2
    assert max(run.data.steps[0]) == 8


def resumed(value: str) -> tuple[str, str]:
    """A job that fails at step 400, and the output of the one that resumes from the checkpoint of step 379."""
    lines = [iteration(step, loss="lm loss: 2.1 |") for step in range(1, 401)]
    return "".join(lines), "".join(iteration(step, loss=f"lm loss: {value} |") for step in range(380, 601))


@pytest.mark.parametrize(
    "names",
    [
        ("train.log",),
        ("slurm-10.out", "slurm-11.out"),
        ("slurm-9.out", "slurm-10.out"),
        ("train.log.1", "train.log"),
        ("train.log.10", "train.log.9"),
        ("train.log-20250616", "train.log-20250617"),
        ("train.log-20250616", "train.log"),
    ],
)
@pytest.mark.parametrize(("value", "verdict"), [("30.0", "concern"), ("2.2", "pass")])
def test_a_loss_is_compared_with_that_before_the_checkpoint_it_goes_on_from(
    tmp_path: Path, names: tuple[str, ...], value: str, verdict: str
) -> None:
    texts = resumed(value)
    for name, text in zip(names, ("".join(texts),) if len(names) == 1 else texts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = result_of("run.loss_spikes", read_run([str(tmp_path)]))
    assert (result.verdict.value, "is 30 at step 380, 14.3 times" in result.message) == (verdict, verdict != "pass")


@pytest.mark.long
def test_a_run_that_goes_far_back_is_compared_with_the_loss_it_had_there(tmp_path: Path) -> None:
    losses = {step: f"lm loss: {1 + 2000 / (step + 200):.4f} |" for step in range(1, 1001)}
    steps = [*range(1, 1001), *range(200, 1001)]
    text = "".join(iteration(step, loss=losses[step]) for step in steps)
    assert result_of("run.loss_spikes", read(tmp_path, text)).verdict.value == "pass"


@pytest.mark.long
def test_logs_of_two_models_side_by_side_are_not_compared(tmp_path: Path) -> None:
    for name, first, loss in (("actor.log", 1, 0.5), ("critic.log", 200, 9.0)):
        text = "".join(iteration(step, loss=f"lm loss: {loss} |") for step in range(first, 600))
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert result_of("run.loss_spikes", read_run([str(tmp_path)])).verdict.value == "pass"
