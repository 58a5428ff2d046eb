"""What is measured of whole runs."""

from __future__ import annotations

import sys

import pytest

from bench.runs import cost

pytestmark = pytest.mark.long


def test_a_run_that_breaks_off_has_no_cost() -> None:
    with pytest.raises(RuntimeError, match="ended with 3; expected 0 or 1"):
        cost([sys.executable, "-c", "raise SystemExit(3)"])
