"""Steps logged by training code: their losses, their times under any name, and other rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.logs import lasting, megatron

COUNT = 30
# The columns of litgpt's metrics.csv: Lightning's Throughput writes `time` since the beginning.
LITGPT = "loss,iter,step,epoch,iter_time,total_tokens,time,device/batches_per_sec,val_loss"


def table(folder: Path, head: str, rows: Sequence[str], name: str = "metrics.csv") -> TrainingRun:
    (folder / name).write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return read_run([str(folder / name)])


def lines(folder: Path, entries: Sequence[object]) -> TrainingRun:
    (folder / "steps.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return read_run([str(folder / "steps.jsonl")])


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("step,duration,loss,grad_norm", "{0},1.5,{1},0.3"),
        ("step,step_time,train_loss", "{0},1.5,{1}"),
        ("step,loss,time", "{0},{1},1.5"),
    ],
)
def test_a_loss_beside_the_duration_of_steps_is_read(tmp_path: Path, head: str, row: str) -> None:
    run = table(tmp_path, head, [row.format(step, "nan" if step > 20 else 2.5) for step in range(1, COUNT + 1)])
    assert result_of("run.loss_finite", run).message.startswith("rank 0: the loss is nan from step 21 on, in 10 of 30")
    assert lasting(run) == dict.fromkeys(range(1, COUNT + 1), 1.5)


def test_a_loss_in_lines_of_json_is_read(tmp_path: Path) -> None:
    run = lines(tmp_path, [{"rank": 2, "step": step, "dur": 1.5, "loss": float("nan")} for step in range(9)])
    assert result_of("run.loss_finite", run).message.startswith(
        "rank 2: the loss is nan from step 0 on, in 9 of 9 lines"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("dur", 1.5), ("step_time", 1.5), ("time", 1.5), ("duration_ms", 1500), ("dur_ms", 1500), ("iter_time", 1.5)],
)
def test_durations_have_the_same_names_in_lines_of_json_as_in_tables(tmp_path: Path, key: str, value: float) -> None:
    assert lasting(lines(tmp_path, [{"step": step, key: value} for step in range(3)])) == dict.fromkeys(range(3), 1.5)


@pytest.mark.parametrize("each", [1, 10])
@pytest.mark.parametrize("name", ["time", "elapsed"])
@pytest.mark.parametrize("begins", [0.0, 1.7e9], ids=["from the beginning", "of the day"])
def test_a_time_that_only_rises_is_that_since_the_beginning(
    tmp_path: Path, name: str, each: int, begins: float
) -> None:
    steps = range(each, 400, each)
    run = table(tmp_path, f"step,loss,{name}", [f"{step},2.5,{begins + 1.5 * step}" for step in steps])
    assert lasting(run) == dict.fromkeys(steps[1:], 1.5)
    assert sum(logged.times for logged in run.every_step) == steps[-1] - each


def test_a_time_that_begins_again_with_another_run_is_no_step(tmp_path: Path) -> None:
    rows = [f"{step},2.5,{1.5 * step}" for step in range(1, 51)]
    resumed = [f"{step},2.5,{1.5 * (step - 50)}" for step in range(51, 101)]
    assert lasting(table(tmp_path, "step,loss,time", rows + resumed)) == dict.fromkeys(
        [*range(2, 51), *range(52, 101)], 1.5
    )


def test_the_metrics_of_litgpt_have_steps_losses_and_rows_of_validation(tmp_path: Path) -> None:
    rows = [f"2.5,{4 * step},{step},0,0.37,{8192 * step},{1.5 * step},2.6," for step in range(1, COUNT + 1)]
    run = table(tmp_path, LITGPT, [*rows, ",,,,,,,,2.3"])
    assert lasting(run) == dict.fromkeys(range(2, COUNT + 1), 1.5)
    assert run.data.losses.losses[0, 0].lines == COUNT
    assert run.data.parts == {}


def test_rows_and_lines_of_a_validation_are_passed_over(tmp_path: Path) -> None:
    run = table(tmp_path, "epoch,step,train_loss,step_time,val_loss", ["0,1,2.5,1.5,", "0,1,,,2.3", "0,2,2.4,1.5,"])
    assert lasting(run) == {1: 1.5, 2: 1.5}
    assert run.data.losses.losses[0, 0].lines == 2
    run = lines(tmp_path, [{"step": 1, "dur": 1.5, "loss": 2.5}, {"step": 1, "val_loss": 2.3}])
    assert (lasting(run), run.data.losses.losses[0, 0].lines) == ({1: 1.5}, 1)


@pytest.mark.parametrize("phase", ["val", "eval", "Validation", "test"])
@pytest.mark.parametrize("name", ["phase", "split", "mode"])
def test_rows_and_lines_that_say_they_are_of_a_validation_are_passed_over(
    tmp_path: Path, name: str, phase: str
) -> None:
    steps = [
        (step, of, *(((1.5, 2.5), (9.5, float("nan")))[of == phase])) for step in range(30) for of in ("train", phase)
    ]
    entries = [{"step": step, name: of, "dur": lasted, "loss": loss} for step, of, lasted, loss in steps]
    rows = [f"{step},{of},{lasted},{loss}" for step, of, lasted, loss in steps]
    for run in (lines(tmp_path, entries), table(tmp_path, f"step,{name},duration,loss", rows)):
        assert lasting(run) == dict.fromkeys(range(30), 1.5)
        assert result_of("run.loss_finite", run).verdict.value == "pass"


@pytest.mark.parametrize(("first", "second"), [("phase", "split"), ("split", "phase"), ("mode", "subset")])
def test_each_column_may_say_that_a_row_is_of_a_validation(tmp_path: Path, first: str, second: str) -> None:
    steps = [(step, of, {"train": 1.5, "val": 9.5}[of]) for step in range(30) for of in ("train", "val")]
    entries = [{"step": step, first: "warmup", second: of, "dur": lasted} for step, of, lasted in steps]
    rows = [f"{step},warmup,{of},{lasted}" for step, of, lasted in steps]
    for run in (lines(tmp_path, entries), table(tmp_path, f"step,{first},{second},duration", rows)):
        assert lasting(run) == dict.fromkeys(range(30), 1.5)


def test_steps_that_do_not_say_their_rank_are_of_the_rank_of_their_file(tmp_path: Path) -> None:
    for rank in range(3):
        table(tmp_path, "step,duration", ["1,1.5"], f"rank{rank}.csv")
    assert set(read_run([str(tmp_path)]).data.steps) == {0, 1, 2}


@pytest.mark.parametrize("form", ["table", "lines"])
def test_files_of_several_ranks_that_do_not_say_which_are_of_no_rank(tmp_path: Path, form: str) -> None:
    for name in "abc":
        if form == "table":
            table(tmp_path, "step,duration,forward", [f"{step},1.5,0.4" for step in range(30)], f"{name}.csv")
        else:
            lines(tmp_path, [{"step": step, "dur": 1.5, "stages": {"forward": 0.4}} for step in range(30)])
            (tmp_path / "steps.jsonl").rename(tmp_path / f"{name}.jsonl")
    result = result_of("run.slow_rank", read_run([str(tmp_path)]))
    assert (result.verdict.value, result.message.partition(",")[0]) == (
        "incomplete",
        "3 files do not say their rank",
    )


def test_columns_that_are_no_times_are_no_parts_of_a_step(tmp_path: Path) -> None:
    others = {
        "total_tokens": 8192,
        "grad_norm": 0.3,
        "batch_size": 64,
        "batch": 7,
        "micro_batch": 3,
        "batch_idx": 7,
        "data_epoch": 2,
        "input_len": 4096,
        "forward_tflops": 412.5,
        "backward_mfu": 0.41,
    }
    run = table(
        tmp_path,
        f"step,duration,data_time,get_batch,{','.join(others)}",
        [f"1,1.5,0.25,0.5,{','.join(map(str, others.values()))}"],
    )
    assert {name for _, name in run.data.parts} == {"data_time", "get_batch"}
    assert sum(run.data.kinds.values()) == 0.75


@pytest.mark.parametrize("form", ["table", "lines"])
@pytest.mark.parametrize(
    ("has_loss", "verdict"),
    [
        (lambda step: step <= 200, "incomplete"),
        (lambda step: step % 10 == 0, "pass"),
        (lambda step: step % 10 == 0 and step <= 200, "incomplete"),
        (lambda step: step != 200, "pass"),
        (lambda _: True, "pass"),
    ],
    ids=["none at the end", "each ten steps", "each ten steps, and none at the end", "not once", "always"],
)
def test_a_loss_that_is_empty_at_the_end_does_not_pass(
    tmp_path: Path, form: str, has_loss: Callable[[int], bool], verdict: str
) -> None:
    """As pandas and json.dumps write nan, if set to standard JSON."""
    steps = range(1, 300)
    if form == "table":
        run = table(tmp_path, "step,step_time,loss", [f"{step},1.5,{2.5 if has_loss(step) else ''}" for step in steps])
    else:
        rows = [{"step": step, "step_time": 1.5, "loss": 2.5 if has_loss(step) else None} for step in steps]
        run = lines(tmp_path, rows)
    result = result_of("run.loss_finite", run)
    assert result.verdict.value == verdict
    if has_loss(200) and verdict != "pass":
        many = 99 if has_loss(199) else 90
        assert result.message.startswith(f"rank 0: the last {many} of its lines have no loss")


@pytest.mark.parametrize("last", [{"step": 300, "eval_loss": 1.9, "step_time": 90.0}, {"step": 300, "val_loss": 1.9}])
def test_a_line_of_a_validation_lacks_no_loss(tmp_path: Path, last: object) -> None:
    run = lines(tmp_path, [*({"step": step, "step_time": 1.5, "loss": 2.5} for step in range(30)), last])
    assert result_of("run.loss_finite", run).verdict.value == "pass"


def test_a_last_row_that_was_cut_lacks_no_loss(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("step,step_time,loss\n1,1.5,2.5\n2,1.5,2.5\n3,1.5,", encoding="utf-8")
    assert result_of("run.loss_finite", read_run([str(tmp_path)])).verdict.value == "pass"


@pytest.mark.parametrize("when", [{"time": "yesterday"}, {"time": None}, {"seconds": {"a": 1}}])
def test_lines_whose_time_is_no_number_are_not_understood_and_hide_no_other_file(
    tmp_path: Path, when: dict[str, object]
) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"step": 0, "loss": 2.0, **when}) + "\n", encoding="utf-8")
    (tmp_path / "train.log").write_text("".join(megatron(step, 500) for step in range(1, 9)), encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert run.data.notes == ["not understood: events.jsonl"]
    assert len(run.data.steps[0]) == 8


@pytest.mark.parametrize(
    ("form", "name", "times"),
    [("lines", "time", 1000), ("table", "time", 1000), ("lines", "step_time", 1), ("table", "duration", 1)],
)
def test_a_date_in_place_of_a_duration_is_refused(tmp_path: Path, form: str, name: str, times: int) -> None:
    rows = [{"step": step, "loss": 2.5, name: times * (1_700_000_000 + 1.5 * step)} for step in range(30)]
    cells = [",".join(map(str, row.values())) for row in rows]
    with pytest.raises(RunError, match=rf"{name} is '?17000000.*, which is a date; expected the seconds that a step"):
        _ = lines(tmp_path, rows) if form == "lines" else table(tmp_path, f"step,loss,{name}", cells)


@pytest.mark.parametrize(
    "form", ["2026-11-01 10:{:02}:{:02}", "2026-11-01T10:{:02}:{:02}.000Z", "2026-11-01T10:{:02}:{:02}+01:00"]
)
def test_dates_that_are_written_out_say_how_long_each_step_took(tmp_path: Path, form: str) -> None:
    run = table(tmp_path, "time,step,loss", [f"{form.format(*divmod(3 * step, 60))},{step},2.5" for step in range(30)])
    assert {logged.seconds for logged in run.every_step} == {3.0}


@pytest.mark.parametrize("form", ["lines", "table"])
@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_a_part_without_a_duration_hides_no_later_step(tmp_path: Path, form: str, value: float) -> None:
    data = {step: value if step == 20 else 0.1 for step in range(40)}
    losses = {step: 2.5 if step < 30 else float("nan") for step in range(40)}
    rows = [{"step": step, "dur": 1.5, "loss": losses[step], "stages": {"data": data[step]}} for step in range(40)]
    cells = [f"{step},1.5,{losses[step]},{data[step]}" for step in range(40)]
    run = lines(tmp_path, rows) if form == "lines" else table(tmp_path, "step,duration,loss,data", cells)
    assert (len(run.data.steps[0]), len(run.data.parts[0, "data"])) == (40, 39)
    assert run.data.notes[0].startswith("1 duration left out, as they are negative or no number")
    assert result_of("run.loss_finite", run).verdict.value == "fail"


@pytest.mark.parametrize("count", [2, 30])
def test_whole_seconds_since_1970_that_repeat_are_no_durations(tmp_path: Path, count: int) -> None:
    run = lines(tmp_path, [{"step": step, "time": 1_700_000_000 + step // 2} for step in range(count)])
    assert sum(logged.seconds for logged in run.every_step) == (count - 1) // 2


@pytest.mark.parametrize("name", ["steps.jsonl", "steps.csv"])
@pytest.mark.parametrize("after", ["", "the rest"])
@pytest.mark.parametrize("torn", ["", '{"step": 41, "d', "41,"])
def test_what_a_node_s_crash_has_filled_with_nuls_hides_nothing_before_and_behind_it(
    tmp_path: Path, name: str, after: str, torn: str
) -> None:
    lines = [f'{{"step": {step}, "dur": 1.5}}\n' if "json" in name else f"{step},1.5\n" for step in range(1, 81)]
    head, gap = ("" if "json" in name else "step,duration\n"), "\0" * 5_000
    (tmp_path / name).write_text(head + "".join(lines[:40]) + torn + gap + "".join(lines[60:] if after else ""))
    run = read_run([str(tmp_path)])
    assert list(run.data.steps[0]) == [*range(1, 41), *(range(61, 81) if after else ())]
    assert run.data.notes == [f"cut: {tmp_path / name}"]
