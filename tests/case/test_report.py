"""A case as people read it: the day or year of an event where there are several, and Markdown that names its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case.report import markdown, text
from tests.case.files import BROKEN_GPU, SACCT, case_of

RECORD = {"sacct.txt": SACCT.format(state="FAILED")}
OF_RANK_0 = "2026-03-01 08:00:00,000 KeyError: 'image'\n"
OF_RANK_1 = "{day} 23:59:58,000 KeyError: 'label'\n"


@pytest.mark.parametrize(
    ("files", "times"),
    [
        ({"rank_0.log": OF_RANK_0}, ["08:00:00"]),
        (
            {"rank_0.log": OF_RANK_0, "rank_1.log": OF_RANK_1.format(day="2026-02-28")},
            ["02-28 23:59:58", "03-01 08:00:00"],
        ),
        (
            {"rank_0.log": OF_RANK_0, "rank_1.log": OF_RANK_1.format(day="2025-03-01")},
            ["2025-03-01 23:59:58", "2026-03-01 08:00:00"],
        ),
    ],
)
def test_events_of_several_days_or_years_have_theirs(tmp_path: Path, files: dict[str, str], times: list[str]) -> None:
    said = text(case_of(tmp_path, {**RECORD, **files}))
    events = said.partition("Order of events")[2].partition("Clocks of nodes")[0].splitlines()
    assert [line[2:].partition(" rank ")[0].strip() for line in events if " rank " in line] == times


def test_markdown_says_what_marks_mean_that_no_command_ran_and_what_was_not_read(tmp_path: Path) -> None:
    said = markdown(case_of(tmp_path, BROKEN_GPU))
    assert r"Order of events: \> first, \~ the end of others" in said
    assert "\n\nTo copy; nothing of it was done:\n\n    clusterproof check" in said
    assert "\n\nNot there, or not read:\n\n- no kernel log of" in said
