"""Where wrong elements are, in words that point to a part of a GPU; and processes that answer for GPUs and cores."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusterproof.plugins.evidence.exact.on_node.locations import WrongElement, bits, location_in_words, to_report
from clusterproof.plugins.evidence.exact.on_node.processes import forked


def at(*places: tuple[int, int]) -> list[WrongElement]:
    """Elements in which bits 3 and 12 differ."""
    return [WrongElement(row, column, 0, 0x1008) for row, column in places]


@pytest.mark.parametrize(
    ("places", "description"),
    [
        ([(5, 9)], "row 5, column 9"),
        ([(5, 9), (5, 10), (5, 12)], "row 5 (3 columns)"),
        ([(5, 8), (5, 40), (5, 72)], "row 5 (3 columns, 32 apart)"),
        ([(1, 9), (2, 9)], "column 9 (2 rows)"),
        ([(130, 260), (140, 300)], "one tile of 64 x 64 at row 128, column 256"),
        ([(0, 9), (200, 41), (300, 1033)], "lane 9 of 32 (3 columns)"),
        ([(9, 0), (41, 200), (1033, 300)], "lane 9 of 32 (3 rows)"),
        ([(0, 0), (300, 7), (900, 1000)], "3 rows, 3 columns"),
        ([(0, 0), (300, 6), (900, 1000)], "3 rows, 3 columns, 2 apart"),
    ],
)
def test_elements_are_a_row_a_column_a_tile_or_a_lane(places: list[tuple[int, int]], description: str) -> None:
    assert location_in_words(at(*places)) == description


def test_the_bits_that_differ_are_numbered_from_the_lowest() -> None:
    assert bits([WrongElement(0, 0, 0b1000, 0b0000), WrongElement(0, 1, 0, 1 << 63)]) == [3, 63]
    assert to_report([], "nowhere") == {"where": "nowhere", "bits": []}
    assert to_report(at((5, 9)), "") == {
        "where": "row 5, column 9",
        "bits": [3, 12],
        "expected": "0x0",
        "got": "0x1008",
    }


def killed() -> dict[str, object]:
    """A process that a driver kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def hanging() -> dict[str, object]:
    """A process that hangs in a driver."""
    time.sleep(600)
    return {}


@pytest.mark.long
def test_each_process_answers_for_itself_and_one_that_does_not_is_named_in_its_place() -> None:
    answers = forked([lambda: {"own": 1}, lambda: 1 // 0, killed, hanging, lambda: sys.exit(3)], 3.0)  # type: ignore[list-item, return-value]
    assert [answer.get("own") or answer["error"] for answer in answers] == [
        1,
        "ZeroDivisionError: integer division or modulo by zero",
        "its process ended with signal 9 and no answer",
        "no answer in 3 s",
        "SystemExit: 3",
    ]


def answering(end: Callable[[], object]) -> Callable[[], Iterator[dict[str, Any]]]:
    """A process that has answered twice when it exits."""

    def answers() -> Iterator[dict[str, Any]]:
        yield {"seen": 1}
        yield {"seen": 2}
        end()

    return answers


@pytest.mark.long
def test_what_a_process_has_said_is_kept_however_it_ends() -> None:
    assert forked([answering(end) for end in (dict, lambda: 1 // 0, killed, hanging)], 3.0) == [
        {"seen": 2},
        {"seen": 2, "error": "ZeroDivisionError: integer division or modulo by zero"},
        {"seen": 2, "error": "its process ended with signal 9 and no answer"},
        {"seen": 2, "error": "no answer in 3 s"},
    ]


@pytest.mark.long
def test_an_answer_longer_than_a_pipe_holds_comes_whole() -> None:
    (answer,) = forked([lambda: {"text": "x" * 1_000_000}], 60.0)
    assert len(answer["text"]) == 1_000_000
