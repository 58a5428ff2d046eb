"""FSx file systems that nodes mount: throughput at its limit, and free space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.aws import fsx_limits, fsx_metrics
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.facts_fsx import (
    FileSystem,
    Period,
    Points,
    Series,
    clock,
    may_be_sustained,
    sustained,
)
from clusterproof.plugins.evidence.field import each, known, readings

pytestmark = [mark.storage, mark.preflight, mark.hyperpod_performance_debugger("B")]

AVAILABLE = ("AVAILABLE", "UPDATING")  # FSx's words; the second where somebody changes its size or throughput
FAILED = "FAILED"
SHOWN = 3  # servers or targets that a message names
Metric = tuple[Series, Points]


@evidence(
    "aws fsx describe-file-systems; aws cloudwatch get-metric-data: AWS/FSx DataReadBytes and DataWriteBytes, Sum, 60 s"
)
def test_fsx_throughput(file_system: FileSystem) -> None:
    """FSx throughput.

    Bytes read and written by clients are compared with the baseline: storage × throughput per TiB on Lustre, the
    throughput capacity on OpenZFS. Bursts and caching can exceed 100 % for a while. A single peak does not count: the
    load is sustained if 10 of 15 one-minute points are above the limit. A file system that FSx calls FAILED serves
    nobody; any other state in which it is not available is a concern.

    Remedy (investigate): The capacity is saturated: provision more throughput or storage, or read and write less (cache
    on NVMe, fewer or staggered checkpoints). If jobs wait for I/O although this check passes, their I/O pattern is
    inefficient: small files, small reads, or files on one storage target.
    """
    with part:
        _evaluate_state(readings(file_system, "lifecycle")[0].get("lifecycle") or AVAILABLE[0])
    points, catalog = file_system.throughput_percent, file_system.catalog
    limit = catalog.threshold("fsx.load_fail_percent")
    full = sustained(points, limit, catalog)
    assert not full, f"{_throughput(file_system, full)}; expected less than {limit:g} % sustained"
    limit = catalog.threshold("fsx.load_concern_percent")
    high = sustained(points, limit, catalog)
    if high:
        concern(f"{_throughput(file_system, high)}; expected less than {limit:g} % sustained")
    if may_be_sustained(points, limit, catalog):
        reported = sum(point is not None for point in points)
        incomplete(
            f"throughput reported for {reported} of {len(points)} minutes; expected enough to rule out a sustained load"
        )


@evidence(
    "aws cloudwatch get-metric-data: AWS/FSx NetworkThroughputUtilization, FileServerDiskThroughputUtilization, "
    "FileServerDiskIopsUtilization, DiskIopsUtilization, CPUUtilization, Average, 60 s, each server and target"
)
def test_fsx_utilization(file_system: FileSystem) -> None:
    """FSx utilization.

    Evaluates the network, disk throughput, disk IOPS (metadata IOPS on an MDT) and CPU of each server and target as
    AWS's percentage of their limits, sustained over 10 of 15 one-minute points. If one is saturated while the
    throughput is low, the cause is the I/O pattern, not a lack of capacity.

    Remedy (investigate): If the I/O pattern is the cause, use larger reads and writes, fewer small files (shards,
    archives), no directory walks, and striping over all targets. If the throughput is high as well, provision more
    capacity.
    """
    metrics, catalog = _percentages(file_system), file_system.catalog
    limit = catalog.threshold("fsx.load_fail_percent")
    full, metrics = _loads(metrics, limit, catalog)
    fail_if(full, f"{_utilization(file_system, full)}; expected less than {limit:g} % sustained")
    limit = catalog.threshold("fsx.load_concern_percent")
    high, metrics = _loads(metrics, limit, catalog)
    concern_if(high, f"{_utilization(file_system, high)}; expected less than {limit:g} % sustained")
    dark = [_name(series) for series, points in metrics if may_be_sustained(points, limit, catalog)]
    if dark:
        more = f" and {len(dark) - SHOWN} more" if len(dark) > SHOWN else ""
        names = f"{', '.join(dark[:SHOWN])}{more}"
        incomplete(f"too few minutes of data for {names}; expected enough to rule out a sustained load")


@evidence(
    "aws cloudwatch get-metric-data: AWS/FSx FreeDataStorageCapacity, Minimum, Sum and SampleCount; "
    "StorageCapacityUtilization; UsedStorageCapacity and StorageCapacity; lfs df -h PATH"
)
def test_fsx_capacity(file_system: FileSystem) -> None:
    """FSx capacity.

    A write fails as soon as one target that stores part of the file is full, however empty the rest of the file system
    is.

    Remedy (clean up): Delete or move data; spread large files over all targets (lfs migrate, lfs setstripe); add
    storage.
    """
    if file_system.is_elastic:
        not_applicable("its storage grows with its contents")
    used = known(lambda: file_system.used_percent, None)
    target = known(lambda: file_system.fullest_target, None) if file_system.kind == "LUSTRE" else None
    if target and (used is None or used <= target[1]):
        name, most = target
        seen = f"{name} is {most:.0f} % full" + (f", the whole {used:.0f} %" if used is not None else "")
    elif used is not None:
        most, seen = used, f"{used:.0f} % full"
    else:
        return
    limit = file_system.catalog.threshold("fsx.fill_fail_percent")
    assert most < limit, f"{seen}; expected less than {limit:g} %"
    limit = file_system.catalog.threshold("fsx.fill_concern_percent")
    if most >= limit:
        concern(f"{seen}; expected less than {limit:g} %")


def _evaluate_state(state: str) -> None:
    seen = f"FSx calls it {state[:40]}; expected AVAILABLE"
    fail_if(state == FAILED, seen)
    concern_if(state not in AVAILABLE, seen)


def _throughput(file_system: FileSystem, period: Period) -> str:
    baseline = file_system.baseline_mb_s
    left = max(0.0, baseline * (1 - period.mean / 100))
    above = ", above it by bursts and cache" if period.mean > 100 else ""
    return (
        f"throughput at {period.mean:.0f} % of the baseline of {baseline:g} MB/s{above}, {_when(file_system, period)}, "
        f"{left:.0f} MB/s left: the capacity is saturated"
    )


def _percentages(file_system: FileSystem) -> list[Metric]:
    """All percentages of a limit that CloudWatch has for a file system."""
    kind = file_system.kind
    metrics: list[Metric] = []
    for metric in fsx_metrics().values():
        series_of_it = file_system.series(metric.metric) if metric.words else ()
        with part:
            if not series_of_it and metric.metric in fsx_limits(kind):
                incomplete(f"CloudWatch has no {metric.metric} for it", f"no {metric.metric} in CloudWatch")
        metrics += each(series_of_it, lambda series: (series, series.points))
    return metrics


def _loads(metrics: Sequence[Metric], limit: float, catalog: Catalog) -> tuple[list[tuple[str, Period]], list[Metric]]:
    """The loads that stay above a limit: for each metric the worst server or target, and how many more; worst first.

    And what has no such load.
    """
    loads: list[tuple[str, Period]] = []
    rest: list[Metric] = []
    for _, group in groupby(metrics, key=lambda pair: pair[0].metric):
        of_metric = [((series, points), sustained(points, limit, catalog)) for series, points in group]
        hot = [(period, _name(series)) for (series, _), period in of_metric if period]
        rest += [metric for metric, period in of_metric if not period]
        worst, name = max(hot, key=lambda pair: pair[0].mean, default=(None, ""))
        if worst:
            loads.append((f"{name} (and {len(hot) - 1} more)" if len(hot) > 1 else name, worst))
    return sorted(loads, key=lambda load: -load[1].mean), rest


def _utilization(file_system: FileSystem, loads: Sequence[tuple[str, Period]]) -> str:
    if not loads:
        return ""
    seen = [
        f"{name} at {period.mean:.0f} %, {_when(file_system, period)}, {max(0.0, 100 - period.mean):.0f} % left"
        for name, period in loads
    ]
    return f"{', '.join(seen)}{_cause(file_system, loads[0][1])}"


def _cause(file_system: FileSystem, period: Period) -> str:
    """Whether capacity or pattern is the cause, by the throughput in the same minutes; empty if it is unknown."""
    try:
        throughput = period.mean_of(file_system.throughput_percent)
    except Incomplete:
        return ""
    if throughput is None:
        return ""
    is_low = throughput < file_system.catalog.threshold("fsx.low_throughput_percent")
    cause = "the pattern is inefficient, not the capacity too small" if is_low else "the capacity is saturated"
    return f": {cause}, for the throughput is at {throughput:.0f} % of its baseline"


def _when(file_system: FileSystem, period: Period) -> str:
    first, last = (clock(file_system.begin + 60 * minute) for minute in (period.first, period.last))
    day = first.partition(" ")[0]
    return f"{period.hot} of {period.minutes} minutes from {first} to {last.removeprefix(f'{day} ')} UTC"


def _name(series: Series) -> str:
    """A percentage as text: `disk IOPS of OST0002`; for a metadata target, metadata IOPS."""
    percentage = fsx_metrics()[series.metric].words
    percentage = percentage.replace("disk", "metadata") if series.target.startswith("MDT") else percentage
    return f"{percentage} of {series.component}" if series.component else percentage
