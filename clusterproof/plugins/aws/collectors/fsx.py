"""The FSx file systems that nodes mount; and from CloudWatch their load and fill level by minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.aws.resources import mounted_systems
from clusterproof.plugins.catalog.aws import fsx_metrics
from clusterproof.plugins.core.cluster import Cluster

KEPT = ("FileSystemId", "FileSystemType", "Lifecycle", "StorageCapacity", "StorageType", "DNSName")
CONFIGURATIONS = {
    "LustreConfiguration": ("DeploymentType", "PerUnitStorageThroughput", "ThroughputCapacity", "MountName"),
    "OpenZFSConfiguration": ("DeploymentType", "ThroughputCapacity", "EndpointIpAddress"),
}
NAMESPACE = "AWS/FSx"
TYPES = ("LUSTRE", "OPENZFS")
SYSTEM, SERVER, TARGET = "FileSystemId", "FileServer", "StorageTargetId"
PERIOD_S = 60
AT_ONCE = 500  # queries in one call
MAX_POINTS = 2_000_000  # about 10 MB of a recording
_FAILED = ("InternalError", "Forbidden")


def read_fsx(account: Account, cluster: Cluster) -> object:
    """The properties of each file system that are needed to identify it and its limits."""
    return {"file_systems": [_record(system) for system in mounted_systems(account, cluster)]}


def _record(system: Mapping[str, Any]) -> dict[str, Any]:
    description = _of(system, KEPT)
    return description | {name: _of(system[name], keys) for name, keys in CONFIGURATIONS.items() if system.get(name)}


def _of(description: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: description[key] for key in keys if key in description}


@dataclass(frozen=True, slots=True)
class Series:
    """One metric and statistic of a file system, or of one of its servers or targets."""

    metric: str
    statistic: str
    dimensions: tuple[tuple[str, str], ...]

    def to_json(self, values: object) -> dict[str, object]:
        """The series as evidence: a value for each minute, null where CloudWatch has none."""
        places = dict(self.dimensions)
        return {
            "file_system": places[SYSTEM],
            "server": places.get(SERVER, ""),
            "target": places.get(TARGET, ""),
            "metric": self.metric,
            "statistic": self.statistic,
            "values": values,
        }


def read_fsx_metrics(account: Account, cluster: Cluster) -> object:
    """Every metric of fsx_metrics.toml that these file systems have, for the window of --fsx-window.

    Raises AwsDenied, AwsError.
    """
    minutes = int(cluster.settings["fsx_window_minutes"])
    end = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    begin = end - timedelta(minutes=minutes)
    systems = [system for system in mounted_systems(account, cluster) if system.get("FileSystemType") in TYPES]
    wanted = [series for system in systems for series in _series_of(account, system["FileSystemId"])]
    if len(wanted) * minutes > MAX_POINTS:
        raise AwsError(f"{len(wanted)} metrics of {minutes} minutes are too many; expected a shorter --fsx-window")
    return {
        "begin": begin.timestamp(),
        "minutes": minutes,
        "series": [series.to_json(values) for series, values in _values(account, wanted, begin, end)],
    }


def _series_of(account: Account, system: str) -> Iterator[Series]:
    """The series in CloudWatch for a file system, its servers and targets; volumes are not requested."""
    own = [{"Name": SYSTEM, "Value": system}]
    for metric in account.listed("cloudwatch", "list_metrics", "Metrics", Namespace=NAMESPACE, Dimensions=own):
        row = fsx_metrics().get(metric["MetricName"])
        dimensions = tuple((entry["Name"], entry["Value"]) for entry in metric.get("Dimensions", ()))
        if row and {name for name, _ in dimensions} in ({SYSTEM}, {SYSTEM, SERVER}, {SYSTEM, TARGET}):
            yield from (Series(row.metric, statistic, dimensions) for statistic in row.statistics)


def _values(
    account: Account, wanted: Iterable[Series], begin: datetime, end: datetime
) -> Iterator[tuple[Series, object]]:
    waiting = iter(wanted)
    while batch := list(islice(waiting, AT_ONCE)):
        points: dict[str, dict[int, float]] = defaultdict(dict)
        failed: dict[str, str] = {}
        queries = [_query(f"q{number}", series) for number, series in enumerate(batch)]
        for description in account.listed(
            "cloudwatch",
            "get_metric_data",
            "MetricDataResults",
            MetricDataQueries=queries,
            StartTime=begin,
            EndTime=end,
        ):
            points[description["Id"]].update(_by_minute(description, begin))
            if description.get("StatusCode") in _FAILED:
                failed[description["Id"]] = str(description["StatusCode"])
        minutes = range(int((end - begin).total_seconds()) // PERIOD_S)
        for number, series in enumerate(batch):
            name = f"q{number}"
            yield series, {"error": failed[name]} if name in failed else [points[name].get(at) for at in minutes]


def _query(name: str, series: Series) -> dict[str, Any]:
    dimensions = [{"Name": key, "Value": value} for key, value in series.dimensions]
    metric = {"Namespace": NAMESPACE, "MetricName": series.metric, "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": PERIOD_S, "Stat": series.statistic}}


def _by_minute(description: Mapping[str, Any], begin: datetime) -> dict[int, float]:
    """The values of one result by minute since `begin`; a result may span several pages, in any order."""
    return {
        int((time - begin).total_seconds()) // PERIOD_S: round(float(value), 3)
        for time, value in zip(description.get("Timestamps", ()), description.get("Values", ()))  # noqa: B905 - as CloudWatch has them
    }
