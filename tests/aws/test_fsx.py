"""How full FSx file systems are, and which ones a cluster mounts."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.aws.fsx_runs import ALL, CAPACITY, THROUGHPUT, UTILIZATION, only, ran, verdicts
from tests.aws.service import Service
from tests.aws.storage import (
    LUSTRE_MOUNT,
    OST_BYTES,
    CloudWatch,
    dns_name,
    lustre,
    nodes_that_mount,
    openzfs,
    quiet_openzfs,
)
from tests.builders.runs import Runs


@pytest.mark.parametrize(("used", "verdict"), [(0.97, Verdict.FAIL), (0.86, Verdict.CONCERN), (0.84, Verdict.PASS)])
def test_the_fullest_storage_target_counts_not_the_whole(
    runs: Runs, watch: CloudWatch, system: str, used: float, verdict: Verdict
) -> None:
    watch.put(system, "FreeDataStorageCapacity", "Minimum", [OST_BYTES * 0.5] * 170 + [OST_BYTES * (1 - used)] * 5)
    results = ran(runs)
    assert verdicts(results) == only(CAPACITY, verdict)
    if verdict is not Verdict.PASS:
        assert f"the fullest OST is {100 * used:.0f} % full, the whole 50 %" in results[CAPACITY].message


def test_a_full_storage_target_is_named_where_cloudwatch_reports_each(
    runs: Runs, watch: CloudWatch, system: str
) -> None:
    for number, used in enumerate((40.0, 41.0, 98.0, 42.0)):
        watch.put(system, "StorageCapacityUtilization", "Maximum", [used] * 180, target=f"OST000{number}")
    results = ran(runs)
    assert verdicts(results) == only(CAPACITY, Verdict.FAIL)
    assert "OST0002 is 98 % full, the whole 50 %" in results[CAPACITY].message


@pytest.mark.parametrize(("used", "verdict"), [(960, Verdict.FAIL), (900, Verdict.CONCERN)])
def test_a_full_openzfs_file_system(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, used: int, verdict: Verdict
) -> None:
    name = openzfs(service)
    quiet_openzfs(watch, name)
    watch.put(name, "UsedStorageCapacity", "Average", [used * 2.0**30] * 180)
    nodes_that_mount(service, monkeypatch, ("nfs4", f"{dns_name(name)}:/fsx", "/home"))
    results = ran(runs)
    assert verdicts(results) == only(CAPACITY, verdict)
    assert f"{used // 10} % full; expected less than" in results[CAPACITY].message


def test_every_file_system_is_evaluated_by_itself(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    other = openzfs(service)
    quiet_openzfs(watch, other)
    watch.put(other, "UsedStorageCapacity", "Average", [990 * 2.0**30] * 180)
    nodes_that_mount(service, monkeypatch, LUSTRE_MOUNT, ("nfs4", f"{dns_name(other)}:/fsx", "/home"))
    results = ran(runs)
    assert verdicts(results) == only(CAPACITY, Verdict.FAIL)
    assert results[CAPACITY].devices == (f"/home ({other})",)


def test_a_file_system_of_another_account_is_incomplete_and_not_passed_over(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    nodes_that_mount(service, monkeypatch, LUSTRE_MOUNT, of={1: [("lustre", "10.2.0.9@tcp:/abcdefgh", "/data")]})
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.INCOMPLETE)
    for result in results.values():
        assert result.devices == ("/data",)
        assert "mounted from 10.2.0.9@tcp:/abcdefgh; expected in fsx:DescribeFileSystems" in result.message


def test_file_systems_that_are_mounted_by_one_name_cannot_be_told_apart(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lustre(service, "fsx"), lustre(service, "fsx")
    nodes_that_mount(service, monkeypatch, ("lustre", "172.31.14.250@tcp:/fsx", "/fsx"))
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.INCOMPLETE)
    assert all(name in results[CAPACITY].message for name in (first, second))


def test_a_cluster_without_fsx_has_nothing_to_evaluate_and_asks_nothing(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    lustre(service)
    nodes_that_mount(service, monkeypatch, ("nfs4", "10.3.0.1:/export", "/home"))
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.NOT_APPLICABLE)
    assert results[CAPACITY].message == "no FSx file system on this cluster"
    assert "GetMetricData" not in service.calls


def test_nodes_that_cannot_be_reached_leave_it_open_what_is_mounted(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes_that_mount(service, monkeypatch, of=dict.fromkeys(range(3)))
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.INCOMPLETE)
    assert "3 nodes did not report what is mounted" in results[CAPACITY].message


def test_a_file_system_of_another_type_is_not_evaluated(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lustre(service, kind="ONTAP")
    nodes_that_mount(service, monkeypatch, ("nfs4", f"svm-1.{dns_name(name)}:/vol1", "/home"))
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.NOT_APPLICABLE)
    assert "of type ONTAP" in results[CAPACITY].message


def test_storage_that_grows_by_itself_cannot_be_full(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    before = service.changes["DescribeFileSystems"]

    def elastic(page: dict[str, object]) -> None:
        before(page)
        for entry in page["FileSystems"]:  # type: ignore[attr-defined]
            entry["StorageType"] = "INTELLIGENT_TIERING"
            entry["LustreConfiguration"]["ThroughputCapacity"] = 4000
            entry["LustreConfiguration"].pop("PerUnitStorageThroughput", None)

    service.rewrites("DescribeFileSystems", elastic)
    watch.put(system, "DataReadBytes", "Sum", [3900e6 * 60] * 180)
    results = ran(runs)
    assert verdicts(results) == {
        THROUGHPUT: Verdict.FAIL,
        UTILIZATION: Verdict.PASS,
        CAPACITY: Verdict.NOT_APPLICABLE,
    }
    assert "of the baseline of 4000 MB/s" in results[THROUGHPUT].message
