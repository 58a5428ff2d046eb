"""Waiting for a condition, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 600.0


def until(is_so: Callable[[], object], why: Callable[[], object] = str, every_s: float = 0.02) -> None:
    """Wait for a condition; `why` describes in the error what there was instead."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, why()
        time.sleep(every_s)
