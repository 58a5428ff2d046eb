"""A run that is still working when it is interrupted."""

from __future__ import annotations

import re
import time
from pathlib import Path

DEADLINE_S = 600.0
# Short sleeps, because a signal just before one long wait would not be noticed until its end.
STALL = """[open({reached!r}, "w"), *(__import__("time").sleep(0.01) for _ in range(6000))]"""


def wait_for(file: Path) -> None:
    """Wait until the file exists."""
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} never came"
        time.sleep(0.01)


def wait_for_results(file: Path, count: int) -> None:
    """Wait until the file has this many results."""
    deadline = time.monotonic() + DEADLINE_S
    while not (file.exists() and len(re.findall(rb'"verdict":.*\n', file.read_bytes())) >= count):
        assert time.monotonic() < deadline, f"{file.name} never had {count} results"
        time.sleep(0.01)
