"""The median; the module of Python's own that has it costs a prolog more than all its verdicts."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle one of the values, or the mean of the two in the middle. Raises IndexError where there is none."""
    data = sorted(values)
    half = len(data) // 2
    return data[half] if len(data) % 2 else (data[half - 1] + data[half]) / 2
