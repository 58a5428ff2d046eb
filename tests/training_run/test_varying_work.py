"""Steps that work on more or less, as sequences of many lengths: slow ones among them are found all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.training_run.builders import said
from tests.training_run.logs import megatron, read


def of_length(step: int, ms: float, length: int) -> str:
    return megatron(step, ms).replace("|\n", f"| actual seqlen:  {length} |\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("lengths", "of_outliers", "of_drift"),
    [
        (lambda random, _: 4000 + 8 * random.randint(0, 90), "concern", "concern"),
        (lambda random, _: 4000 + 4000 * random.randint(0, 1) + 8 * random.randint(0, 90), "concern", "concern"),
        (lambda random, step: random.choice((2000, 4000, 8000)) + step, "concern", "concern"),
        (lambda _, step: 2000 + 20 * step, "concern", "incomplete"),
        (lambda random, step: 4000 + 640 * (step > 300) + 8 * random.randint(0, 9), "incomplete", "incomplete"),
    ],
    ids=["within a fifth", "of two kinds", "far apart", "growing", "longer from a step on"],
)
def test_sequences_of_any_length_hide_no_slow_step_unless_they_grow(
    tmp_path: Path, lengths: Callable[[Random, int], int], of_outliers: str, of_drift: str
) -> None:
    def verdict(check: str, times: Callable[[int], float]) -> str:
        random = Random(3)
        lines = [of_length(step, 1000 * times(step), lengths(random, step)) for step in range(1, 601)]
        return said(check, read(tmp_path, "".join(lines))).verdict.value

    assert verdict("run.step_outliers", lambda step: 10 if step % 20 == 0 else 1) == of_outliers
    assert verdict("run.step_drift", lambda step: 2 if step > 300 else 1) == of_drift
