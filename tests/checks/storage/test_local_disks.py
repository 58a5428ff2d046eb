"""The local NVMe disks of an instance, on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node

PASS, CONCERN, FAIL, NA = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.NOT_APPLICABLE
INCOMPLETE = Verdict.INCOMPLETE


def disk(number: int, *, mounted: bool = True, disks: bool = True) -> dict[str, Any]:
    """A local NVMe disk."""
    namespaces = [{"name": f"nvme{number}n1", "used_by": [], "mounted": ["/scratch"] * mounted}] if disks else []
    model = "Amazon EC2 NVMe Instance Storage"
    return {"name": f"nvme{number}", "model": model, "state": "live", "transport": "pcie", "disks": namespaces}


@pytest.mark.parametrize(
    ("controllers", "instance_type", "verdict", "message"),
    [
        ([disk(number) for number in range(8)], "p5.48xlarge", PASS, ""),
        ([disk(number) for number in range(7)], "p5.48xlarge", FAIL, "7 local NVMe disks; expected 8"),
        ([disk(0)], "inf1.24xlarge", PASS, ""),  # more than the catalogue lists
        ([disk(0, mounted=False)], "inf1.24xlarge", CONCERN, "not mounted: nvme0n1; expected every local disk"),
        ([disk(0, disks=False)], "inf1.24xlarge", FAIL, "no disk on nvme0; expected one on each controller"),
        ([], "inf1.24xlarge", NA, "inf1.24xlarge has no local NVMe disk"),
        ([disk(0) | {"model": "Amazon Elastic Block Store"}], "inf1.24xlarge", NA, "inf1.24xlarge has no local NVMe"),
    ],
)
def test_local_disks_are_there_and_in_use(controllers: Any, instance_type: str, verdict: Verdict, message: str) -> None:
    evidence = node("gpu001", nvme={"controllers": controllers}, pci={"devices": []})
    expect(result_of("storage.nvme_scratch", evidence, instance_type=instance_type), verdict, message)


@pytest.mark.parametrize(
    ("kind", "verdict", "message"),
    [
        ("zfs", INCOMPLETE, "not mounted: nvme0n1, unless zfs uses them; expected every local disk"),
        ("btrfs", INCOMPLETE, "not mounted: nvme0n1, unless btrfs uses them"),
        ("xfs", CONCERN, "not mounted: nvme0n1; expected every local disk"),
    ],
)
def test_a_disk_that_no_mount_names_may_be_one_of_a_pool(kind: str, verdict: Verdict, message: str) -> None:
    mounts = {"mounts": [{"path": "/tank", "type": kind, "source": "tank", "options": "rw"}], "fstab": []}
    evidence = node("gpu001", nvme={"controllers": [disk(0, mounted=False)]}, pci={"devices": []}, mounts=mounts)
    expect(result_of("storage.nvme_scratch", evidence, instance_type="inf1.24xlarge"), verdict, message)


OF_DGX = InstanceType(name="DGX H100", source="", gpus=8, nvme=2)
TARGET, DISCOVERY = disk(8) | {"transport": "tcp"}, disk(9, disks=False) | {"transport": "tcp", "model": "Linux"}


@pytest.mark.parametrize(
    ("controllers", "verdict", "message"),
    [
        ([disk(0), disk(1), TARGET, DISCOVERY], PASS, ""),
        ([disk(0), TARGET, DISCOVERY], FAIL, "1 local NVMe disks; expected 2"),
        ([disk(0), disk(1) | {"transport": ""}], PASS, ""),  # of older kernels
        ([disk(0), disk(1) | {"transport": {"error": "EIO"}}], PASS, ""),
        ([disk(0), disk(1, disks=False), TARGET], FAIL, "no disk on nvme1; expected one on each controller"),
    ],
)
def test_disks_that_others_serve_over_the_network_are_not_local(
    controllers: Any, verdict: Verdict, message: str
) -> None:
    gpus = [{"address": "0000:17:00.0", "vendor": "10de", "device": "2330", "class": "030200", "driver": "nvidia"}]
    machine = {"vendor": "NVIDIA", "product": "DGXH100", "serial": ""}
    evidence = node("gpu001", nvme={"controllers": controllers}, pci={"devices": gpus}, platform=machine)
    policy = Policy(instance_types={"DGX H100": OF_DGX})
    expect(result_of("storage.nvme_scratch", evidence, policy=policy), verdict, message)


RAID5 = {"name": "md0", "level": "raid5", "is_active": True, "disks": 4, "working": 4, "failed": [], "is_lost": None}


@pytest.mark.parametrize(
    ("array", "verdict", "message"),
    [
        ({}, PASS, ""),
        ({"working": 3}, CONCERN, "md0 is degraded without 1 of 4 disks; expected all of its disks"),
        ({"working": 3, "failed": ["sdb"]}, CONCERN, "md0 is degraded without sdb; expected"),
        ({"working": None, "disks": None, "failed": ["sdb"]}, CONCERN, "md0 is degraded without sdb; expected"),
        ({"working": 2, "failed": ["sdb"]}, FAIL, "md0 has failed without 2 of 4 disks (sdb failed); expected"),
        ({"level": "raid0", "failed": ["sdb"]}, FAIL, "md0 has failed without sdb; expected"),
        ({"level": "raid1", "working": 1}, CONCERN, "md0 is degraded without 3 of 4 disks; expected"),
        ({"is_lost": True}, FAIL, "md0 has failed; expected all of its disks"),
        ({"is_active": False}, CONCERN, "md0 is not active; expected the array started, or its disks wiped"),
    ],
)
def test_an_array_has_all_of_its_disks(array: dict[str, Any], verdict: Verdict, message: str) -> None:
    evidence = node("gpu001", nvme={"controllers": [], "arrays": [RAID5 | array]})
    findings = [
        finding
        for finding in result_of("storage.disk_errors", evidence).by_verdict
        if finding.verdict in (FAIL, CONCERN)
    ]
    assert [finding.verdict for finding in findings] == [verdict] * (verdict is not PASS), findings
    assert all(finding.message.startswith(message) for finding in findings), findings


@pytest.mark.parametrize("unread", ["media_errors", "used_percent", "spare_percent"])
def test_a_value_that_is_unread_hides_no_disk_that_fails(unread: str) -> None:
    values = dict.fromkeys(["passed", "said", "failing", "media_errors", "used_percent", "spare_percent"])
    log = {"name": "nvme1", "serial": None, "least_spare_percent": None, **values, "critical_warning": 8}
    evidence = node("gpu001", nvme={"controllers": [], "smart": {"logs": [log | {unread: "?"}]}})
    messages = {finding.verdict: finding.message for finding in result_of("storage.disk_errors", evidence).by_verdict}
    assert messages[FAIL].startswith("nvme1: read-only; expected"), messages


@pytest.mark.parametrize(
    ("controller", "verdict"),
    [(TARGET, PASS), (TARGET | {"state": "connecting"}, CONCERN), (disk(0) | {"state": "connecting"}, FAIL)],
)
def test_a_disk_that_another_machine_does_not_serve_is_no_proof_against_the_node(
    controller: dict[str, Any], verdict: Verdict
) -> None:
    evidence = node("gpu001", nvme={"controllers": [controller]}, pci={"devices": []})
    assert result_of("storage.nvme_state", evidence).verdict is verdict
