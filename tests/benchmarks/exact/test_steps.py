"""Training steps under PyTorch on a processor: the same each time, and no bit of gradients or weights flips unseen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.benchmarks.exact.in_torch import printed_by

STEP = 5


def told(python: str, case: str) -> dict[str, Any]:
    """What one case of the program says."""
    found: dict[str, Any] = json.loads(printed_by(python, "tests.benchmarks.exact.steps_with_torch", case))
    return found


@pytest.fixture(scope="module")
def clean(python: str) -> list[dict[str, Any]]:
    """The steps without a fault, by type."""
    return list(told(python, "clean")["types"])


def test_steps_are_the_same_in_another_process_and_when_repeated(python: str, clean: list[dict[str, Any]]) -> None:
    assert [one["type"] for one in clean] == ["float32", "bfloat16"]
    assert told(python, "clean")["types"] == clean
    for one in clean:
        assert len(set(one["digests"])) == len(one["digests"]) == 16
        assert (one["differing"], one["passes"]) == ([], 2)
    assert clean[0]["digests"] != clean[1]["digests"]


@pytest.mark.parametrize("case", ["a bit of a gradient", "a bit of a weight"])
def test_a_bit_that_flips_on_one_gpu_gives_it_another_digest_from_that_step_on(
    python: str, clean: list[dict[str, Any]], case: str
) -> None:
    for one, right in zip(told(python, case)["types"], clean, strict=True):
        differs = [own != other for own, other in zip(one["digests"], right["digests"], strict=True)]
        assert differs.index(True) == STEP
        assert one["differing"] == []  # it comes each time: only the others show it


@pytest.mark.parametrize("case", ["once in the first pass", "once in a later pass"])
def test_a_bit_that_flips_once_makes_a_gpu_differ_from_itself(python: str, case: str) -> None:
    for one in told(python, case)["types"]:
        assert one["differing"] == [{"pass": 1, "step": STEP}]


def test_a_digest_counts_every_bit_and_where_it_is(python: str) -> None:
    digests = told(python, "digests")["digests"]
    assert len(set(digests)) == len(digests) == 36
