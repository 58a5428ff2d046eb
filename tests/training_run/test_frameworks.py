"""Logs of programs that print a line per step give losses and, if they contain them, times: a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusterproof.plugins.training_run.formats import logs
from clusterproof.plugins.training_run.formats.frameworks import FRAMEWORKS
from tests.training_run.builders import result_of
from tests.training_run.logs import lasting, read


@dataclass(frozen=True)
class Printed:
    """A program's line for a step with its loss; and the seconds of steps 2 and 3, by number of steps."""

    name: str
    line: str
    seconds: float | None = None
    times: int = 1
    has_norm: bool = False
    parts: Mapping[str, float] | None = None


# As in the sources that each row of FRAMEWORKS names.
LINES = (
    Printed("nanoGPT", "iter {0}: loss {1}, time 561.94ms, mfu 31.20%\n", 0.562),
    Printed("litgpt", "Epoch 4 | iter {0} step {0} | loss train: {1}, val: 1.057 | iter time: 529.46 ms (step)\n"),
    Printed("litgpt", "iter {0}7 | step {0}: loss {1}, iter time: 263.85 ms (optimizer.step)\n"),
    Printed("DeepSpeed's pipeline engine", "steps: {0} loss: {1} iter time (s): 0.740 samples/sec: 5.112\n"),
    Printed(
        "MaxText",
        "I0804 08:14:00.000000 1 metric_logger.py:196] completed step: {0}, seconds: 18.500, TFLOP/s/device: 221.800, "
        "Tokens/s/device: 886.000, total_weights: 393216, loss: {1}\n",
        18.5,
    ),
    Printed(
        "nanotron",
        "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: {0} / 15 | consumed_tokens: 512 | "
        "elapsed_time_per_iteration_ms: 4.71K | tokens_per_sec: 109 | tokens_per_sec_per_gpu: 109 | "
        "global_batch_size: 2 | lm_loss: {1} | lr: 0.00015 | model_tflops_per_gpu: 1.87e-05 | grad_norm: 2.96 | "
        "cuda_memory_allocated: 67.4M\n",
        4.71,
        has_norm=True,
    ),
    Printed(
        "verl",
        "(TaskRunner pid=247607) step:{0} - global_seqlen/min:159906 - actor/entropy:0.09 - actor/pg_loss:{1} - "
        "actor/ppo_kl:0.0001 - actor/grad_norm:np.float64(0.2057) - timing_s/gen:74.0 - timing_s/step:96.551\n",
        96.551,
        has_norm=True,
    ),
    Printed(
        "slime",
        "step {0}: {{'train/loss': {1}, 'train/pg_loss': 0.102, 'train/ppo_kl': 0.0, 'train/grad_norm': 295.5, "
        "'train/lr-pg_0': 1e-07, 'train/step': {0}}}\n",
        has_norm=True,
    ),
    Printed(
        "fairseq",
        "2023-06-13 17:31:08 | INFO | train_inner | epoch 143:     85 / 282 loss={1}, nll_loss=1.236, ppl=8.86, "
        "wps=72384.3, ups=1.25, wpb=59997.9, bsz=2186.3, num_updates={0}00, lr=0.0001, gnorm=0.489, clip=0, "
        "loss_scale=32768, train_wall=48, wall=0\n",
        0.8,
        100,
        has_norm=True,
    ),
    Printed(
        "mmengine and MMCV",
        "01/29 21:36:02 - mmengine - INFO - Iter(train) [ {0}0/720]  lr: 1.9000e-04  eta: 0:32:01  time: 2.8037  "
        "data_time: 0.0071  memory: 12762  loss: {1}  grad_norm: 0.9361\n",
        2.804,
        10,
        has_norm=True,
        parts={"data": 0.0071},
    ),
    Printed(
        "mmengine and MMCV",
        "2020-02-14 03:23:35,193 - INFO - Epoch [1][{0}0/7330]\tlr: 0.00465, eta: 2 days, 17:08:22, time: 0.831, "
        "data_time: 0.047, memory: 7966, loss_cls: 0.8130, loss_mask: 1.7465, loss: {1}\n",
        0.831,
        10,
        parts={"data": 0.047},
    ),
    Printed(
        "torchvision's references, DETR, DINO and MAE",
        "[03:23:49.951215] Epoch: [0]  [   {0}/1504]  lr: 0.000026  closs: {1} (1.1317)  grad_norm: 0.4995 (1.1826)  "
        "time: 4.5833  data: 0.0002  max mem: 51710\n",
        has_norm=True,
    ),
    Printed(
        "NeMo 1",
        "\rEpoch 0: : 100%|██████████| {0}/100 [10:48<00:00, reduced_train_loss={1}, global_step={0}.00, "
        "consumed_samples=25600.0, train_step_timing in s=3.130]",
        3.13,
    ),
    Printed(
        "bars of Lightning, diffusers and kohya",
        "\rEpoch 0:   5%|▌         | {0}/18 [00:08<02:29,  8.77s/it]"
        "\rEpoch 0:   5%|▌         | {0}/18 [00:08<02:29,  8.77s/it, v_num=1, train_loss={1}, val_loss=nan.0]",
    ),
    Printed(
        "bars of Lightning, diffusers and kohya",
        "\rSteps:   2%|▍    | {0}/5900000 [19:15:43<1185:20:02,  1.36it/s, data=0.0079, loss={1}, lr=4.99e-5, vae=0.1]",
    ),
    Printed(
        "bars of Lightning, diffusers and kohya",
        "\rsteps:  50%|█████ | {0}/800 [05:43<05:43,  1.17it/s, avr_loss={1}]",
    ),
    Printed(
        "torchtune",
        "Step {0} | loss:{1} lr:5e-07 time_per_step_s:21.6 tokens_per_second_per_gpu:91 grad_norm:131.0\n",
        21.6,
        has_norm=True,
    ),
    Printed(
        "OLMo and OLMo-core",
        "[2024-04-17 09:42:38] INFO     [olmo.train:816, rank=0] [step={0}/739328]\n"
        "    train/CrossEntropyLoss={1}\n    train/Perplexity=45,773\n    throughput/total_tokens=8,388,608\n",
    ),
    Printed(
        "OLMo and OLMo-core",
        "2026-08-08 12:01:00 INFO [olmo_core.train.callbacks.console_logger:68] [step={0}/2000,epoch=0,eta=5h11m]\n"
        "    optim/total grad norm=0.0044\n    train/CE loss={1}\n    train/PPL=511.9\n",
        has_norm=True,
    ),
    Printed(
        "Composer",
        "0: [batch={0}/100]:\n0:       Train time/batch: 3\n0:       Train loss/train/total: {1}\n"
        "0:       Train l2_norm/grad/global: 0.0022\n",
        has_norm=True,
    ),
)
EACH = pytest.mark.parametrize("printed", LINES, ids=lambda printed: printed.name)


@EACH
def test_steps_losses_and_norms_are_read(tmp_path: Path, printed: Printed) -> None:
    run = read(tmp_path, "".join(printed.line.format(step, "2.5") for step in (1, 2, 3)))
    step = printed.times
    expected = {} if printed.seconds is None else {number * step: printed.seconds for number in (1, 2, 3)}
    assert (lasting(run) if run.data.steps else {}) == expected
    assert [logged.times for logged in run.every_step][1:] == [printed.times] * max(0, len(expected) - 1)
    assert [series.lines for series in run.data.losses.losses.values()] == [3]
    assert [series.lines for series in run.data.losses.norms.values()] == [3] * printed.has_norm
    assert {name: cells[2 * step][0] for (_, name), cells in run.data.parts.items()} == (printed.parts or {})


@EACH
def test_a_loss_that_is_no_number_fails(tmp_path: Path, printed: Printed) -> None:
    text = "".join(printed.line.format(step, "nan" if step > 5 else "2.5") for step in range(1, 9))
    result = result_of("run.loss_finite", read(tmp_path, text))
    assert result.verdict.value == "fail"
    assert f"the loss is nan from step {6 * printed.times} on, in 3 of 8 lines" in result.message


@pytest.mark.parametrize("name", ["NeMo 1", "bars of Lightning, diffusers and kohya"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_a_bar_pads_fails_too(tmp_path: Path, name: str, value: str) -> None:
    line = next(printed.line for printed in LINES if printed.name == name)
    text = "".join(line.format(step, f"{value}.0" if step > 5 else "2.35") for step in range(1, 9))
    result = result_of("run.loss_finite", read(tmp_path, text))
    assert result.message.startswith(f"rank 0: the loss is {value} from step 6 on, in 3 of 8 lines"), result.message


def test_a_number_with_commas_counts_whole(tmp_path: Path) -> None:
    line = next(printed.line for printed in LINES if "total grad norm=0.0044" in printed.line)
    text = "".join(
        line.format(step, "2.5").replace("0.0044", "1,234" if step == 150 else "1.5") for step in range(1, 201)
    )
    message = result_of("run.loss_spikes", read(tmp_path, text)).message
    assert "the norm of the gradients is 1.23e+03 at step 150, 822.7 times the largest" in message, message


@pytest.mark.long
def test_the_date_of_a_line_with_a_thousand_drawings_of_a_bar_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(logs, "_DATE", SimpleNamespace(search=lambda line: looked_at.append(len(line))))
    line = next(printed.line for printed in LINES if "v_num" in printed.line)
    text = "".join(line.format(step, "2.35") for step in range(1, 2_000))
    assert read(tmp_path, text).data.losses.losses[0, 0].lines == 1_999
    assert sum(looked_at) <= len(text)


@pytest.mark.long
@EACH
def test_a_first_step_that_comes_late_is_found_where_the_form_is_like_no_other(
    tmp_path: Path, printed: Printed
) -> None:
    start = "gpu001:7:9 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 40_000
    row = next(framework for framework in FRAMEWORKS if framework.name == printed.name)
    if any(word in printed.line for word in row.late):
        assert read(tmp_path, start + printed.line.format(1, "2.5")).data.losses.losses[0, 0].lines == 1


def test_every_program_of_the_table_has_a_line_here() -> None:
    assert {printed.name for printed in LINES} == {framework.name for framework in FRAMEWORKS}


def test_a_loss_of_the_critic_that_is_no_number_fails(tmp_path: Path) -> None:
    """volcengine/verl#498."""
    line = next(printed.line for printed in LINES if printed.name == "verl").replace(
        "actor/entropy", "critic/vf_loss:{2} - critic/grad_norm:{2} - actor/entropy"
    )
    text = "".join(line.format(step, "2.5", "nan" if step > 5 else "0.1") for step in range(1, 9))
    result = result_of("run.loss_finite", read(tmp_path, text))
    assert result.message.startswith("the critic: the loss is nan from step 6 on, in 3 of 8 lines; expected a number")


def test_the_time_of_an_evaluation_is_none_of_the_step_that_it_came_with(tmp_path: Path) -> None:
    """karpathy/nanoGPT#215."""
    lines = [f"iter {step}: loss 4.1, time 1100.00ms, mfu 15.34%\n" for step in range(1, 401)]
    lines[99::100] = [
        f"step {step}: train loss 4.0390, val loss 4.0427\nsaving checkpoint to out\n"
        f"iter {step}: loss 4.2, time 35392.33ms, mfu 13.85%\n"
        for step in range(100, 401, 100)
    ]
    run = read(tmp_path, "".join(lines))
    assert set(lasting(run).values()) == {1.1}
    assert run.data.losses.losses[0, 0].lines == 400


def test_batches_of_one_step_count_once(tmp_path: Path) -> None:
    lines = [
        f"Epoch 1 | iter {at} step {at // 4} | loss train: 2.1, val: n/a | iter time: 110 ms\n" for at in range(4, 40)
    ]
    assert read(tmp_path, "".join(lines)).data.losses.losses[0, 0].lines == 9


def test_steps_are_counted_through_all_epochs(tmp_path: Path) -> None:
    line = next(printed.line for printed in LINES if "Epoch [1]" in printed.line)
    run = read(tmp_path, line.replace("[1][{0}0/7330]", "[3][50/7330]").format(0, "2.5"))
    assert list(run.data.steps[0]) == [14710]


def test_the_steps_of_a_bar_are_counted_through_all_epochs(tmp_path: Path) -> None:
    line = next(printed.line for printed in LINES if "v_num" in printed.line)
    text = "".join(
        line.replace("Epoch 0", f"Epoch {epoch}").format(step, "nan.0" if epoch == 2 else "2.5")
        for epoch in range(3)
        for step in range(1, 19)
    )
    message = result_of("run.loss_finite", read(tmp_path, text)).message
    assert message.startswith("rank 0: the loss is nan from step 37 on, in 18 of 54 lines"), message


def test_losses_of_an_evaluation_are_none_of_training(tmp_path: Path) -> None:
    line = next(printed.line for printed in LINES if printed.name.startswith("OLMo"))
    text = line.format(7, "2.5") + "[eval_step=3/16]\n    eval/books_val/CrossEntropyLoss=nan\n"
    assert result_of("run.loss_finite", read(tmp_path, text)).verdict.value == "pass"
