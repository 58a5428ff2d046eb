"""Starts another Python for a part of the suite, without importing anything from the working folder."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[3]  # the folder that the suite itself lies in
# With -c, Python would look in the working folder first. With -I it ignores PYTHONPATH and the user's packages.
BEGIN = "import sys; sys.path[:] = [*filter(None, sys.path), {packages!r}]\n"


def python_running(program: str) -> tuple[str, ...]:
    """The command that runs a program with this Python; append the program's arguments."""
    return sys.executable, "-c", BEGIN.format(packages=str(PACKAGES)) + program
