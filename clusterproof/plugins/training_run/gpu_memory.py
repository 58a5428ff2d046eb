"""The memory of GPUs: whether it grows without an end, and how much of it is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean, median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.robust import spread
from clusterproof.plugins.training_run.samples import MEMORY, Samples, begun

SETTLED_S = 600  # of a run until caches and allocators have their size
LEAST_S = 1800  # of what is behind that
MAX_POINTS = 128  # of a series that slopes are taken between
CERTAIN = 3.0  # times its own scatter must it have grown,
LEAST_GROWTH = 0.2  # and by so many points at least

Points = Sequence[tuple[float, float]]  # seconds, percent


@record
class Growth:
    """A GPU whose memory grows: percent now, points an hour, and the hours until it is full."""

    name: str
    percent: float
    points_an_hour: float
    hours_left: float

    @property
    def words(self) -> str:
        """`gpu001 gpu3 uses 80 % and 2.5 points more each hour: full in 8.0 h`."""
        more = f"{self.points_an_hour:.1f} points more each hour"
        return f"{self.name} uses {self.percent:.0f} % and {more}: full in {self.hours_left:.1f} h"


def peak(samples: Samples) -> float | None:
    """The most that any GPU uses of its memory, in percent; None where it is unknown."""
    every = [stretch.mean for series in samples.of(MEMORY).values() for stretch in series.values()]
    return max(every, default=None)


def observed_s(samples: Samples) -> float | None:
    """For how long memory was sampled behind the first ten minutes, of the GPU of which least is known."""
    spans = [points[-1][0] - points[0][0] if points else 0.0 for _, points in _settled(samples)]
    return min(spans, default=None)


def growing(samples: Samples) -> list[Growth]:
    """The GPUs whose memory grows by more than its scatter, the soonest full first."""
    found = (_growth(name, points) for name, points in _settled(samples))
    return sorted((one for one in found if one), key=lambda one: one.hours_left)


def _settled(samples: Samples) -> Iterator[tuple[str, Points]]:
    start = begun(samples) + SETTLED_S / samples.bin_s
    for (node, device), series in sorted(samples.of(MEMORY).items()):
        yield (
            f"{node} {device}",
            [(at * samples.bin_s, stretch.mean) for at, stretch in sorted(series.items()) if at >= start],
        )


def _growth(name: str, points: Points) -> Growth | None:
    """None where it does not grow, or grows no more: what one jump has raised stays as it is."""
    late = points[len(points) // 2 :]
    if len(late) < 2:
        return None
    slope, of_late = _slope(points), _slope(late)
    rise = of_late * (late[-1][0] - late[0][0])
    line = [percent - of_late * seconds for seconds, percent in late]
    if slope <= 0 or rise < max(LEAST_GROWTH, CERTAIN * spread(line)):
        return None
    now = fmean(percent for _, percent in late[-max(1, len(late) // 20) :])
    per_s = min(slope, of_late)
    return Growth(name, now, 3600 * per_s, max(0.0, 100 - now) / per_s / 3600)


def _slope(points: Points) -> float:
    """Points a second by Theil and Sen: the median of the slopes between any two."""
    step = max(1, len(points) // MAX_POINTS)
    pairs = combinations(points[::step], 2)
    return median((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairs)
