"""Tables and JSON lines without durations, like `metrics.csv` of Lightning's CSVLogger, give losses and norms."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import RunFile
from clusterproof.plugins.training_run.reading import format_of, read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of

HEAD = "epoch,grad_2.0_norm_total,step,train_loss_epoch,train_loss_step,val_loss\n"


def metrics(steps: int, bad: int = 0) -> str:
    """Rows of training, with one of validation after every tenth; the last ones are nan."""
    rows = ""
    for step in range(steps):
        loss = "nan" if step >= steps - bad else f"{2 + 9 / (step + 1)}"
        rows += f"0,0.9,{step},,{loss},\n" + ("0,,9,nan,,nan\n" if step % 10 == 9 else "")
    return HEAD + rows


def read(folder: Path, text: str, name: str = "metrics.csv") -> TrainingRun:
    (folder / name).write_text(text, encoding="utf-8")
    return read_run([str(folder / name)])


def test_rows_of_training_are_read_and_those_of_validation_are_not(tmp_path: Path) -> None:
    run = read(tmp_path, metrics(150))
    assert (run.data.losses.losses[0, False].lines, run.data.losses.norms[0, False].lines) == (150, 150)
    assert {result_of(check, run).verdict.value for check in ("run.loss_finite", "run.loss_spikes")} == {"pass"}
    assert result_of("run.loss_finite", read(tmp_path, metrics(150, bad=4))).message == (
        "rank 0: the loss is nan from step 146 on, in 4 of 150 lines; expected a number"
    )


@pytest.mark.parametrize("name", ["loss", "train_loss", "train/loss", "training_loss"])
def test_the_loss_may_have_any_of_its_usual_names(tmp_path: Path, name: str) -> None:
    run = read(tmp_path, f"{name},epoch,step\r\n2.5,0,49\r\n2.4,0,99\r\n")
    assert run.data.losses.losses[0, False].lines == 2


def test_a_later_version_of_the_folder_is_not_compared_with_the_one_before(tmp_path: Path) -> None:
    for version in ("version_0", "version_1"):
        (tmp_path / version).mkdir()
        rows = "".join(f"0,0.9,{step},,{20 if step < 5 else 0.5},\n" for step in range(150))
        (tmp_path / version / "metrics.csv").write_text(HEAD + rows, encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert [series.lines for series in run.data.losses.losses.values()] == [150, 150]
    assert result_of("run.loss_spikes", run).verdict.value == "pass"


@pytest.mark.parametrize("head", ["epoch,step,val_loss\n", "epoch,batch,train_loss\n", "name,step,loss\n"])
def test_tables_without_a_step_or_a_loss_of_training_are_none_of_these(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.csv").write_text(head + "0,1,2\n", encoding="utf-8")
    assert format_of(RunFile(tmp_path / "a.csv")) is None


OWN_JSON = '{{"step": {step}, "loss": {loss}, "lr": 1e-05, "time": "2026-11-29T10:{minute:02}:00"}}\n'


@pytest.mark.parametrize(
    ("head", "line", "none"),
    [
        ("step,loss\n", "{step},{loss}\n", "nan"),
        ("rank,step,timestamp,loss\n", "0,{step},1764000{step},{loss}\n", "nan"),
        ("", '{{"step": {step}, "loss": {loss}}}\n', "NaN"),
        ("", '{{"step": {step}, "train_loss": {loss}, "_timestamp": 1764000000.5}}\n', '"nan"'),
        ("", OWN_JSON, "NaN"),
        ("", OWN_JSON + '{{"event": "saved", "path": "/fsx/{step}"}}\n', "NaN"),
    ],
)
def test_losses_of_ones_own_code_are_read_without_the_durations_of_steps(
    tmp_path: Path, head: str, line: str, none: str
) -> None:
    text = "".join(line.format(step=step, loss=none if step > 50 else 2.5, minute=step - 10) for step in range(10, 60))
    result = result_of("run.loss_finite", read(tmp_path, head + text, "own.log"))
    assert result.message == "rank 0: the loss is nan from step 51 on, in 9 of 50 lines; expected a number"


@pytest.mark.parametrize(
    ("head", "line", "none"),
    [("step,loss\n", "{step},{loss}\n", "****"), ("", '{{"step": {step}, "loss": {loss}}}\n', "null")],
)
def test_a_loss_that_is_no_number_any_more_does_not_pass(tmp_path: Path, head: str, line: str, none: str) -> None:
    text = "".join(line.format(step=step, loss=none if step > 50 else 2.5) for step in range(10, 60))
    result = result_of("run.loss_finite", read(tmp_path, head + text, "own.log"))
    assert result.message.startswith("rank 0: the last 9 of its lines have no loss"), result.message


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,0.9,one,,2.0,", "step is 'one'; expected a whole number"),
        ("0,0.9,1", "3 values; expected 6, as the first line names them"),
        ('0,0.9,1,,"2"0,', "expected values between commas"),
    ],
)
def test_a_wrong_row_is_one_error_with_its_line(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(RunError) as wrong:
        read(tmp_path, f"{HEAD}{row}\n" + "0,0.9,2,,2.0,\n" * 9)
    assert str(wrong.value).startswith(f"{tmp_path}/metrics.csv:2: ")
    assert words in str(wrong.value)


def test_a_file_that_was_cut_loses_its_tail_only(tmp_path: Path) -> None:
    run = read(tmp_path, metrics(150)[:-12])
    assert run.data.losses.losses[0, False].lines >= 148
    assert run.data.notes == [f"cut: {tmp_path}/metrics.csv"]
