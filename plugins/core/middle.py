"""The median; the module of Python's own that has it costs a prolog more than all its verdicts."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle one of the values, or the mean of the two in the middle. Raises IndexError where there is none."""
    told = sorted(values)
    half = len(told) // 2
    return told[half] if len(told) % 2 else (told[half - 1] + told[half]) / 2
