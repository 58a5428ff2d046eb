"""Starts another process with this Python that imports nothing from the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[3]  # the folder that the suite itself lies in
# With -c, Python would look in the working folder first. With -I it has neither PYTHONPATH nor the user's packages.
BEGIN = "import sys; sys.path[:] = [*filter(None, sys.path), {packages!r}]\n"


def python_running(program: str) -> tuple[str, ...]:
    """The words that start it on a program; its arguments go behind them."""
    return sys.executable, "-c", BEGIN.format(packages=str(PACKAGES)) + program
