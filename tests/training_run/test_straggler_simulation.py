"""A small run of `scripts/simulate stragglers`: repeatable, with all goals met."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.stragglers import Cell, figures, run, simulate, table

pytestmark = pytest.mark.long

Found = dict[Cell, Counter[str]]


@pytest.fixture(scope="module")
def found() -> Found:
    """Runs of 8 and of 16 ranks."""
    return simulate(0.02, (8, 16), processes=1)


def test_no_healthy_rank_is_flagged(found: Found) -> None:
    counts = figures(found)
    assert counts["healthy_ranks"] > 1_000
    assert counts["flagged"] == 0


def test_ranks_that_are_ten_percent_slow_are_named_through_noise_of_five(found: Found) -> None:
    assert figures(found)["named_10pct_at_5pct"] >= 0.9


def test_the_table_has_every_kind_of_run(found: Found) -> None:
    shown = table(found)
    assert all(kind in shown for kind in ("uneven sequence lengths", "one busy replica", "| 10% | 5% |", "plain rule"))


def test_the_same_cell_comes_out_the_same() -> None:
    cell = Cell("one slow rank", 8, 20, 0.05, 2, 0.1)
    assert run(cell) == run(cell)
