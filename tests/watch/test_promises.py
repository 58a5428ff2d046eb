"""The table of docs/watch.md is held, line by line: each check in it names its fault, and when the table says."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from clusterproof.plugins.watch import command, job, own_health, recording, watch
from tests.builders.wheel import ROOT
from tests.watch.days import EVERY_S, Day
from tests.watch.promises import FAULTS, WITHIN, Row, rows

EVERY = [(row, check) for row in rows() for check in row.checks]


@pytest.mark.long
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


@pytest.mark.parametrize(
    ("reasons", "said"),
    [(0x20, ["opened", "closed"]), (0x200, ["opened", "closed"]), (0x4, []), (0x1, []), (0x4000, ["opened", "closed"])],
)
def test_a_reason_of_slow_clocks_that_is_only_a_concern_is_named_at_the_third_tick(
    reasons: int, said: list[str]
) -> None:
    day = Day()
    day.ticks(3)
    day.tick({3: {"clocks_event_reasons": reasons}})
    day.ticks(2)
    assert day.of("gpu.no_throttle") == said[:1]
    day.tick({3: {"clocks_event_reasons": 0x4}})
    day.ticks(6)
    assert day.of("gpu.no_throttle") == said


def test_slow_clocks_are_over_where_the_sampler_that_begins_anew_reports_none() -> None:
    day = Day()
    day.tick({3: {"clocks_event_reasons": 0x20}})
    day.ticks(2)
    day.hello()
    day.ticks(7)
    assert day.of("gpu.no_throttle") == ["opened", "closed"]


def test_the_table_has_every_fault_once() -> None:
    assert sorted(check for _, check in EVERY) == sorted(FAULTS)


@pytest.mark.parametrize(
    ("said", "by"),
    [
        ("the clock was set by", own_health),
        ("the clock of this host was set by", own_health),
        ("open from before, not reported again: ", command),
        (" overwritten unread", own_health),
        ("nothing is recorded under ", recording),
        ("; watching goes on", recording),
        (": its nodes send nothing until it goes on", job),
        (" goes on", job),
        ("whether the job runs is not known", job),
        ("it has booted", watch),
    ],
)
def test_what_the_page_says_of_clocks_disks_and_hosts_is_in_the_words_of_the_watch(said: str, by: ModuleType) -> None:
    text = (ROOT / "docs/watch.md").read_text(encoding="utf-8")
    table = text[text.index("| what happens | what is said |") :].partition("\n\n")[0]
    assert said in table
    assert said in inspect.getsource(by)
