"""What a file system is made for: real answers of DescribeFileSystems, and those that do not say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog.fsx_metrics import fsx_metrics
from clusterproof.plugins.facts.cluster import ClusterFacts
from clusterproof.plugins.facts.fsx import FileSystem, Metrics, Series
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.judge import judge
from clusterproof.plugins.suite import all_checks
from clusterproof.plugins.verdict import Incomplete, NotApplicable, Verdict
from tests.aws.storage import LUSTRE_MOUNT, mounting
from tests.recordings import node
from tests.samples import sample

CHECKS = [check for check in all_checks().values() if check.subject == "file_system"]
NO_METRICS = Metrics({"begin": 0.0, "minutes": 15, "series": []})

# Where the documentation's own examples are not JSON: what is there, and what is meant.
MENDED = {
    "fsx-describe-lustre-doc-BROKEN.json.txt": (
        '10.216.29.176@tcp"\n            }',
        '10.216.29.176@tcp"\n            }}',
    ),
    "fsx-older-deployment-types-1.json.txt": ("", ""),
    "fsx-older-deployment-types-2.json.txt": ('}\n                "PerUnit', '},\n                "PerUnit'),
}


def of(told: dict[str, Any]) -> FileSystem:
    return FileSystem(told, ("/fsx",), "", lambda: NO_METRICS)


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
    (told,) = json.loads(text.replace(wrong, right, 1) if wrong else text)["FileSystems"]
    system = of(told)
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
    ("system", "words"),
    [
        (lustre(1200, DeploymentType="SCRATCH_1"), "PerUnitStorageThroughput was not told"),
        (lustre(1200, DeploymentType="PERSISTENT_9"), "PerUnitStorageThroughput was not told"),
        (lustre(1200), "DeploymentType was not told"),
        (lustre(None, DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), "StorageCapacity was not told"),
        (lustre("1", DeploymentType="PERSISTENT_1", PerUnitStorageThroughput=50), "StorageCapacity is not understood"),
        (of({"FileSystemType": "OPENZFS"}), "OpenZFSConfiguration was not told"),
        (of({}), "FileSystemType was not told"),
    ],
)
def test_a_baseline_that_is_not_known_is_incomplete_and_says_why(system: FileSystem, words: str) -> None:
    with pytest.raises(Incomplete, match=words):
        _ = system.baseline_mb_s


def test_a_file_system_that_fsx_does_not_show_has_no_facts_but_its_mount() -> None:
    system = FileSystem({}, ("/data",), "mounted from somewhere", lambda: NO_METRICS)
    assert system.label == "/data"
    for fact in ("id", "kind", "baseline_mb_s", "capacity_gib", "throughput_percent", "used_percent"):
        with pytest.raises(Incomplete, match="mounted from somewhere"):
            getattr(system, fact)


def test_a_type_that_is_not_judged_is_named() -> None:
    with pytest.raises(NotApplicable, match="of type WINDOWS"):
        _ = of({"FileSystemType": "WINDOWS"}).kind


def test_many_mount_points_are_counted() -> None:
    system = FileSystem({"FileSystemId": "fs-1"}, tuple(f"/p{number}" for number in range(5)), "", lambda: NO_METRICS)
    assert system.label == "/p0, /p1, /p2 and 2 more (fs-1)"


@pytest.mark.parametrize("values", [None, {"error": "InternalError"}, ["high"], [True], "12"])
def test_points_that_are_none_are_incomplete(values: object) -> None:
    with pytest.raises(Incomplete, match="CPUUtilization of MDS0000"):
        _ = Series({"metric": "CPUUtilization", "server": "MDS0000", "target": "", "values": values}).points


def test_the_checks_ask_nodes_for_their_mounts_and_aws_for_file_systems_and_metrics() -> None:
    for check in CHECKS:
        assert "mounts" in check.leaves <= {"mounts", "platform", "imds"}
        assert check.control_leaves == {"fsx", "fsx_metrics"}


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
    told = node("gpu001", mounts=mounting(LUSTRE_MOUNT))
    aws = node("small", fsx={"file_systems": systems}, fsx_metrics=metrics)
    return ClusterFacts(Cluster("small", "hyperpod", (target,)), aws, {"gpu001": Node(target, told)})


@given(systems=nonsense, metrics=nonsense)
def test_no_nonsense_from_aws_breaks_a_check_or_passes(systems: object, metrics: object) -> None:
    for check in CHECKS:
        result = judge(check, cluster(systems, metrics))
        assert "the check itself broke" not in result.message
        assert result.verdict is Verdict.INCOMPLETE


@given(st.sampled_from(sorted(LUSTRE)), nonsense, st.sampled_from([*sorted(SERIES), "values", "begin"]), nonsense)
def test_one_spoilt_value_never_breaks_a_check(key: str, put: object, of_series: str, instead: object) -> None:
    series = [
        {**SERIES, "metric": metric, "statistic": statistic, "values": [1e12] * 15}
        for metric, row in fsx_metrics().items()
        for statistic in row.statistics
    ]
    series[0] = {**series[0], of_series: instead}
    begin = instead if of_series == "begin" else 0.0
    for check in CHECKS:
        told = cluster([{**LUSTRE, key: put}], {"begin": begin, "minutes": 15, "series": series})
        assert "the check itself broke" not in judge(check, told).message
