"""Devices that a DRA driver offers in slices count like a device plugin's."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.kubernetes.collectors.k8s_resource_slices import _entry
from tests.checks.control_plane.kubernetes_cluster import NAMES, healthy
from tests.checks.control_plane.kubernetes_fault import give
from tests.checks.control_plane.kubernetes_verdicts import findings_of, verdicts


def test_without_a_device_plugin_slices_that_may_not_be_listed_leave_the_check_incomplete() -> None:
    reports = healthy()
    give(reports, 1, {"gpu": 0})
    reports.refused["k8s_resource_slices"] = Collected(Status.DENIED, detail="no right")
    results = verdicts(reports)
    assert results["k8s_gpu_allocatable"].verdict is Verdict.INCOMPLETE


def slices(
    driver: str, devices: int, gpus: int | None, generation: int = 1, tainted: tuple[str, ...] = ()
) -> dict[str, object]:
    fields = {"driver": driver, "node": NAMES[1], "pool": NAMES[1], "generation": generation}
    return {**fields, "devices": devices, "gpus": gpus, "tainted": list(tainted)}


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([slices("gpu.nvidia.com", 8, 8)], {}),
        ([slices("gpu.nvidia.com", 64, 8)], {}),  # parts of GPUs in addition
        (
            [slices("gpu.nvidia.com", 7, 7)],
            {"k8s_gpu_allocatable": Verdict.FAIL, "k8s_gpu_seen": Verdict.FAIL},
        ),
        ([slices("gpu.nvidia.com", 7, 7), slices("gpu.nvidia.com", 8, 8, generation=2)], {}),
    ],
)
def test_gpus_that_a_driver_of_claims_offers_count(offered: list[object], expected: dict[str, Verdict]) -> None:
    reports = healthy()
    del reports.nodes[1]["capacity"]["gpu"], reports.nodes[1]["allocatable"]["gpu"]
    reports.kubernetes["k8s_resource_slices"] = {"slices": offered}
    assert findings_of(reports) == expected


def test_efa_that_a_driver_of_claims_offers_counts() -> None:
    reports = healthy()
    give(reports, 1, {"efa": 0})
    reports.kubernetes["k8s_resource_slices"] = {"slices": [slices("dra.net", 34, None)]}
    assert findings_of(reports) == {}


XID = "gpu-3 (gpu.nvidia.com/xid=79:NoSchedule)"


@pytest.mark.parametrize(
    ("capacity", "check", "driver"),
    [("gpu", "k8s_gpu_allocatable", "gpu.nvidia.com"), ("efa", "k8s_efa_allocatable", "dra.net")],
)
def test_a_device_that_its_driver_keeps_from_claims_is_not_allocatable(capacity: str, check: str, driver: str) -> None:
    reports = healthy()
    count = reports.nodes[1]["capacity"][capacity]
    give(reports, 1, {capacity: 0})
    reports.kubernetes["k8s_resource_slices"] = {"slices": [slices(driver, count, None, tainted=(XID,))]}
    result = verdicts(reports)[check]
    assert result.verdict is Verdict.FAIL
    assert result.message == f"{NAMES[1]}: {driver}: {XID}; expected every device allocatable"


@pytest.mark.parametrize("is_nested", [False, True], ids=["v1", "v1beta1"])
def test_a_taint_that_keeps_claims_away_is_read_and_one_that_informs_is_not(is_nested: bool) -> None:
    taints = [
        {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"},
        {"key": "gpu.nvidia.com/xid", "value": "31", "effect": "None"},
        {"key": "site/broken", "effect": "NoExecute"},
    ]
    inner: dict[str, Any] = {"attributes": {"type": {"string": "gpu"}}, "taints": taints}
    device = {"name": "gpu-3", **({"basic": inner} if is_nested else inner)}
    read = _entry({"spec": {"driver": "gpu.nvidia.com", "nodeName": "gpu001", "devices": [device]}})
    assert read["tainted"] == [XID, "gpu-3 (site/broken:NoExecute)"]
    assert read["gpus"] == 1


def test_whole_gpus_of_amd_are_counted_by_their_own_type() -> None:
    kinds = ("amdgpu", "amdgpu", "amdgpu-partition")
    devices = [{"name": f"gpu-{at}", "attributes": {"type": {"string": kind}}} for at, kind in enumerate(kinds)]
    assert _entry({"spec": {"driver": "gpu.amd.com", "nodeName": "gpu001", "devices": devices}})["gpus"] == 2
