"""FSx file systems in moto, CloudWatch with their metrics, and nodes that mount them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.suite import gatherer
from tests.aws.clusters import client, with_cluster
from tests.aws.service import Change, Service
from tests.builders.recordings import boot, node, unreached

SUBNET = "subnet-0123456789abcdef0"
LUSTRE_MOUNT = ("lustre", "10.1.71.197@tcp:/oyuutbev", "/fsx")  # as a node shows it after mounting by DNS name
OST_BYTES = 1200 * 2**30
PAGE = 700  # points per page of GetMetricData
METRICS = 10  # per page of ListMetrics
Points = Sequence["float | None"]
Mount = tuple[str, str, str]  # type, source, path


def lustre(
    service: Service, name: str = "oyuutbev", capacity_gib: int = 4800, kind: str = "LUSTRE", **configuration: object
) -> str:
    """Create a Lustre file system mounted by `name`, for 240 MB/s by default; returns its id."""
    settings = {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 50, **configuration, "MountName": name}
    return _made(service, kind, capacity_gib, LustreConfiguration=settings)


def openzfs(service: Service, capacity_gib: int = 1000, **configuration: object) -> str:
    """Create an OpenZFS file system, for 160 MB/s by default; returns its id."""
    settings = {"DeploymentType": "SINGLE_AZ_2", "ThroughputCapacity": 160, **configuration}
    return _made(service, "OPENZFS", capacity_gib, OpenZFSConfiguration=settings)


def _made(service: Service, kind: str, capacity_gib: int, **more: Any) -> str:
    """Create a file system in moto, with description fields that no request can set."""
    made = client(service, "fsx").create_file_system(
        FileSystemType=kind, StorageCapacity=capacity_gib, SubnetIds=[SUBNET]
    )
    name = str(made["FileSystem"]["FileSystemId"])
    before: Change = service.changes.get("DescribeFileSystems", lambda _: None)

    def change(page: dict[str, Any]) -> None:
        before(page)
        for system in page["FileSystems"]:
            if system["FileSystemId"] == name:
                system.update(more, StorageType=more.get("StorageType", "SSD"))

    service.rewrites("DescribeFileSystems", change)
    return name


def dns_name(name: str) -> str:
    """A file system's DNS name."""
    return f"{name}.fsx.us-west-2.amazonaws.com"


@dataclass
class CloudWatch:
    """CloudWatch in place of moto's: pages, batches, any order, and points up to the end of the queried window."""

    data: dict[tuple[str, str, tuple[tuple[str, str], ...]], Points] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)  # status code of a metric's results
    asked: list[dict[str, Any]] = field(default_factory=list)

    def put(self, name: str, metric: str, statistic: str, points: Points, **place: str) -> None:
        """Set a metric's points, the last one in the last minute queried."""
        dimensions = (("FileSystemId", name), *((_PLACES[key], value) for key, value in place.items()))
        self.data[metric, statistic, dimensions] = points

    def serve(self, service: Service) -> None:
        """Answer in place of moto."""
        service.serves("ListMetrics", self._listed)
        service.serves("GetMetricData", self._page)

    def _listed(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["Namespace"] == "AWS/FSx"
        own = {(entry["Name"], entry["Value"]) for entry in request["Dimensions"]}
        matching = {(metric, dimensions): None for metric, _, dimensions in self.data if own <= set(dimensions)}
        first = int(request.get("NextToken") or 0)
        metrics = [_metric(*pair) for pair in matching][first : first + METRICS]
        return {"Metrics": metrics, **({"NextToken": str(first + METRICS)} if first + METRICS < len(matching) else {})}

    def _page(self, request: dict[str, Any]) -> dict[str, Any]:
        queries = request["MetricDataQueries"]
        assert 0 < len(queries) <= 500
        self.asked.append(request)
        points = [(query, time, value) for query in queries for time, value in self._points(query, request)]
        first = int(request.get("NextToken") or 0)
        results: dict[str, dict[str, Any]] = {}
        for query, time, value in points[first : first + PAGE]:
            name = query["MetricStat"]["Metric"]["MetricName"]
            result = results.setdefault(
                query["Id"],
                {"Id": query["Id"], "Timestamps": [], "Values": [], "StatusCode": self.codes.get(name, "Complete")},
            )
            result["Timestamps"].append(time)
            result["Values"].append(value)
        more = {"NextToken": str(first + PAGE)} if first + PAGE < len(points) else {}
        return {"MetricDataResults": list(results.values()), **more}

    def _points(self, query: dict[str, Any], request: dict[str, Any]) -> list[tuple[float, float]]:
        """Points with the newest first, as CloudWatch returns them."""
        stat = query["MetricStat"]
        assert stat["Period"] == 60
        dimensions = tuple((entry["Name"], entry["Value"]) for entry in stat["Metric"]["Dimensions"])
        points = self.data.get((stat["Metric"]["MetricName"], stat["Stat"], dimensions), ())
        minutes = [(request["EndTime"] - 60 * before, value) for before, value in enumerate(reversed(points), 1)]
        return [(time, value) for time, value in minutes if value is not None and time >= request["StartTime"]]


_PLACES = {"server": "FileServer", "target": "StorageTargetId"}


def _metric(metric: str, dimensions: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    rows = [{"Name": name, "Value": value} for name, value in dimensions]
    return {"Namespace": "AWS/FSx", "MetricName": metric, "Dimensions": rows}


def quiet_lustre(watch: CloudWatch, name: str, minutes: int = 180) -> None:
    """A healthy Lustre file system of 4.8 TiB: a quarter of its throughput used, half full, four storage targets."""
    flat = _flat(minutes)
    watch.put(name, "DataReadBytes", "Sum", flat(50e6 * 60))
    watch.put(name, "DataWriteBytes", "Sum", flat(10e6 * 60))
    for statistic, value in (("Sum", 2 * OST_BYTES), ("Minimum", OST_BYTES // 2), ("SampleCount", 4)):
        watch.put(name, "FreeDataStorageCapacity", statistic, flat(value))
    for server in ("OSS0000", "OSS0001"):
        watch.put(name, "NetworkThroughputUtilization", "Average", flat(20), server=server)
        watch.put(name, "FileServerDiskThroughputUtilization", "Average", flat(25), server=server)
    for target in ("OST0000", "OST0001", "OST0002", "OST0003", "MDT0000"):
        watch.put(name, "DiskIopsUtilization", "Average", flat(5), target=target)
    watch.put(name, "CPUUtilization", "Average", flat(7), server="MDS0000")


def quiet_openzfs(watch: CloudWatch, name: str, minutes: int = 180) -> None:
    """A healthy OpenZFS file system of 1000 GiB, half full."""
    flat = _flat(minutes)
    for metric, statistic, value in (
        ("DataReadBytes", "Sum", 10e6 * 60),
        ("DataWriteBytes", "Sum", 10e6 * 60),
        ("StorageCapacity", "Average", 1000 * 2**30),
        ("UsedStorageCapacity", "Average", 500 * 2**30),
        *((metric, "Average", 10) for metric in OPENZFS_LIMITS),
    ):
        watch.put(name, metric, statistic, flat(value))


OPENZFS_LIMITS = (
    "NetworkThroughputUtilization",
    "FileServerDiskThroughputUtilization",
    "FileServerDiskIopsUtilization",
    "DiskIopsUtilization",
    "CPUUtilization",
)


def _flat(minutes: int) -> Any:
    return lambda value: [float(value)] * minutes


def mounting(*mounts: Mount) -> dict[str, object]:
    """The `mounts` collector's report on these, with a root volume."""
    every_mount = [("ext4", "/dev/root", "/"), *mounts]
    entry = {"options": "rw", "alive": "yes", "total_kib": 1, "free_kib": 1, "inodes": 1, "inodes_free": 1}
    return {
        "mounts": [{"type": kind, "source": source, "path": path, **entry} for kind, source, path in every_mount],
        "fstab": [],
        "passed_over": 0,
    }


def nodes_that_mount(
    service: Service, monkeypatch: pytest.MonkeyPatch, *mounts: Mount, of: Mapping[int, Sequence[Mount] | None] = {}
) -> None:
    """A HyperPod cluster of three nodes that report these mounts; `of` sets single nodes', None: unreached."""
    if "ListClusterNodes" not in service.served:
        with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)})

    def answer(cluster: Cluster, *arguments: Any) -> None:
        keep = arguments[4]
        for number, target in enumerate(cluster.targets):
            own = of.get(number, mounts)
            answer = (
                unreached(target.name)
                if own is None
                else node(
                    target.name,
                    boot=boot(hostname=target.name),
                    mounts=mounting(*own),
                    platform={"vendor": "", "product": ""},
                )
            )
            keep(answer)

    monkeypatch.setattr(gatherer, "gather", answer)
