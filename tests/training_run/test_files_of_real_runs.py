"""Other contents of real runs' folders: foreign pickles, jobs restarted elsewhere, clocks that were set."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.rules.steps import StepTime, drift
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.logs import deepspeed, megatron, titan


def run_of(folder: Path, files: Mapping[str, str | bytes]) -> TrainingRun:
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_run([str(folder)])


LOG = "".join(megatron(step, 500) for step in range(1, 301))


@pytest.mark.parametrize("content", [{"a": 1}, [1, 2, 3]])
def test_a_pickle_that_is_no_dump_is_not_understood_and_hides_no_log(tmp_path: Path, content: object) -> None:
    run = run_of(tmp_path, {"train.log": LOG, "chunk_12.pkl": pickle.dumps(content)})
    assert (run.data.notes, len(run.data.steps[0])) == (["not understood: chunk_12.pkl"], 300)


def test_a_job_that_began_again_on_another_node_is_read_and_no_node_is_named(tmp_path: Path) -> None:
    def row(rank: int, host: str, step: int) -> str:
        seconds = 0.6 if rank == 3 else 0.4
        entry = {"rank": rank, "host": host, "gpu": str(rank), "step": step, "dur": 1.5, "stages": {"forward": seconds}}
        return json.dumps(entry) + "\n"

    hosts = ("gpu001", "gpu007")
    run = run_of(
        tmp_path,
        {
            f"steps.{rank}.jsonl": "".join(row(rank, host, step) for host in hosts for step in range(1, 101))
            for rank in range(4)
        },
    )
    assert run.data.notes[0].startswith("rank 0 was on gpu001, GPU 0, then on gpu007, GPU 0, and 3 more ranks like it")
    message = result_of("run.slow_rank", run).message
    assert ("rank 3: computes 1.5" in message, "gpu00" in message) == (True, False), message


@pytest.mark.parametrize("value", ["-3598.5", "nan", "inf"])
def test_a_step_that_lasts_no_time_costs_itself_only(tmp_path: Path, value: str) -> None:
    rows = [f"{step},{value if step == 20 else 1.5}" for step in range(1, 31)]
    run = run_of(tmp_path, {"steps.csv": "\n".join(["step,duration", *rows]) + "\n"})
    assert sorted(run.data.steps[0]) == [step for step in range(1, 31) if step != 20]
    assert run.data.notes[0].startswith("1 duration left out, as they are negative or no number")


@pytest.mark.long
def test_a_log_that_ends_with_a_fault_says_who_reads_that(tmp_path: Path) -> None:
    end = "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
    assert (
        run_of(tmp_path, {"train.log": LOG + end})
        .data.notes[0]
        .endswith(f"uncorrectable ECC error encountered': what ended its job is read by: clusterproof case {tmp_path}")
    )
    assert run_of(tmp_path, {"train.log": LOG}).data.notes == []


@pytest.mark.parametrize("extra", ["'kl': 0.002", "'reward': 1.7"])
@pytest.mark.parametrize(("norm", "verdict"), [("'grad_norm': 0.3, ", "pass"), ("", "not applicable")])
def test_a_loss_beside_rewards_may_grow_from_nothing(tmp_path: Path, extra: str, norm: str, verdict: str) -> None:
    rows = [
        f"{{'loss': {1e-6 * 1.03**step:.9f}, {norm}'learning_rate': 1e-06, {extra}, 'epoch': {step / 400:.4f}}}\n"
        for step in range(1, 401)
    ]
    assert result_of("run.loss_spikes", run_of(tmp_path, {"train.log": "".join(rows)})).verdict.value == verdict


def test_a_loss_of_multi_token_prediction_is_not_that_of_the_model(tmp_path: Path) -> None:
    lines = [megatron(step, 500).replace("lm loss: 2.504220E+00", "mtp_1 loss: 2.5E+00") for step in range(1, 301)]
    assert run_of(tmp_path, {"train.log": "".join(lines)}).data.losses.losses == {}


@pytest.mark.parametrize(
    ("at", "forward_s", "longest"),
    [
        ("2026-03-29 01:58:20", 3600.0, 1.0),
        ("2025-10-05 01:58:20", 3600.0, 1.0),
        ("2026-03-29 01:58:20", 1200.0, 1201.0),
        ("2026-03-29 01:58:20", 3620.0, 3621.0),
        ("2026-03-29 13:58:20", 3600.0, 3601.0),
        ("2026-03-30 01:58:20", 3600.0, 3601.0),
        ("2026-06-28 01:58:20", 3600.0, 3601.0),
    ],
    ids=["in spring", "in the south", "no hour", "longer", "by day", "on a Monday", "in summer"],
)
@pytest.mark.parametrize(("line", "date"), [(titan, "2025-06-16 22:00:00"), (deepspeed, "2024-04-21 02:00:00")])
def test_a_clock_that_is_set_forward_by_an_hour_is_no_long_step(
    tmp_path: Path, at: str, forward_s: float, longest: float, line: Callable[[int, float], str], date: str
) -> None:
    began = datetime.fromisoformat(at)
    times = [began + timedelta(seconds=step - 1 + (forward_s if step > 100 else 0)) for step in range(1, 201)]
    lines = [line(step, 0).replace(date, str(time)) for step, time in enumerate(times, 1)]
    run = run_of(tmp_path, {"train.log": "".join(lines)})
    assert max(step.seconds for step in run.every_step) == longest


def test_late_lines_of_another_rank_that_says_no_number_are_passed_over(tmp_path: Path) -> None:
    lines = [titan(step, step + 0.01 * rank, prefix="") for step in range(1, 200) for rank in range(2)]
    for at in range(1, len(lines) - 3, 8):
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    run = run_of(tmp_path, {"train.log": "".join(lines)})
    assert run.data.losses.losses[0, 0].window.compared == 99


@pytest.mark.parametrize(("count", "at"), [(400, 361), (1000, 901), (2000, 1901)])
def test_a_late_change_begins_where_it_does(count: int, at: int) -> None:
    random = Random(2)
    series = [StepTime(step, (1.5 if step < at else 2.1) * random.gauss(1, 0.01)) for step in range(6, count + 1)]
    change = drift(series)
    assert change
    assert change.step == at


def answer(*series: tuple[Mapping[str, str], float]) -> str:
    rows = [
        {"metric": labels, "values": [[1_780_000_000 + 10 * at, str(value)] for at in range(60)]}
        for labels, value in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})


GPU_UTIL = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "dcgm-exporter-x7k2p"}
ACTIVE = {**GPU_UTIL, "__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}


@pytest.mark.parametrize("label", ["node", "exported_instance"])
def test_an_exporter_s_pod_is_no_node(tmp_path: Path, label: str) -> None:
    run = run_of(tmp_path, {"gpus.json": answer(({**GPU_UTIL, label: "gpu001"}, 97))})
    assert [gpu.name for gpu in run.sampled.gpus] == ["gpu001 gpu0"]


NEXT = {"Hostname": "dcgm-exporter-p9q4t"}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"UUID": "GPU-2"}, ["dcgm-exporter-p9q4t gpu0", "dcgm-exporter-x7k2p gpu0"]),
        ({"UUID": "GPU-1"}, ["dgx gpu0"]),
    ],
    ids=["another GPU", "the same, of another exporter"],
)
def test_a_label_that_all_nodes_have_names_none(tmp_path: Path, more: Mapping[str, str], names: list[str]) -> None:
    first = {**GPU_UTIL, "node": "dgx", "UUID": "GPU-1"}
    run = run_of(tmp_path, {"gpus.json": answer((first, 97), ({**first, **NEXT, **more}, 20))})
    assert [gpu.name for gpu in run.sampled.gpus] == names


def test_an_exporter_s_next_pod_is_on_the_same_node(tmp_path: Path) -> None:
    first = {**GPU_UTIL, "node": "gpu001"}
    text = answer((first, 97), ({**first, **NEXT}, 97))
    begins, _, behind = text.rpartition('"values"')
    run = run_of(tmp_path, {"gpus.json": begins + '"values"' + behind.replace("[17800", "[17801")})
    assert [gpu.name for gpu in run.sampled.gpus] == ["gpu001 gpu0"]


@pytest.mark.parametrize(
    ("series", "percent"),
    [(((GPU_UTIL, 97), (ACTIVE, 0.4)), 97), (((ACTIVE, 0.4), (GPU_UTIL, 97)), 97), (((ACTIVE, 0.4),), 40)],
)
def test_one_of_two_measures_of_a_gpu_s_utilization_counts(
    tmp_path: Path, series: tuple[tuple[Mapping[str, str], float], ...], percent: float
) -> None:
    run = run_of(tmp_path, {"gpus.json": answer(*series)})
    assert [round(gpu.percent) for gpu in run.sampled.gpus] == [percent]
