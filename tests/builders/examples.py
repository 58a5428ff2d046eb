"""The number of hypothesis examples, for properties with expensive examples or rare faults."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 100


def examples(count: int, **more: Any) -> settings:
    """Settings with this many examples per 100 of the active profile: `--quick` has 10, `explore` 1,000."""
    return settings(max_examples=max(1, count * settings().max_examples // USUAL), **more)
