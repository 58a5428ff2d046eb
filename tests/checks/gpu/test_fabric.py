"""Checks of a GPU's links, fabric and processes on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, gpu, node, nvml

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
UNKNOWN = {"error": "UNKNOWN", "text": ""}
UNSUPPORTED = {"error": "NOT_SUPPORTED", "text": ""}
FABRIC = {"state": 3, "status": 0, "health_mask": 0x1AA, "health_summary": 1, "clique": 1, "cluster_uuid": "0" * 32}
H100 = {"name": "NVIDIA H100 80GB HBM3", "mig_mode": False, "fabric": FABRIC}
RUNS = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled"}
VERSION = {"exit": 0, "output": "Fabric Manager version is : 580.126.09\n"}


def evaluated(
    check: str,
    *gpus: dict[str, Any],
    instance_type: str = "p5.48xlarge",
    occasion: str = "preflight",
    **collectors: Any,
) -> Result:
    """A check's result on a node whose GPUs report this."""
    reports = {
        "boot": boot(),
        "nvml": nvml(*(gpu(at, **values) for at, values in enumerate(gpus))),
        "pci": {"devices": []},
    }
    return result_of(
        f"gpu.{check}", node("gpu001", **reports | collectors), occasion=occasion, instance_type=instance_type
    )


@pytest.mark.parametrize(
    ("instance_type", "one", "verdict", "message"),
    [
        ("p5.48xlarge", H100, PASS, ""),
        ("g6.12xlarge", H100, NA, "g6.12xlarge has no NVLink fabric"),
        ("p5.48xlarge", {**H100, "mig_mode": True}, NA, "MIG is on: the GPU is not part of a fabric"),
        ("p4d.24xlarge", {**H100, "name": "NVIDIA A100", "fabric": {**FABRIC, "state": 0}}, NA, "A100 is not regist"),
        ("p5.48xlarge", {**H100, "fabric": {**FABRIC, "state": 0}}, FAIL, "fabric state is"),
        ("p5.48xlarge", {**H100, "fabric": {**FABRIC, "status": 999}}, FAIL, "is 999 (unknown error); expected 0"),
        ("p5.48xlarge", {**H100, "fabric": {**FABRIC, "health_mask": UNKNOWN}}, INCOMPLETE, "health_mask"),
        ("p5.48xlarge", {**H100, "fabric": {**FABRIC, "health_mask": UNSUPPORTED}}, PASS, ""),
        ("someone.else", {**H100, "fabric": {**FABRIC, "state": 0}}, INCOMPLETE, "instance type"),
    ],
)  # fmt: skip
def test_a_gpu_is_in_a_healthy_fabric_where_it_has_one(
    instance_type: str, one: dict[str, Any], verdict: Verdict, message: str
) -> None:
    expect(evaluated("fabric_state", one, instance_type=instance_type), verdict, message)


UNHEALTHY = {"fabric": {"state": 3, "status": 0, "health_summary": 2}}
OF_RACK = {**FABRIC, "cluster_uuid": "0" * 31 + "1"}
RACK = {"name": "NVIDIA GB300", "fabric": OF_RACK}


def test_an_unhealthy_fabric_is_reported_of_an_excerpt_that_says_nothing_else() -> None:
    result = evaluated("fabric_state", UNHEALTHY, instance_type="")
    assert result.verdict is FAIL
    assert "fabric health is unhealthy; expected healthy" in result.message


def test_a_status_of_the_fabric_is_said_in_the_driver_s_words() -> None:
    values = {**H100, "fabric": {**FABRIC, "status": 23}}
    expect(
        evaluated("fabric_state", values), FAIL, "fabric status is 23 (insufficient resources); expected 0 (success)"
    )


def test_a_tray_of_a_rack_is_in_the_cluster_of_a_rack() -> None:
    nowhere = {**RACK, "fabric": {**FABRIC, "clique": 0}}
    expect(evaluated("fabric_uniform", *[nowhere] * 4), FAIL, "in clique 0 of cluster 0000")
    assert "; expected the cluster of their rack" in evaluated("fabric_uniform", *[nowhere] * 4).message


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_gpus_of_a_tray_that_are_in_no_cluster_are_named_and_not_the_one_that_is(lost: int) -> None:
    nowhere = {**RACK, "fabric": {**FABRIC, "clique": 0}}
    result = evaluated("fabric_uniform", *[nowhere] * lost, *[RACK] * (4 - lost))
    expect(result, FAIL, f"GPU {lost - 1} in clique 0 of cluster {'0' * 32}; expected clique 1 of cluster {'0' * 31}1")
    assert f"GPU {lost} in" not in result.message


def test_a_tray_that_is_alone_in_a_clique_differs_from_the_others() -> None:
    trays = [node(f"tray{n}", boot=boot(), nvml=nvml(*[gpu(at, **RACK) for at in range(4)])) for n in range(4)]
    strange = {**RACK, "fabric": {**OF_RACK, "clique": 7}}
    trays[3] = node("tray3", boot=boot(), nvml=nvml(*[gpu(at, **strange) for at in range(4)]))
    result = result_of("gpu.fabric_uniform", trays[3], *trays[:3], instance_type="p6e-gb300r.36xlarge")
    expect(result, CONCERN, "NVLink fabric clique 7 of cluster")
    assert "as on 3 of 4 nodes" in result.message


ELSEWHERE = {**H100, "fabric": {**FABRIC, "clique": 2}}


@pytest.mark.parametrize(
    ("gpus", "verdict", "message"),
    [
        ([H100] * 3, PASS, ""),
        ([H100, H100, ELSEWHERE], FAIL, "GPU 2 in clique 2 of cluster"),
        ([H100, H100, {**H100, "fabric": UNKNOWN}], INCOMPLETE, ""),
        ([H100, {**H100, "mig_mode": True}], PASS, ""),
        ([{**H100, "mig_mode": True}] * 2, NA, "MIG is on"),
    ],
)
def test_the_gpus_of_a_node_share_a_fabric(gpus: list[dict[str, Any]], verdict: Verdict, message: str) -> None:
    expect(evaluated("fabric_uniform", *gpus), verdict, message)


@pytest.mark.parametrize(
    ("services", "version", "verdict", "message"),
    [
        ({"nvidia-fabricmanager": RUNS}, VERSION, PASS, ""),
        ({}, VERSION, FAIL, "nvidia-fabricmanager is not installed; expected active"),
        ({"nvidia-fabricmanager": {**RUNS, "load": "not-found"}}, VERSION, FAIL, "is not installed; expected active"),
        ({"nvidia-fabricmanager": {**RUNS, "active": "inactive"}}, VERSION, FAIL, "is inactive; expected active"),
        ({"nvidia-fabricmanager": RUNS}, {"exit": 0, "output": "580.95.05"}, FAIL, "fabric manager 580.95.05 with"),
        ({"nvidia-fabricmanager": RUNS}, {"exit": 1, "output": "broken\n"}, INCOMPLETE, "says 'broken'; expected"),
        ({"nvidia-fabricmanager": RUNS}, Collected(Status.ABSENT), INCOMPLETE, "nv-fabricmanager was not found"),
    ],
)  # fmt: skip
def test_fabric_manager_runs_and_is_of_the_driver_s_version(
    services: Any, version: Any, verdict: Verdict, message: str
) -> None:
    report = {"services": services, "failed": []}
    expect(evaluated("fabric_manager", H100, services=report, fabric_manager=version), verdict, message)


@pytest.mark.parametrize(
    ("name", "service", "verdict", "message"),
    [
        ("NVIDIA GB200", RUNS, PASS, ""),
        ("NVIDIA GB300", {**RUNS, "load": "not-found"}, INCOMPLETE, "imex: was not requested"),
        ("NVIDIA GB200", None, INCOMPLETE, "imex: was not requested"),
        ("NVIDIA GB200", {**RUNS, "active": "failed"}, CONCERN, "nvidia-imex is failed; expected active"),
        ("NVIDIA H100", None, NA, "no GPU here shares its memory over a rack's NVLink"),
        (UNKNOWN, None, INCOMPLETE, "name"),
    ],
)
def test_imex_runs_on_a_tray(name: Any, service: Any, verdict: Verdict, message: str) -> None:
    services = {"services": {"nvidia-imex": service} if service else {}, "failed": []}
    expect(evaluated("imex", {**H100, "name": name}, services=services), verdict, message)


@pytest.mark.parametrize(
    ("check", "one", "instance_type", "verdict", "message"),
    [
        ("nvlink_active", {"nvlinks": [True] * 18, "mig_mode": False}, "g6.12xlarge", NA, "g6.12xlarge has no NVLink"),
        ("nvlink_active", {"nvlinks": UNSUPPORTED, "mig_mode": True}, "p5.48xlarge", NA, "while MIG is on"),
        ("nvlink_errors", {"nvlink_errors": {"replay": {"0": 7}}}, "g6.12xlarge", NA, "g6.12xlarge has no NVLink"),
        ("nvlink_errors", {"nvlink_errors": UNKNOWN, "mig_mode": True}, "p5.48xlarge", NA, "NVLink errors while MIG"),
        ("nvswitch_count", {}, "g6.12xlarge", NA, "g6.12xlarge has no NVSwitch on its PCI bus"),
        ("ecc_mode", {"ecc_enabled": False, "ecc_pending": False}, "g6.12xlarge", CONCERN, "ECC is disabled"),
    ],
)
def test_what_a_type_or_a_partitioned_gpu_does_not_have(
    check: str, one: dict[str, Any], instance_type: str, verdict: Verdict, message: str
) -> None:
    expect(
        evaluated(check, one, instance_type=instance_type, kernel_log={"lines": [], "truncated": False}),
        verdict,
        message,
    )


def process(name: str = "python3", cgroup: str = "", pid: int = 7) -> dict[str, Any]:
    return {"pid": pid, "memory_mib": 900, "name": name, "cgroup": cgroup}


OF_A_JOB = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"


@pytest.mark.parametrize(
    ("occasion", "one", "verdict", "message"),
    [
        ("prolog", process(), FAIL, "held by python3 (pid 7), outside any job; expected no process"),
        ("epilog", process(name=""), FAIL, "held by a process (pid 7), outside any job"),
        ("preflight", process(), CONCERN, "held by python3 (pid 7); expected no process"),
        ("preflight", process(cgroup=OF_A_JOB), CONCERN, "held by python3 (pid 7); expected no process"),
        ("prolog", process(cgroup=OF_A_JOB), CONCERN, "held by python3 (pid 7); expected no process"),
    ],
)
def test_the_holder_of_a_gpu_is_named(occasion: str, one: dict[str, Any], verdict: Verdict, message: str) -> None:
    values = {"processes": [one], "memory_used_mib": 0, "utilization_percent": 0}
    expect(evaluated("no_leftover_processes", values, occasion=occasion), verdict, message)


def test_memory_that_no_process_owns_is_reported() -> None:
    values = {"processes": [], "memory_used_mib": 9999, "utilization_percent": 0}
    expect(evaluated("no_leftover_processes", values), CONCERN, "9999 MiB in use and no compute process owns it")


RETIRED = {"retired_pages_pending": False, "retired_pages_single_bit": 0, "retired_pages_double_bit": 0}
ROWS = {"remap_pending": False, "remap_failed": False, "remap_banks": [640, 0, 0, 0, 0]}
NO_ROWS = {"remap_pending": UNSUPPORTED, "remap_failed": UNSUPPORTED, "remap_banks": UNSUPPORTED}


UNREAD = dict.fromkeys(NO_ROWS, UNKNOWN)


@pytest.mark.parametrize(
    ("data", "occasion", "verdict", "message"),
    [
        (ROWS, "preflight", PASS, ""),
        ({**ROWS, "remap_failed": True}, "preflight", FAIL, "row remapping failed; expected no failure"),
        ({**ROWS, "remap_pending": True}, "preflight", FAIL, "row remapping is pending; expected none"),
        ({**ROWS, "remap_pending": True}, "prolog", CONCERN, "row remapping is pending; expected none"),
        ({**ROWS, "remap_banks": [600, 0, 0, 3, 1]}, "preflight", CONCERN, "4 memory banks have few or no spare rows"),
        ({**NO_ROWS, **RETIRED}, "preflight", PASS, ""),
        ({**NO_ROWS, **RETIRED, "retired_pages_pending": True}, "preflight", FAIL, "page retirement is pending"),
        ({**UNREAD, **RETIRED, "retired_pages_pending": True}, "preflight", FAIL, "page retirement is pending"),
        ({**UNREAD, **RETIRED}, "preflight", INCOMPLETE, "remap_pending"),
        ({**NO_ROWS, **RETIRED, "retired_pages_single_bit": 99}, "preflight", CONCERN, "99 retired pages; expected at"),
        ({**NO_ROWS, **RETIRED, "retired_pages_double_bit": UNKNOWN}, "preflight", INCOMPLETE, "double_bit"),
        ({**NO_ROWS, "mig_mode": True}, "preflight", NA, "does not report row remapping while MIG is on"),
    ],
)
def test_memory_is_mended_by_rows_or_by_pages(
    data: dict[str, Any], occasion: str, verdict: Verdict, message: str
) -> None:
    expect(evaluated("row_remap", {"mig_mode": False, **data}, occasion=occasion), verdict, message)
