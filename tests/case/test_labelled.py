"""The labelled cases: hardware is blamed only where it failed, and on that node; other errors tend to unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cases import outcome
from bench.outcomes import Outcome, figures
from clusterproof.plugins.catalog.causes import CAUSES
from tests.case.stories import ALL, cases, held_aside, stories

pytestmark = [pytest.mark.long, pytest.mark.any_user]

PRECISION, RECALL = 0.98, 0.85
ALLOWED = 0.03  # share of all cases: errors that are neither right nor unknown


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder: Path = tmp_path_factory.mktemp("cases")
    return [outcome(case, folder) for case in cases()]


def test_there_are_enough_cases_of_each_cause() -> None:
    labels = [story.label for story in stories()]
    assert len(list(cases())) >= 150
    assert {label: labels.count(label) for label in CAUSES if labels.count(label) < 8} == {}
    drawn = [story for story in stories() if not story.data.get("late")]
    assert 0.35 < len(held_aside()) / len(drawn) < 0.45


def test_no_innocent_node_is_blamed(outcomes: list[Outcome]) -> None:
    assert [(each.name, each.blamed) for each in outcomes if each.innocent] == []


def test_where_hardware_is_blamed_it_was_hardware(outcomes: list[Outcome]) -> None:
    shares = figures(outcomes)
    assert shares["hardware_precision"] >= PRECISION


def test_of_what_was_kept_whole_hardware_is_found(outcomes: list[Outcome]) -> None:
    shares = figures(each for each in outcomes if each.kept == ALL)
    assert shares["hardware_recall"] >= RECALL


def test_other_errors_are_to_unknown(outcomes: list[Outcome]) -> None:
    shares = figures(outcomes)
    assert shares["wrong_and_not_unknown"] <= ALLOWED * shares["cases"]
