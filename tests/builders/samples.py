"""Captures of real commands in `../shared/samples`, read in place and never copied; tests skip if they are absent."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "samples"
ABSENT = f"no captures: {FOLDER} is absent"


@dataclass(frozen=True)
class Sample:
    """One capture with its entry in MANIFEST.tsv."""

    file: str
    topic: str
    command: str
    healthy: str
    kind: str

    @property
    def name(self) -> str:
        return self.file.partition("/")[2]

    @property
    def is_healthy(self) -> bool:
        return self.healthy.lower().startswith("healthy")

    @property
    def is_faulty(self) -> bool:
        return "FAULTY" in self.healthy

    @property
    def text(self) -> str:
        return (FOLDER / self.file).read_bytes().decode("utf-8", errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


@cache
def manifest() -> tuple[Sample, ...]:
    """Every capture in MANIFEST.tsv; empty if the folder is absent."""
    file = FOLDER / "MANIFEST.tsv"
    if not file.is_file():
        return ()
    with file.open(encoding="utf-8", newline="") as rows:
        return tuple(
            Sample(row["file"], row["topic"], row["command"], row["healthy"], row["kind"])
            for row in csv.DictReader(rows, delimiter="\t")
        )


def of_topic(topic: str, chosen: Callable[[Sample], bool] = lambda _: True) -> list[Any]:
    """A topic's captures as test parameters, or one parameter that skips with the reason."""
    matching = [sample for sample in manifest() if sample.topic == topic and chosen(sample)]
    if manifest():
        return [pytest.param(sample, id=sample.name) for sample in matching]
    return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")]


def sample(file: str) -> Sample:
    """One capture by its path in the folder. Skips if the folder is absent."""
    if not manifest():
        pytest.skip(ABSENT)
    return next(entry for entry in manifest() if entry.file == file)
