"""Prints what this machine lacks, and thus which tests a full run will skip."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.counterparts import installed
from tests.testbed import needs

COUNTERPARTS = sorted(file.parent.name for file in Path(installed.__file__).parent.glob("*/install"))


def missing() -> list[str]:
    """Each missing thing once, with how to install it."""
    marks = [mark for name, mark in vars(needs).items() if name.startswith("needs_")]
    return reasons([*marks, *map(installed.needs, COUNTERPARTS)])


def reasons(marks: list[pytest.MarkDecorator]) -> list[str]:
    """The reasons of the marks that skip here, each reason once."""
    return list(dict.fromkeys(str(mark.kwargs["reason"]) for mark in marks if mark.args[0]))


if __name__ == "__main__":
    for reason in missing():
        sys.stdout.write(f"will be skipped: {reason}\n")
