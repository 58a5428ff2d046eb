"""Stretches of time in which something holds, out of the moments at which it was looked at."""

from __future__ import annotations

from collections.abc import Iterable

MAX_PAUSE_S = 60.0  # between two looks at what goes on


def longest(moments: Iterable[tuple[int, bool]], bin_s: float) -> list[int]:
    """Of moments in order, each with whether it holds then: those of the longest time in which it always does.

    Where nobody looked for a minute it may have ended meanwhile.
    """
    best: list[int] = []
    current: list[int] = []
    for at, holds in moments:
        if not holds or (current and (at - current[-1]) * bin_s > MAX_PAUSE_S):
            current = []
        if holds:
            current.append(at)
            if current[-1] - current[0] > (best[-1] - best[0] if best else -1):
                best = list(current)
    return best
