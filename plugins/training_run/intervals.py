"""Stretches of time: what they cover together, and what of it others leave free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]  # from, to


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What they cover, in order, without overlaps."""
    covered: list[Interval] = []
    for start, end in sorted(intervals):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((start, end))
    return covered


def without(covered: Iterable[Interval], others: list[Interval]) -> list[Interval]:
    """What is left of them where none of the others is; both as `union` has them."""
    left: list[Interval] = []
    at = 0
    for start, end in covered:
        while at < len(others) and others[at][1] <= start:
            at += 1
        number = at
        while number < len(others) and others[number][0] < end:
            if others[number][0] > start:
                left.append((start, others[number][0]))
            start = max(start, others[number][1])
            number += 1
        if start < end:
            left.append((start, end))
    return left


def within(covered: Sequence[Interval], start: float, end: float) -> float:
    """How much of them, as `union` has them, lies there."""
    first = bisect_right(covered, start, key=lambda one: one[1])
    last = bisect_left(covered, end, lo=first, key=lambda one: one[0])
    return sum(min(end, covered[at][1]) - max(start, covered[at][0]) for at in range(first, last))
