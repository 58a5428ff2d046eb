"""A file system's provisioned limits: real answers of DescribeFileSystems, including incomplete ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.aws import fsx_metrics
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.aws.facts_fsx import FileSystem, Metrics, Series
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from tests.aws.storage import LUSTRE_MOUNT, mounting
from tests.builders.recordings import node
from tests.builders.samples import sample

CHECKS = [check for check in all_checks().values() if check.subject == "file_system"]
NO_METRICS = Metrics({"begin": 0.0, "minutes": 15, "series": []})

# Corrections where the documentation's own examples are not JSON.
MENDED = {
    "fsx-describe-lustre-doc-BROKEN.json.txt": (
        '10.216.29.176@tcp"\n            }',
        '10.216.29.176@tcp"\n            }}',
    ),
    "fsx-older-deployment-types-1.json.txt": ("", ""),
    "fsx-older-deployment-types-2.json.txt": ('}\n                "PerUnit', '},\n                "PerUnit'),
}


def of(description: dict[str, Any]) -> FileSystem:
    return FileSystem(description, ("/fsx",), "", lambda: NO_METRICS, PACKAGED)


def lustre(capacity: object, **configuration: object) -> FileSystem:
    return of({"FileSystemType": "LUSTRE", "StorageCapacity": capacity, "LustreConfiguration": configuration})


@pytest.mark.parametrize(
    ("file", "mb_s"),
    [
        ("fsx-describe-lustre-doc-BROKEN.json.txt", 600.0),
        ("fsx-older-deployment-types-1.json.txt", 120.0),
        ("fsx-older-deployment-types-2.json.txt", 120.0),
    ],
)
def test_documented_answers_are_understood(file: str, mb_s: float) -> None:
    wrong, right = MENDED[file]
    text = sample(f"aws-json/{file}").text
    assert wrong in text
    (description,) = json.loads(text.replace(wrong, right, 1) if wrong else text)["FileSystems"]
    system = of(description)
    assert system.id == "fs-0123456789abcdef0"
    assert system.label == "/fsx (fs-0123456789abcdef0)"
    assert system.baseline_mb_s == mb_s


@pytest.mark.parametrize(
    ("system", "mb_s"),
    [
        (lustre(4800, DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), 240.0),  # as documented
        (lustre(2400, DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), 120.0),  # as documented
        (lustre(6000, DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=12), 72.0),  # HDD
        (lustre(4800, DeploymentType="PERSISTENT_2", PerUnitStorageThroughput=1000, EfaEnabled=True), 4800.0),
        (lustre(1200, DeploymentType="SCRATCH_2"), 240.0),
        (
            of(
                {
                    "FileSystemType": "LUSTRE",
                    "StorageType": "INTELLIGENT_TIERING",
                    "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "ThroughputCapacity": 8000},
                }
            ),
            8000.0,
        ),
        (of({"FileSystemType": "OPENZFS", "OpenZFSConfiguration": {"ThroughputCapacity": 160}}), 160.0),
    ],
)
def test_the_baseline_is_what_was_provisioned(system: FileSystem, mb_s: float) -> None:
    assert system.baseline_mb_s == mb_s


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (lustre(1200, DeploymentType="SCRATCH_1"), "PerUnitStorageThroughput was not reported"),
        (lustre(1200, DeploymentType="PERSISTENT_9"), "PerUnitStorageThroughput was not reported"),
        (lustre(1200), "DeploymentType was not reported"),
        (lustre(None, DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), "StorageCapacity was not reported"),
        (lustre("1", DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), "StorageCapacity is not understood"),
        (of({"FileSystemType": "OPENZFS"}), "OpenZFSConfiguration was not reported"),
        (of({}), "FileSystemType was not reported"),
    ],
)
def test_a_baseline_that_is_not_known_is_incomplete_and_says_why(system: FileSystem, message: str) -> None:
    with pytest.raises(Incomplete, match=message):
        _ = system.baseline_mb_s


def test_a_file_system_that_fsx_does_not_show_has_no_facts_but_its_mount() -> None:
    system = FileSystem({}, ("/data",), "mounted from somewhere", lambda: NO_METRICS, PACKAGED)
    assert system.label == "/data"
    for fact in ("id", "kind", "baseline_mb_s", "capacity_gib", "throughput_percent", "used_percent"):
        with pytest.raises(Incomplete, match="mounted from somewhere"):
            getattr(system, fact)


def test_a_type_that_is_not_evaluated_is_named() -> None:
    with pytest.raises(NotApplicable, match="of type WINDOWS"):
        _ = of({"FileSystemType": "WINDOWS"}).kind


def test_many_mount_points_are_counted() -> None:
    system = FileSystem(
        {"FileSystemId": "fs-1"}, tuple(f"/p{number}" for number in range(5)), "", lambda: NO_METRICS, PACKAGED
    )
    assert system.label == "/p0, /p1, /p2 and 2 more (fs-1)"


@pytest.mark.parametrize("values", [None, {"error": "InternalError"}, ["high"], [True], "12"])
def test_points_that_are_none_are_incomplete(values: object) -> None:
    with pytest.raises(Incomplete, match="CPUUtilization of MDS0000"):
        _ = Series({"metric": "CPUUtilization", "server": "MDS0000", "target": "", "values": values}).points


LUSTRE = {
    "FileSystemId": "fs-1",
    "FileSystemType": "LUSTRE",
    "StorageType": "SSD",
    "StorageCapacity": 1200,
    "LustreConfiguration": {"DeploymentType": "SCRATCH_2", "MountName": "oyuutbev"},
}
SERIES = {"file_system": "fs-1", "server": "", "target": "", "metric": "DataReadBytes", "statistic": "Sum"}
scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=5)
nonsense = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)


def cluster(systems: object, metrics: object) -> ClusterFacts:
    """A cluster of one node that mounts the file system."""
    target = Target("gpu001")
    evidence = node("gpu001", mounts=mounting(LUSTRE_MOUNT))
    aws = node("small", fsx={"file_systems": systems}, fsx_metrics=metrics)
    return ClusterFacts(Cluster("small", "hyperpod", (target,)), aws, {"gpu001": Node(target, evidence)})


FULL = 240e6 * 60  # bytes per minute at LUSTRE's baseline
READ, WRITTEN = ("DataReadBytes", "Sum", ""), ("DataWriteBytes", "Sum", "")
NETWORK = ("NetworkThroughputUtilization", "Average", "OSS0000")
OSTS = [("DiskIopsUtilization", "Average", f"OST000{number}") for number in range(4)]
USED = [("StorageCapacityUtilization", "Maximum", f"OST000{number}") for number in range(4)]
MDT = ("DiskIopsUtilization", "Average", "MDT0000")
FREE = ("FreeDataStorageCapacity", "Sum", "")
MIN_FREE = ("FreeDataStorageCapacity", "Minimum", "")
QUIET: dict[tuple[str, str, str], list[float | None]] = {
    READ: [0.25 * FULL] * 15,
    WRITTEN: [0.0] * 15,
    NETWORK: [20.0] * 15,
    ("FileServerDiskThroughputUtilization", "Average", "OSS0000"): [20.0] * 15,
    OSTS[0]: [5.0] * 15,
    FREE: [600.0 * 2**30] * 15,
    MIN_FREE: [150.0 * 2**30] * 15,
    ("FreeDataStorageCapacity", "SampleCount", ""): [4.0] * 15,
}
DARK: list[float | None] = [5.0, 5.0]  # too few minutes to show anything


def series(metric: str, statistic: str, place: str, points: object) -> dict[str, object]:
    """CloudWatch's report for the file system, or for one of its servers or targets."""
    where = {"target" if place[:3] in ("OST", "MDT") else "server": place}
    return {**SERIES, "metric": metric, "statistic": statistic, "values": points, **where}


@pytest.mark.parametrize(
    ("check", "changed", "verdict", "words"),
    [
        ("throughput", {}, Verdict.PASS, ""),
        (
            "throughput",
            {READ: [0.97 * FULL] * 15},
            Verdict.FAIL,
            "240 MB/s, 15 of 15 minutes from 1970-01-01 00:00 to 00:14 UTC, 7 MB/s left: the capacity is saturated; ",
        ),
        ("throughput", {READ: [0.85 * FULL] * 15}, Verdict.CONCERN, "36 MB/s left: the capacity is saturated"),
        ("throughput", {READ: [2 * FULL] * 15}, Verdict.FAIL, "of 240 MB/s, above it by bursts and cache, 15 of 15"),
        (
            "throughput",
            {READ: [None] * 12 + [0.1 * FULL] * 3},
            Verdict.INCOMPLETE,
            "throughput reported for 3 of 15 minutes; expected enough",
        ),
        ("utilization", {}, Verdict.PASS, ""),
        (
            "utilization",
            {OSTS[0]: [97.0] * 15},
            Verdict.FAIL,
            "3 % left: the pattern is inefficient, not the capacity too small, for the throughput is at 25 % of its",
        ),
        (
            "utilization",
            {OSTS[0]: [85.0] * 15, READ: [0.5 * FULL] * 15},
            Verdict.CONCERN,
            "15 % left: the capacity is saturated, for the throughput is at 50 % of its baseline; expected",
        ),
        ("utilization", {OSTS[0]: [97.0] * 15, READ: [None] * 15}, Verdict.FAIL, "UTC, 3 % left; expected less than"),
        ("utilization", {OSTS[0]: [97.0] * 15, READ: "none"}, Verdict.FAIL, "UTC, 3 % left; expected less than"),
        ("utilization", {OSTS[0]: [96.0] * 15, MDT: [97.0] * 15}, Verdict.FAIL, "IOPS of MDT0000 (and 1 more) at 97 %"),
        ("utilization", {OSTS[0]: [97.0] * 15, OSTS[3]: [85.0] * 15}, Verdict.FAIL, "concern: /fsx"),
        (
            "utilization",
            {OSTS[0]: [97.0] * 15, OSTS[3]: DARK},
            Verdict.FAIL,
            "too few minutes of data for disk IOPS of",
        ),
        ("utilization", {NETWORK: None}, Verdict.INCOMPLETE, "CloudWatch has no NetworkThroughputUtilization for it"),
        ("utilization", {NETWORK: "none"}, Verdict.INCOMPLETE, "NetworkThroughputUtilization of OSS0000"),
        (
            "utilization",
            dict.fromkeys(OSTS[1:], DARK),
            Verdict.INCOMPLETE,
            "for disk IOPS of OST0001, disk IOPS of OST0002, disk IOPS of OST0003; expected enough",
        ),
        ("utilization", dict.fromkeys(OSTS, DARK), Verdict.INCOMPLETE, "disk IOPS of OST0002 and 1 more; expected"),
        ("capacity", {}, Verdict.PASS, ""),
        ("capacity", {MIN_FREE: [6.0 * 2**30] * 15}, Verdict.FAIL, "the fullest OST is 98 % full, the whole 50 %"),
        (
            "capacity",
            {FREE: None, USED[2]: [99.0] * 15},
            Verdict.FAIL,
            "OST0002 is 99 % full; expected less than 95 %",
        ),
        (
            "capacity",
            {USED[0]: "none", USED[2]: [99.0] * 15},
            Verdict.FAIL,
            "OST0002 is 99 % full, the whole 50 %; expected less than 95 %",
        ),
        (
            "capacity",
            {USED[0]: "none", USED[2]: [99.0] * 15},
            Verdict.FAIL,
            "incomplete: /fsx (fs-1): StorageCapacityUtilization of OST0000",
        ),
        (
            "capacity",
            {USED[0]: "none", USED[2]: [40.0] * 15, FREE: [6.0 * 2**30] * 15},
            Verdict.FAIL,
            "100 % full; exp",
        ),
        ("capacity", {USED[0]: "none", MIN_FREE: [6.0 * 2**30] * 15}, Verdict.FAIL, "the fullest OST is 98 % full, "),
        ("capacity", {FREE: [6.0 * 2**30] * 15, MIN_FREE: None}, Verdict.FAIL, "100 % full; expected less than 95 %"),
        ("capacity", {MIN_FREE: [45.0 * 2**30] * 15}, Verdict.CONCERN, "the fullest OST is 85 % full, the whole 50"),
    ],
)
def test_what_is_said_of_a_file_system_and_of_its_servers_and_targets(
    check: str, changed: Any, verdict: Verdict, words: str
) -> None:
    everything = {**QUIET, **changed}
    every_series = [
        series(what, how, at, points) for (what, how, at), points in everything.items() if points is not None
    ]
    owner = cluster([LUSTRE], {"begin": 0.0, "minutes": 15, "series": every_series})
    result = evaluate(all_checks()[f"storage.fsx_{check}"], owner)
    assert result.verdict is verdict, result.message
    assert words in result.message


@given(systems=nonsense, metrics=nonsense)
def test_no_nonsense_from_aws_breaks_a_check_or_passes(systems: object, metrics: object) -> None:
    for check in CHECKS:
        result = evaluate(check, cluster(systems, metrics))
        assert "the check itself broke" not in result.message
        assert result.verdict is Verdict.INCOMPLETE


@given(st.sampled_from(sorted(LUSTRE)), nonsense, st.sampled_from([*sorted(SERIES), "values", "begin"]), nonsense)
def test_one_spoilt_value_never_breaks_a_check(key: str, put: object, of_series: str, instead: object) -> None:
    series: list[dict[str, object]] = [
        {**SERIES, "metric": metric, "statistic": statistic, "values": [1e12] * 15}
        for metric, row in fsx_metrics().items()
        for statistic in row.statistics
    ]
    series[0] = {**series[0], of_series: instead}
    begin = instead if of_series == "begin" else 0.0
    for check in CHECKS:
        facts = cluster([{**LUSTRE, key: put}], {"begin": begin, "minutes": 15, "series": series})
        assert "the check itself broke" not in evaluate(check, facts).message
