"""Kinds of failed measurements; older journals record them only in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.pairwise.journal import Journal, JournalError, read, write
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.evidence.pairs import Failure, Measurement, Reading
from tests.benchmarks.pairwise.measured import names, racks

PLAN = PairPlan(names(8), racks(names(8), 4), 0.05, seed=7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pairwise.jsonl"


@pytest.mark.parametrize(
    ("problem", "failure"),
    [
        ("clusterproof: n3: iperf3 is not installed: looked on PATH; install iperf3", Failure.NO_PROGRAM),
        ("it ended with 127; clusterproof: n3: /opt/x is not a program here; install it", Failure.NO_PROGRAM),
        ("no RDMA device on either node: a, b", Failure.NO_RDMA),
        ("n3 did not answer: by no fault of its own: busy: taken", Failure.NOT_AT_FAULT),
        ("the ranks did not find each other: its MPI saw no other rank", Failure.APART),
        ("it ended with 1", None),
    ],
)
def test_a_journal_from_before_failures_had_kinds_has_them_in_its_words(
    path: Path, problem: str, failure: Failure | None
) -> None:
    (older,) = measured_older(path, {"problem": problem})
    assert older.reading == Reading(problem=problem, failure=failure)


def test_where_a_journal_says_the_kind_of_a_failure_its_words_are_for_people_alone(path: Path) -> None:
    (measurement,) = measured_older(path, {"problem": "no RDMA device on either node", "failure": ""})
    assert measurement.reading.failure is None
    with pytest.raises(JournalError, match="'a fan' is not a valid Failure"):
        measured_older(path, {"problem": "x", "failure": "a fan"})


def measured_older(path: Path, reading: dict[str, str]) -> tuple[Measurement, ...]:
    """A journal with this reading as an older file has it."""
    write(path, Journal(PLAN, {"meter": "nccl-tests"}))
    line = {"pair": ["n000", "n001"], "round": 1, "at_once": 1, "reading": reading}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return read(path).measurements
