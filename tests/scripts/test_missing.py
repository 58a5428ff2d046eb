"""What is said before a run of all tests: what this machine lacks."""

from __future__ import annotations

import pytest

from tests.counterparts import installed
from tests.missing import COUNTERPARTS, missing, reasons


def test_each_thing_that_is_missing_is_said_once_and_what_is_there_is_not() -> None:
    lacks = pytest.mark.skipif(True, reason="fio is not installed: apt-get install fio")
    there = pytest.mark.skipif(False, reason="")
    assert reasons([lacks, there, lacks]) == ["fio is not installed: apt-get install fio"]


def test_the_programs_of_others_are_among_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    lacking = [line for line in missing() if "scripts/counterparts" in line]
    assert sorted(line.rpartition(" ")[2] for line in lacking) == COUNTERPARTS
    assert "promtool is not installed (promtool): scripts/counterparts promtool" in lacking
    assert installed.folder("machine").parts[:2] == ("/", "nowhere")
