"""When a load is sustained: a rule over one-minute points of which some may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import accumulate

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.record import record

Points = Sequence[float | None]  # one a minute, None where it is missing


@record
class Period:
    """Minutes in which a load was sustained, the last one included; how many were hot, and the mean of those."""

    first: int
    last: int
    hot: int
    mean: float

    @property
    def minutes(self) -> int:
        """How long."""
        return self.last - self.first + 1

    def mean_of(self, points: Points) -> float | None:
        """The mean of other points of the same minutes, None where all are missing."""
        data = [point for point in points[self.first : self.last + 1] if point is not None]
        return sum(data) / len(data) if data else None


def sustained(points: Points, limit: float, catalog: Catalog) -> Period | None:
    """The longest time at or above `limit` in enough minutes of every span of 15, None where there is none.

    A missing minute is neither above nor below.
    """
    hot = [point is not None and point >= limit for point in points]
    periods = [_period(points, hot, first, behind) for first, behind in _joined(_spans(hot, catalog), catalog)]
    return max(periods, key=lambda period: (period.minutes, period.mean), default=None)


def may_be_sustained(points: Points, limit: float, catalog: Catalog) -> bool:
    """Whether missing minutes could hide a sustained load, as they do where points are too few for any span."""
    if len(points) < catalog.threshold("fsx.span_minutes"):
        return True
    return bool(_spans([point is None or point >= limit for point in points], catalog))


def clock(seconds: float) -> str:
    """A time of CloudWatch's in words: `2026-11-21 07:10`."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "a time that is none"


def _spans(hot: Sequence[bool], catalog: Catalog) -> list[int]:
    """The first minutes of the spans in which enough minutes are hot."""
    length, least = int(catalog.threshold("fsx.span_minutes")), catalog.threshold("fsx.hot_minutes")
    counted = [0, *accumulate(hot)]
    return [first for first in range(len(hot) - length + 1) if counted[first + length] - counted[first] >= least]


def _joined(spans: Sequence[int], catalog: Catalog) -> list[tuple[int, int]]:
    """Spans that meet or overlap as one: first minute, and the one after the last."""
    length = int(catalog.threshold("fsx.span_minutes"))
    joined: list[tuple[int, int]] = []
    for first in spans:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], first + length)
        else:
            joined.append((first, first + length))
    return joined


def _period(points: Points, hot: Sequence[bool], first: int, behind: int) -> Period:
    loads = {minute: point for minute in range(first, behind) if hot[minute] and (point := points[minute]) is not None}
    return Period(min(loads), max(loads), len(loads), sum(loads.values()) / len(loads))
