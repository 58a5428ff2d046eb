"""What checkpoints of Hugging Face's Trainer keep of a run: losses and norms with their steps, once each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.losses import LOG
from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import result_of
from tests.training_run.logs import hugging_face, read

STEPS = 400


def losses(values: Sequence[object], norm: object = 0.9) -> str:
    return "".join(hugging_face(step / 100, value, norm) for step, value in enumerate(values, 1))


def state(*entries: dict[str, Any]) -> str:
    history = [{"epoch": entry["step"] / 200, "learning_rate": 1e-05, **entry} for entry in entries]
    about = {"best_metric": None, "epoch": 1.0, "global_step": entries[-1]["step"], "is_world_process_zero": True}
    return json.dumps({**about, "log_history": history, "max_steps": STEPS}, indent=2, sort_keys=True) + "\n"


def entries(until: int, loss: Callable[[int], float] = lambda step: 2 + 90 / step) -> list[dict[str, Any]]:
    return [{"loss": loss(step), "grad_norm": 0.9, "step": step} for step in range(1, until + 1)]


def keep(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "trainer_state.json").write_text(text, encoding="utf-8")


def test_the_history_of_a_checkpoint_has_losses_with_their_steps(tmp_path: Path) -> None:
    evaluated = {"eval_loss": float("nan"), "eval_runtime": 4.0, "step": 120}
    bad = [{"loss": float("nan"), "grad_norm": float("nan"), "step": step} for step in (121, 122)]
    keep(tmp_path, "", state(*entries(120), evaluated))
    run = read_run([str(tmp_path)])
    assert run.data.losses.losses[0, 1].lines == 120
    assert result_of("run.loss_finite", run).verdict.value == "pass"
    keep(tmp_path, "", state(*entries(120), evaluated, *bad))
    result = result_of("run.loss_finite", read_run([str(tmp_path / "trainer_state.json")]))
    assert result.message == "rank 0: the loss is nan from step 121 on, in 2 of 122 lines; expected a number"


def test_what_several_checkpoints_and_the_log_have_counts_once(tmp_path: Path) -> None:
    for until in (50, 100, 150, 200):
        keep(tmp_path, f"checkpoint-{until}", state(*entries(until)))
    (tmp_path / "train.log").write_text(losses([2 + 90 / step for step in range(1, 231)]), encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert {key: curve.lines for key, curve in run.data.losses.losses.items()} == {(0, 1): 200, (0, LOG): 230}
    assert result_of("run.loss_spikes", run).verdict.value == "pass"
    assert result_of("run.loss_finite", run).verdict.value == "pass"


NAN = [{"loss": float("nan"), "grad_norm": float("nan"), "step": step} for step in range(91, 101)]


@pytest.mark.parametrize("attempts", [("a", "b"), ("b", "a")], ids=" then ".join)
def test_a_second_attempt_hides_nothing_of_the_first(tmp_path: Path, attempts: tuple[str, str]) -> None:
    well, badly = attempts
    keep(tmp_path, f"{well}/checkpoint-120", state(*entries(120)))
    keep(tmp_path, f"{badly}/checkpoint-100", state(*entries(90), *NAN))
    result = result_of("run.loss_finite", read_run([str(tmp_path)]))
    assert (result.verdict.value, "nan from step 91 on, in 10 of " in result.message) == ("fail", True), result.message


def test_losses_of_0_are_unclear_also_where_their_lines_are_alike(tmp_path: Path) -> None:
    text = losses([2.0] * 49) + hugging_face(0.5, 0.0, None) * 40
    assert result_of("run.loss_finite", read(tmp_path, text)).verdict.value == "incomplete"


def test_a_number_of_steps_that_is_none_refuses_no_log(tmp_path: Path) -> None:
    text = "Total optimization steps = , oops\n" + losses([2.0] * 9)
    assert result_of("run.loss_finite", read(tmp_path, text)).verdict.value == "pass"


def test_a_short_history_beside_a_long_log_leaves_nothing_open(tmp_path: Path) -> None:
    keep(tmp_path, "checkpoint-20", state(*entries(20)))
    (tmp_path / "train.log").write_text(losses([2.0] * 200), encoding="utf-8")
    assert result_of("run.loss_spikes", read_run([str(tmp_path)])).verdict.value == "pass"


def test_a_history_that_was_cut_loses_its_tail_only(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(state(*entries(120))[:-400], encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert run.data.losses.losses[0, 1].lines >= 115
    assert run.data.notes == [f"cut: {tmp_path}/trainer_state.json"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('{"loss": 2.0}', "step is None; expected a whole number of 0 or more"),
        ('{"loss": 2.0, "step": -1}', "step is -1; expected a whole number of 0 or more"),
        ("7", "7 is no entry of its history; expected trainer_state.json"),
    ],
)
def test_a_wrong_entry_is_one_error(tmp_path: Path, entry: str, words: str) -> None:
    (tmp_path / "trainer_state.json").write_text(f'{{"global_step": 1, "log_history": [{entry}]}}', encoding="utf-8")
    with pytest.raises(RunError) as wrong:
        read_run([str(tmp_path)])
    assert str(wrong.value).startswith(f"{tmp_path}/trainer_state.json, event 1: {words}")


def test_values_that_are_none_of_numbers_are_left_out(tmp_path: Path) -> None:
    odd: list[Any] = [None, True, "much", [1], 10**400]
    keep(tmp_path, "", state(*({"loss": value, "grad_norm": 0.9, "step": step} for step, value in enumerate(odd, 1))))
    run = read_run([str(tmp_path)])
    assert run.data.losses.losses == {}
    assert run.data.losses.norms[0, True].lines == len(odd)
