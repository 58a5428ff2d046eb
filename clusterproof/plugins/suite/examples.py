"""An example of what each check finds, as `scripts/generate` has it from the demo cluster and from faults."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("examples.json")


def example_of(check: str) -> str:
    """`GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0`; empty where there is none."""
    return _examples().get(check, "")


@cache
def _examples() -> dict[str, str]:
    data: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return data
