"""Steps that DeepSpeed skips are named if they continue to the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training_run.logs import bar, deepspeed, finite, hugging_face


def test_a_log_of_deepspeed_whose_steps_are_all_skipped_says_so(tmp_path: Path) -> None:
    """huggingface/transformers#14531: step=2000, skipped=1995."""
    lines = (deepspeed(step, step).replace("skipped=0", f"skipped={step - 5}") for step in range(10, 60, 10))
    result = finite(tmp_path, "".join(lines))
    assert result.verdict.value == "incomplete"  # it has no loss
    assert "concern: rank 0: the optimizer skips every step from step 20 on, in 4 of 5 lines" in result.message


def overflowing(first: int, last: int, of: int = 40) -> str:
    """ymcui/Chinese-LLaMA-Alpaca#534: Trainer's bar, followed by DeepSpeed's message about the next step."""
    scale = (
        " [INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64"
    )
    text = ""
    for step in range(of):
        text += bar(step, of, 132 * step)
        if first <= step + 1 <= last:
            text += f"[2023-06-07 22:16:00,018]{scale}, reducing to 32\n"
        if step % 10 == 9:
            text += hugging_face(step / 100, norm=None)
    return text + bar(of, of, 132 * of)


SUMMARY = "\n{'train_runtime': 5280.0, 'train_steps_per_second': 0.01, 'train_loss': 2.5, 'epoch': 2.0}\n"


def evaluated(steps: int) -> str:
    """An evaluation's bar after the end."""
    return "".join(bar(step, steps, step) for step in range(steps + 1))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (overflowing(35, 40), "concern"),
        (overflowing(35, 38), "pass"),
        (overflowing(1, 6) + overflowing(40, 40), "pass"),
        (overflowing(1, 12) + SUMMARY, "pass"),
        (overflowing(1, 12) + evaluated(5), "pass"),
        (overflowing(35, 40) + SUMMARY + evaluated(50), "concern"),
        (overflowing(35, 40) + evaluated(50), "concern"),
    ],
    ids=[
        "to the end",
        "until the scale was low enough",
        "while the scale settles",
        "while the scale settles, and a summary",
        "while the scale settles, and a short evaluation",
        "to the end, a summary and a long evaluation",
        "to the end, and a long evaluation",
    ],
)
def test_steps_that_deepspeed_skips_beside_a_bar_are_counted(tmp_path: Path, text: str, verdict: str) -> None:
    result = finite(tmp_path, text)
    assert result.verdict.value == verdict
    assert verdict == "pass" or result.message == (
        "rank 0: the optimizer skips every step from step 35 on, in 6 of 6 lines; "
        "expected steps that change the weights"
    )
