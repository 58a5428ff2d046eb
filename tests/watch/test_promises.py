"""The table of docs/watch.md is held, line by line: each check in it names its fault, and when the table says."""

from __future__ import annotations

import pytest

from tests.watch.days import EVERY_S, Day
from tests.watch.promises import FAULTS, WITHIN, Row, rows

EVERY = [(row, check) for row in rows() for check in row.checks]


@pytest.mark.parametrize(("row", "check"), EVERY, ids=[check for _, check in EVERY])
def test_what_the_table_promises_is_named_in_time(row: Row, check: str) -> None:
    day = Day()
    day.ticks(3)
    before, most = day.now, WITHIN[row.named]
    assert day.of(check) == []
    FAULTS[check](day)
    while not day.of(check) and day.now - before < most * EVERY_S:
        FAULTS[check](day)
    assert day.of(check)[:1] in (["opened"], ["happened"]), row.what
    assert day.now - before <= most * EVERY_S


def test_the_table_has_every_fault_once() -> None:
    assert sorted(check for _, check in EVERY) == sorted(FAULTS)
