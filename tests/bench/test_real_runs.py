"""Small runs of what `scripts/simulate real_runs` trains, where PyTorch is installed, and the figures they yield."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.real_runs import (
    FAULTS,
    HANGS,
    KINDS,
    THROTTLED,
    WAITING,
    Training,
    named,
    plans,
    torch_python,
)
from bench.runs import cost

ROUNDS = len(HANGS) * (len(KINDS) + 1)


def test_one_of_nine_runs_hangs_and_each_other_has_a_kind_of_its_own(tmp_path: Path) -> None:
    runs = list(plans(ROUNDS, tmp_path))
    kinds = len({plan.fault for plan in runs if not plan.hangs})
    assert kinds >= len(set(KINDS) - {THROTTLED})  # without control groups, no run is throttled
    assert Counter(plan.hangs for plan in runs)[True] == ROUNDS // (kinds + 1)


def test_the_same_runs_are_planned_each_time(tmp_path: Path) -> None:
    assert list(plans(20, tmp_path)) == list(plans(20, tmp_path))


def test_only_a_rank_with_a_fault_is_to_be_named(tmp_path: Path) -> None:
    for plan in plans(ROUNDS, tmp_path):
        assert plan.injected == ({plan.rank} if plan.fault in (*FAULTS, *HANGS) else set())


def test_ranks_that_wait_are_not_taken_for_those_that_are_named() -> None:
    message = "rank 0 missing in all_reduce 57 of default_pg (ranks 1, 2, 3 waiting); expected every rank to come"
    assert WAITING.sub("", message) == "rank 0 missing in all_reduce 57 of default_pg ; expected every rank to come"


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with PyTorch. Skips if there is none."""
    path = torch_python(None)
    if path is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=pytest.mark.in_turn(fault)) for fault in ("gc pauses", "stuck in forward")]
)
def test_the_rank_at_fault_is_named_and_nobody_else(fault: str, python: str, tmp_path: Path) -> None:
    plan = next(plan for plan in plans(ROUNDS, tmp_path) if plan.fault == fault and plan.ranks == 4)
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        training = Training(python, log)
        training.run(replace(plan, steps=90, batch=32))
        training.end()
    assert set(named(plan.folder)) == plan.injected


@pytest.mark.long
def test_a_run_that_breaks_off_has_no_cost() -> None:
    with pytest.raises(RuntimeError, match="ended with 3; expected 0 or 1"):
        cost([sys.executable, "-c", "raise SystemExit(3)"])
