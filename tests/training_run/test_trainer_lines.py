"""JSON lines of LLaMA-Factory and ms-swift: steps by their times, losses, evaluations, resumed runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.logs import lasting

Line = Callable[..., str]


# As LLaMA-Factory 0.9 writes it: https://github.com/hiyouga/LLaMA-Factory, src/llamafactory/train/callbacks.py
def factory(step: int, elapsed_s: int, of: int = 93, **more: Any) -> str:
    days, rest = divmod(elapsed_s, 86_400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    elapsed = f"{days} day{'s' if days > 1 else ''}, {clock}" if days else clock
    values = {"current_steps": step, "total_steps": of, "loss": 2.5, "lr": 1e-06, "epoch": step / of, **more}
    return json.dumps({**values, "percentage": 1.0, "elapsed_time": elapsed, "remaining_time": "0:36:15"}) + "\n"


# As ms-swift 3 and 4 write it: https://github.com/modelscope/ms-swift, add_train_message
def swift(step: int, elapsed_s: int, of: int = 93, key: str = "global_step/max_steps", **more: Any) -> str:
    days, hours, minutes = elapsed_s // 86_400, elapsed_s % 86_400 // 3600, elapsed_s % 3600 // 60
    parts = [f"{days}d"] * bool(days) + [f"{hours}h"] * bool(days or hours) + [f"{minutes}m"] * (elapsed_s >= 60)
    values = {"loss": 2.5, "grad_norm": 0.9, "learning_rate": 1e-06, "epoch": 0.1, key: f"{step}/{of}", **more}
    elapsed = " ".join([*parts, f"{elapsed_s % 60}s"])
    return json.dumps({**values, "elapsed_time": elapsed, "memory(GiB)": 52.2, "train_speed(s/it)": 1.2}) + "\n"


def run_of(folder: Path, *lines: str) -> TrainingRun:
    (folder / "trainer_log.jsonl").write_text("".join(lines), encoding="utf-8")
    return read_run([str(folder)])


both = pytest.mark.parametrize("line", [factory, swift])


@both
def test_a_step_is_as_long_as_the_time_between_two_lines_by_as_many_steps(tmp_path: Path, line: Line) -> None:
    run = run_of(tmp_path, *(line(step, 8 * step) for step in range(5, 30, 5)))
    assert lasting(run) == {10: 8.0, 15: 8.0, 20: 8.0, 25: 8.0}


@both
@pytest.mark.parametrize("began_s", [3590, 86_350, 3 * 86_400 - 50], ids=["an hour", "a day", "three days"])
def test_its_time_goes_on_behind_an_hour_and_a_day(tmp_path: Path, line: Line, began_s: int) -> None:
    run = run_of(tmp_path, *(line(step, began_s + 40 * step) for step in range(1, 5)))
    assert lasting(run) == {2: 40.0, 3: 40.0, 4: 40.0}


def test_lines_of_less_than_half_a_minute_are_taken_together(tmp_path: Path) -> None:
    run = run_of(tmp_path, *(factory(step, 2 * step) for step in range(1, 40)))
    assert lasting(run) == {16: 2.0, 31: 2.0}


@both
def test_what_an_evaluation_takes_is_no_step(tmp_path: Path, line: Line) -> None:
    evaluated = line(2, 300, loss=None, eval_loss=2.4)
    run = run_of(tmp_path, line(1, 40), line(2, 80), evaluated, line(3, 340), line(4, 380))
    assert lasting(run) == {2: 40.0, 4: 40.0}


@both
def test_a_run_that_goes_on_from_a_checkpoint_counts_its_time_anew(tmp_path: Path, line: Line) -> None:
    run = run_of(tmp_path, line(8, 320), line(9, 360), line(9, 45), line(10, 85))
    assert lasting(run) == {9: 40.0, 10: 40.0}
    assert {key: series.lines for key, series in run.data.losses.losses.items()} == {(0, 1): 3}


@both
def test_a_loss_that_is_no_number_is_said_with_its_step(tmp_path: Path, line: Line) -> None:
    lines = [line(step, 40 * step, loss=float("nan") if step > 20 else 2.5) for step in range(1, 31)]
    assert result_of("run.loss_finite", run_of(tmp_path, *lines)).message == (
        "rank 0: the loss is nan from step 21 on, in 10 of 30 lines; expected a number"
    )


@pytest.mark.parametrize("key", ["iteration", "steps[global_step/max_steps]"])
def test_steps_are_called_otherwise_by_megatron_and_by_older_versions(tmp_path: Path, key: str) -> None:
    assert lasting(run_of(tmp_path, *(swift(step, 40 * step, key=key) for step in range(1, 4)))) == {2: 40.0, 3: 40.0}


def test_losses_are_read_from_lines_without_a_time(tmp_path: Path) -> None:
    line = {"lm loss": 2.5, "grad_norm": 1.0, "consumed_samples": 16, "global_step/max_steps": "1/93"}
    run = run_of(tmp_path, json.dumps(line) + "\n")
    assert run.data.steps == {}
    assert run.data.losses.losses[0, 1].lines == 1


def test_a_truncated_line_is_dropped_and_a_resumed_run_continues_after_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, factory(1, 40), factory(2, 80), factory(3, 120)[:40])
    assert lasting(run) == {2: 40.0}
    assert run.data.cut
    run = run_of(tmp_path, factory(1, 40), factory(2, 80), factory(3, 120)[:40], "\n", factory(3, 40), factory(4, 80))
    assert lasting(run) == {2: 40.0, 4: 40.0}


@pytest.mark.long
@pytest.mark.parametrize("count", [4, 2000], ids=["a few lines", "more than is read to know the format"])
def test_what_ms_swift_keeps_of_the_whole_run_in_the_last_line_is_no_step(tmp_path: Path, count: int) -> None:
    kept = {"last_model_checkpoint": "output/checkpoint-4", "global_step": 4, "log_history": [{"loss": 2.5, "step": 1}]}
    run = run_of(tmp_path, *(swift(step, 40 * step) for step in range(1, count)), json.dumps(kept) + "\n")
    assert len(lasting(run)) == count - 2
    assert run.data.losses.losses[0, 1].lines == count - 1


def test_the_number_of_steps_need_not_be_known(tmp_path: Path) -> None:
    assert lasting(run_of(tmp_path, *(factory(step, 40 * step, of=-1) for step in range(1, 4)))) == {2: 40.0, 3: 40.0}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[]\n", "[]; expected"),
        ('{"current_steps": -1, "total_steps": 5}\n', "current_steps is -1; expected a whole number"),
        ('{"loss": 1.0}\n', "'' is not how many steps of how many"),
        ('{"iteration": "5 of 7"}\n', "'5 of 7' is not how many steps of how many"),
    ],
)
def test_a_line_that_is_none_of_theirs_is_an_error_with_its_number(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(RunError) as raised:
        run_of(tmp_path, factory(1, 40), line, factory(2, 80))
    assert f"trainer_log.jsonl:2: {problem}" in str(raised.value)
