"""An FSx file system mounted by nodes: its limits, load and fill level, and sustained load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import accumulate
from typing import Any, TypeVar

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.field import (
    Decode,
    Field,
    Reported,
    each,
    integer,
    known,
    number,
    objects_as,
    optional,
    read,
    table,
    text,
    values,
)

T = TypeVar("T")

MB = 10**6  # bytes of the megabyte used in throughput prices
GIB = 2**30
PERIOD_S = 60
TYPES = {"LUSTRE": "Lustre", "OPENZFS": "OpenZFS"}
ELASTIC = "INTELLIGENT_TIERING"
SHOWN_PATHS = 3


@record
class Series(Reported):
    """One metric and statistic of a file system, or of one of its servers or targets."""

    file_system = Field(text)
    server = Field(text)
    target = Field(text)
    metric = Field(text)
    statistic = Field(text)

    @property
    def points(self) -> Points:
        """A value for each minute, None if missing. Raises Incomplete."""
        where = f"{self.metric} of {self.component or self.file_system}"
        return tuple(read(entry, optional(number), where) for entry in read(self.data.get("values"), values, where))

    @property
    def component(self) -> str:
        """Its server or target, empty for the file system as a whole."""
        return self.server or self.target


@record
class Metrics(Reported):
    """What CloudWatch returned for all file systems."""

    begin = Field(number)
    minutes = Field(integer)
    series = Field(objects_as(Series), where="fsx_metrics: series")


@record
class FileSystem(Reported):
    """A file system mounted by nodes. Facts that FSx does not show raise Incomplete with the reason."""

    paths: tuple[str, ...]
    unknown: str  # why nothing is known, else empty
    ask: Callable[[], Metrics]
    catalog: Catalog

    @property
    def label(self) -> str:
        """Its mount point and id: `/fsx (fs-0123456789abcdef0)`."""
        more = "" if len(self.paths) <= SHOWN_PATHS else f" and {len(self.paths) - SHOWN_PATHS} more"
        name = self.data.get("FileSystemId")
        return f"{', '.join(self.paths[:SHOWN_PATHS])}{more}" + (f" ({name})" if isinstance(name, str) else "")

    @property
    def described(self) -> Mapping[str, Any]:
        """Its entry in DescribeFileSystems. Raises Incomplete."""
        if self.unknown:
            raise Incomplete(self.unknown, cause="a file system that FSx does not show")
        return self.data

    @property
    def id(self) -> str:
        """`fs-0123456789abcdef0`."""
        return read(self.described.get("FileSystemId"), text, "FileSystemId")

    @property
    def kind(self) -> str:
        """`LUSTRE` or `OPENZFS`. Raises NotApplicable for other types."""
        kind = read(self.described.get("FileSystemType"), text, "FileSystemType")
        if kind not in TYPES:
            raise NotApplicable(f"a file system of type {kind} is not evaluated; FSx for Lustre and OpenZFS are")
        return kind

    @property
    def lifecycle(self) -> str | None:
        """`AVAILABLE`, `UPDATING`, `MISCONFIGURED`, `FAILED`, …; None if not described. Raises Incomplete."""
        return read(self.described.get("Lifecycle"), optional(text), "Lifecycle")

    @property
    def baseline_mb_s(self) -> float:
        """The provisioned throughput, in MB/s. Raises Incomplete if not described."""
        if self.kind == "OPENZFS" or self.is_elastic:
            return self._of_configuration("ThroughputCapacity", number)
        per_tib = (
            self.catalog.threshold("fsx.scratch_mb_s_per_tib")
            if self._of_configuration("DeploymentType", text) == "SCRATCH_2"
            else self._of_configuration("PerUnitStorageThroughput", number)
        )
        return self.capacity_gib / self.catalog.threshold("fsx.gib_per_tib") * per_tib

    @property
    def is_elastic(self) -> bool:
        """Whether its storage grows automatically."""
        return read(self.described.get("StorageType"), optional(text), "StorageType") == ELASTIC

    @property
    def capacity_gib(self) -> int:
        """Its storage in GiB, at least one. Raises Incomplete."""
        capacity = read(self.described.get("StorageCapacity"), integer, "StorageCapacity")
        if capacity < 1:
            raise Incomplete(f"StorageCapacity is {capacity} GiB", cause="no storage capacity")
        return capacity

    @property
    def begin(self) -> float:
        """The first requested minute, in seconds since 1970."""
        return self.ask().begin

    def series(self, metric: str, statistic: str = "Average") -> tuple[Series, ...]:
        """A metric's series for this file system: one, or one for each server or target; none if there is none."""
        return tuple(
            series
            for series in self.ask().series
            if series.file_system == self.id and series.metric == metric and series.statistic == statistic
        )

    def total(self, metric: str, statistic: str) -> Points:
        """The points for the whole file system. Raises Incomplete if CloudWatch has no such metric."""
        of_whole = [series for series in self.series(metric, statistic) if not series.component]
        if not of_whole:
            raise Incomplete(f"CloudWatch has no {metric} of it", cause=f"no {metric} in CloudWatch")
        return of_whole[0].points

    @property
    def throughput_percent(self) -> Points:
        """Bytes read and written per second, in percent of the baseline; None if either is missing.

        Bursts and caching can exceed 100. Raises Incomplete.
        """
        full = self.baseline_mb_s * MB * PERIOD_S / 100
        if full <= 0:
            raise Incomplete(f"its throughput capacity is {self.baseline_mb_s:g} MB/s", cause="no throughput capacity")
        both = zip(self.total("DataReadBytes", "Sum"), self.total("DataWriteBytes", "Sum"))  # noqa: B905
        return tuple(None if read is None or written is None else (read + written) / full for read, written in both)

    @property
    def used_percent(self) -> float:
        """The share of its storage in use, in the last minute with data. Raises Incomplete."""
        if self.kind == "OPENZFS":
            total, used = self._last("StorageCapacity", "Average"), self._last("UsedStorageCapacity", "Average")
            if total <= 0:
                raise Incomplete(f"StorageCapacity is {total:g} bytes", cause="no storage capacity")
            return 100 * used / total
        return 100 * (1 - self._last("FreeDataStorageCapacity", "Sum") / (self.capacity_gib * GIB))

    @property
    def fullest_target(self) -> tuple[str, float]:
        """The fullest Lustre object storage target and its usage in percent, in the last minute with data.

        If CloudWatch does not report each target, it is also calculated from the minimum free space of a target,
        assuming equal sizes.
        """
        targets = [series for series in self.series("StorageCapacityUtilization", "Maximum") if series.component]
        last = each(targets, lambda series: (series.component, _last(series.points)))
        reported = [(name, used) for name, used in last if used is not None]
        if not reported:
            return self._target_with_least_space()
        if len(reported) < len(targets):
            reported += filter(None, [known(self._target_with_least_space, None)])
        return max(reported, key=lambda target: target[1])

    def _target_with_least_space(self) -> tuple[str, float]:
        size = self.capacity_gib * GIB / max(1.0, self._last("FreeDataStorageCapacity", "SampleCount"))
        return "the fullest OST", 100 * (1 - self._last("FreeDataStorageCapacity", "Minimum") / size)

    def _last(self, metric: str, statistic: str) -> float:
        last = _last(self.total(metric, statistic))
        if last is None:
            raise Incomplete(f"CloudWatch reports no {metric} of it in this time", cause=f"no {metric} in CloudWatch")
        return last

    def _of_configuration(self, key: str, decode: Decode[T]) -> T:
        name = "LustreConfiguration" if self.kind == "LUSTRE" else "OpenZFSConfiguration"
        return read(read(self.described.get(name), table, name).get(key), decode, key)


def _last(points: Points) -> float | None:
    """The last value that is not missing."""
    return next((point for point in reversed(points) if point is not None), None)


Points = Sequence[float | None]  # one a minute, None where it is missing


@record
class Period:
    """A period of sustained load, including its last minute; the number of hot minutes, and their mean."""

    first: int
    last: int
    hot: int
    mean: float

    @property
    def minutes(self) -> int:
        """Its duration in minutes."""
        return self.last - self.first + 1

    def mean_of(self, points: Points) -> float | None:
        """The mean of other points in that period, None if all are missing."""
        reported = [point for point in points[self.first : self.last + 1] if point is not None]
        return sum(reported) / len(reported) if reported else None


def sustained(points: Points, limit: float, catalog: Catalog) -> Period | None:
    """The longest period with enough minutes at or above `limit` in every span of 15, None if there is none.

    A missing minute counts as neither above nor below.
    """
    hot = [point is not None and point >= limit for point in points]
    periods = [_period(points, hot, first, behind) for first, behind in _joined(_spans(hot, catalog), catalog)]
    return max(periods, key=lambda period: (period.minutes, period.mean), default=None)


def may_be_sustained(points: Points, limit: float, catalog: Catalog) -> bool:
    """Whether missing minutes could hide a sustained load, also if there are too few points for a span."""
    if len(points) < catalog.threshold("fsx.span_minutes"):
        return True
    return bool(_spans([point is None or point >= limit for point in points], catalog))


def clock(seconds: float) -> str:
    """A CloudWatch time as text: `2026-11-21 07:10`."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "an invalid time"


def _spans(hot: Sequence[bool], catalog: Catalog) -> list[int]:
    """The first minutes of spans with enough hot minutes."""
    length, least = int(catalog.threshold("fsx.span_minutes")), catalog.threshold("fsx.hot_minutes")
    counted = [0, *accumulate(hot)]
    return [first for first in range(len(hot) - length + 1) if counted[first + length] - counted[first] >= least]


def _joined(spans: Sequence[int], catalog: Catalog) -> list[tuple[int, int]]:
    """Overlapping or adjacent spans merged: first minute, and the one after the last."""
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
