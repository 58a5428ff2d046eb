"""The probe and the checks on NVIDIA's mock of NVML: its healthy machines, and each fault that it injects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from tests.builders.evaluated import probed
from tests.counterparts.nvml_mock.mock import PROFILES, Profile, needs_mock, probed_mock
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.needs import needs_nodes

pytestmark = needs_mock()

H100 = next(profile for profile in PROFILES if profile.name == "h100")
WITH_FABRIC = [profile for profile in PROFILES if profile.name in ("h100", "gb200", "gb300")]
FINDINGS = (Verdict.FAIL, Verdict.CONCERN)
FAIL, CONCERN = FINDINGS
SILENT = Collected(Status.READ, {"lines": []})  # the mock writes no kernel log
STEADILY = "GPU 3: slowed down continuously by"
FABRIC_HEALTH = {
    "degraded_bandwidth": "degraded bandwidth",
    "route_recovery": "route recovery",
    "route_unhealthy": "route unhealthy",
    "access_timeout_recovery": "access timeout recovery",
    "no_partition": "incorrect configuration: no partition",
    "insufficient_nvlinks": "incorrect configuration: too few NVLinks",
    "incompatible_gpu_fw": "incorrect configuration: incompatible GPU firmware",
    "invalid_location": "incorrect configuration: invalid location",
    "incorrect_sysguid": "incorrect configuration: system GUID",
    "incorrect_chassis_sn": "incorrect configuration: chassis serial number",
    "gpu_state_invalid": "incorrect configuration: invalid GPU state",
}
FAULTS: list[tuple[str, dict[str, Verdict], str]] = [
    ("fail --gpu 3 --mode ecc_uncorrectable", {"no_uncorrected_ecc": FAIL, "row_remap": FAIL}, "ECC errors: 1 in DRAM"),
    ("temp --gpu 3 95", {"temperature": FAIL}, "GPU 3: 5 °C above its slowdown temperature"),
    ("throttle --gpu 3 hw_thermal_slowdown", {"no_throttle": FAIL}, f"{STEADILY} hardware thermal slowdown"),
    ("throttle --gpu 3 power_brake", {"no_throttle": FAIL}, f"{STEADILY} hardware power brake"),
    ("throttle --gpu 3 hw_slowdown", {"no_throttle": CONCERN}, "GPU 3: slowed down by hardware slowdown"),
    ("throttle --gpu 3 sw_thermal", {"no_throttle": CONCERN}, "GPU 3: slowed down by software thermal slowdown"),
    ("throttle --gpu 3 power", {}, ""),
    ("nvlink-error --gpu 3 1", {"nvlink_errors": CONCERN}, "GPU 3: NVLink 0: "),
    ("nvlink-error --gpu 3 1 --links 7", {"nvlink_errors": CONCERN}, "GPU 3: NVLink 7: "),
    (
        "sram-ecc --gpu 3 5 --type secded",
        {"no_uncorrected_ecc": FAIL, "sram_threshold": CONCERN},
        "GPU 3: uncorrected ECC errors: 5 in SRAM",
    ),
    ("sram-ecc --gpu 3 1 --type parity", {"no_uncorrected_ecc": FAIL}, "GPU 3: uncorrected ECC errors: 1 in SRAM"),
    (
        "sram-ecc --gpu 3 1 --threshold-exceeded",
        {"sram_threshold": FAIL, "no_uncorrected_ecc": FAIL},
        "GPU 3: the SRAM error threshold is exceeded",
    ),
    ("set --gpu 3 pcie.current_link_width=8", {"pcie_link": FAIL}, "GPU 3: PCIe x8; expected x16"),
    ("set --gpu 3 remapped_rows.pending=true", {"row_remap": FAIL}, "GPU 3: row remapping is pending"),
    ("set --gpu 3 ecc.mode_current=disabled", {"ecc_mode": CONCERN}, "ECC is disabled"),
]


def evaluated(evidence: NodeEvidence, profile: Profile | None) -> dict[str, Result]:
    """The GPU checks' results on a machine that should match its profile; None: nothing is known of it."""
    assert evidence.collectors["nvml"].status is Status.READ, evidence.collectors["nvml"].detail
    expect = {"gpus": profile.gpus, "nvlinks": profile.nvlinks} if profile else {}
    instance_type = "p5.48xlarge" if profile is H100 else ""
    evidence = replace(evidence, collectors={**evidence.collectors, "kernel_log": SILENT})
    node = Node(Target("gpu001", instance_type=instance_type, expect=expect), evidence)
    checks = {name.removeprefix("gpu."): check for name, check in node_checks().items() if name.startswith("gpu.")}
    return {name: evaluate(check, node) for name, check in checks.items()}


def findings(results: dict[str, Result]) -> dict[str, Verdict]:
    return {name: result.verdict for name, result in results.items() if result.verdict in FINDINGS}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_healthy_machine_has_nothing_to_complain_of(
    profile: Profile, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = evaluated(probed_mock(profile.name, tmp_path, monkeypatch), profile if is_known else None)
    assert {name: results[name].message for name in findings(results)} == {}
    assert results["gpu_answers"].verdict is Verdict.PASS
    assert results["gpu_count"].verdict is (Verdict.PASS if is_known else Verdict.INCOMPLETE)


@pytest.mark.parametrize("mode", ["lost", "fallen_off_bus", "lost --after-calls 5", "fallen_off_bus --after-calls 8"])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_gpu_that_is_lost_fails_one_check_and_costs_the_others_its_values(
    profile: Profile, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = probed_mock(profile.name, tmp_path, monkeypatch, f"fail --gpu 3 --mode {mode}")
    results = evaluated(evidence, profile)
    assert findings(results) == {"gpu_answers": FAIL}
    assert results["gpu_answers"].message == "GPU 3: the driver says GPU_IS_LOST; expected an answer"
    assert "GPU 3: does not answer (GPU_IS_LOST)" in results["temperature"].message


@pytest.mark.parametrize(("fault", "expected", "message"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_each_fault_is_found_by_its_check(
    fault: str, expected: dict[str, Verdict], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = evaluated(probed_mock("h100", tmp_path, monkeypatch, fault), H100)
    assert findings(results) == expected
    assert not message or message in results[next(iter(expected))].message


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("condition", FABRIC_HEALTH)
@pytest.mark.parametrize("profile", WITH_FABRIC, ids=lambda profile: profile.name)
def test_an_unhealthy_fabric_is_named(
    profile: Profile, condition: str, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = probed_mock(profile.name, tmp_path, monkeypatch, f"fabric-health --gpu 3 {condition}")
    results = evaluated(evidence, profile if is_known else None)
    assert findings(results) == {"fabric_state": FAIL}
    assert f"GPU 3: fabric health: {FABRIC_HEALTH[condition]}; expected" in results["fabric_state"].message


def is_error(value: object) -> bool:
    return isinstance(value, dict) and "error" in value


@needs_nodes
def test_the_fake_library_answers_in_the_forms_of_the_mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = probed(healthy_gpu_node("H100")).collectors["nvml"].value
    mock: Any = probed_mock("h100", tmp_path, monkeypatch).collectors["nvml"].value
    assert fake.keys() == mock.keys()
    ours, theirs = fake["gpus"][0], mock["gpus"][0]
    assert ours.keys() == theirs.keys()
    both = [key for key in ours if not is_error(ours[key]) and not is_error(theirs[key])]
    assert {key: type(ours[key]) for key in both} == {key: type(theirs[key]) for key in both}
    assert len(both) > 30
