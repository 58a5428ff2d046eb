"""GPUs are reported as NVML shows them: every value or its error separately, whatever one GPU does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent import nvidia_ml, payload
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from tests.builders.probed import PATIENT, probe_node
from tests.evidence.gpu.nvml import changed, collected, healthy, value
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_cpu, healthy_p5, with_file, with_nvml, with_tool

SHORT = ProbeOptions(collector_s=0.7)
HEALTHY: dict[str, Any] = {
    "index": 3,
    "lost": None,
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.A5.00.01",
    "inforom": "G520.0200.00.05",
    "pci": "0000:86:00.0",
    "ecc_enabled": True,
    "ecc_pending": True,
    "ecc_uncorrected_dram": 0,
    "ecc_uncorrected_sram": 0,
    "ecc_uncorrected_total": 0,
    "ecc_corrected_total": 0,
    "ecc_aggregate_uncorrected_sram": 0,
    "sram_threshold_exceeded": False,
    "remap_pending": False,
    "remap_failed": False,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remap_banks": [2560, 0, 0, 0, 0],
    "memory_unrepairable": False,
    "channel_repair_pending": False,
    "tpc_repair_pending": False,
    "retired_pages_pending": {"error": "NOT_SUPPORTED", "text": "Not Supported"},
    "retired_pages_single_bit": {"error": "NOT_SUPPORTED", "text": "Not Supported"},
    "retired_pages_double_bit": {"error": "NOT_SUPPORTED", "text": "Not Supported"},
    "recovery_action": 0,
    "nvlinks": [True] * 18,
    "nvlink_errors": {"replay": {}, "recovery": {}, "crc_flit": {}, "crc_data": {}},
    "fabric": {
        "state": 3,
        "status": 0,
        "health_mask": 0,
        "health_summary": 0,
        "clique": 0,
        "cluster_uuid": "0" * 32,
    },
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_replays": 0,
    "temperature_c": 36,
    "temperature_margin_c": 51,
    "clocks_event_reasons": 1,
    "power_w": 71.0,
    "power_limit_w": 700.0,
    "power_limit_default_w": 700.0,
    "clock_mhz": 345,
    "clock_max_mhz": 1980,
    "app_clock_mhz": 1980,
    "app_clock_default_mhz": 1980,
    "persistence_mode": True,
    "mig_mode": False,
    "mig_pending": False,
    "compute_mode": 0,
    "memory_used_mib": 0,
    "memory_total_mib": 81559,
    "utilization_percent": 0,
    "processes": [],
    "processes_left_out": 0,
}


@needs_nodes
def test_a_healthy_node_is_reported_in_full() -> None:
    report = value(healthy_p5())
    assert report["init"] is None
    assert (report["driver"], report["cuda"], report["count"]) == ("580.126.09", 13000, 8)
    gpu = report["gpus"][3]
    assert gpu.pop("uuid").startswith("GPU-")
    assert gpu.pop("serial").isdigit()
    assert gpu == HEALTHY
    assert [gpu["index"] for gpu in report["gpus"]] == list(range(8))


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({"ecc_uncorrected_dram": 14}, {"ecc_uncorrected_dram": 14, "ecc_uncorrected_total": 14}),
        ({"ecc_uncorrected_sram": 1}, {"ecc_uncorrected_sram": 1, "ecc_uncorrected_total": 1}),
        ({"ecc_aggregate_uncorrected_sram": 5}, {"ecc_aggregate_uncorrected_sram": 5}),
        ({"sram_threshold_exceeded": True}, {"sram_threshold_exceeded": True}),
        ({"memory_unrepairable": True}, {"memory_unrepairable": True}),
        ({"channel_repair_pending": True}, {"channel_repair_pending": True}),
        ({"remap_pending": True, "remapped_uncorrectable": 2}, {"remap_pending": True, "remapped_uncorrectable": 2}),
        (
            {"remap_failed": True, "remap_banks": "0 0 0 0 2560"},
            {"remap_failed": True, "remap_banks": [0, 0, 0, 0, 2560]},
        ),
        ({"recovery_action": 2}, {"recovery_action": 2}),
        ({"nvlink 5": "inactive"}, {"nvlinks": [True] * 5 + [False] + [True] * 12}),
        ({"nvlinks": 12}, {"nvlinks": [True] * 12}),
        ({"fabric_clique": 7}, {"fabric": HEALTHY["fabric"] | {"clique": 7}}),
        ({"fabric_health_summary": 2}, {"fabric": HEALTHY["fabric"] | {"health_summary": 2}}),
        ({"retired_pages_double_bit": 3}, {"retired_pages_double_bit": 3}),
        ({"pcie_width": 8}, {"pcie_width": 8}),
        ({"temperature_margin_c": -2}, {"temperature_margin_c": -2}),
        ({"clocks_event_reasons": "0x20"}, {"clocks_event_reasons": 0x20}),
        ({"power_limit_w": 500}, {"power_limit_w": 500.0}),
        ({"mig_mode": True}, {"mig_mode": True, "mig_pending": True}),
        ({"persistence_mode": False}, {"persistence_mode": False}),
        ({"memory_used_mib": 4096}, {"memory_used_mib": 4096}),
    ],
    ids=lambda case: " ".join(case),
)
@needs_nodes
def test_a_fault_is_reported_for_its_gpu_alone(values: dict[str, object], differs: dict[str, object]) -> None:
    assert changed(**values) == differs


@pytest.mark.parametrize("word", ["GPU_IS_LOST", "UNKNOWN", "NO_PERMISSION", "RESET_REQUIRED", "TIMEOUT"])
@needs_nodes
def test_an_error_stands_in_its_values_place_by_nvmls_own_name(word: str) -> None:
    differs = changed(remap_pending=f"error {word}", pcie_width=f"error {word}")
    assert {key: error["error"] for key, error in differs.items() if key.startswith(("remap_pending", "pcie"))} == {
        "remap_pending": word,
        "pcie_width": word,
    }


@needs_nodes
def test_a_gpu_that_the_hardware_slows_down_is_asked_twice_how_long() -> None:
    slowed = changed(clocks_event_reasons="0x80", **{"field 253": "running", "field 252": 7})
    first, last = slowed["slowdown"]
    unsupported = {"error": "NOT_SUPPORTED", "text": "Not Supported"}
    assert first["counters_ns"] | {"253": 0} == dict.fromkeys(("75", "270", "271"), unsupported) | {"252": 7, "253": 0}
    assert last["at_s"] - first["at_s"] >= 0.5
    assert last["counters_ns"]["253"] > first["counters_ns"]["253"]


@needs_nodes
def test_a_lost_gpu_costs_the_others_nothing() -> None:
    gpus = value(with_nvml(healthy_p5(), 3, handle="error GPU_IS_LOST"))["gpus"]
    assert gpus[3] == {"index": 3, "lost": {"error": "GPU_IS_LOST", "text": "GPU is lost"}}
    assert [gpu["lost"] for gpu in gpus if gpu["index"] != 3] == [None] * 7


@pytest.mark.parametrize("word", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "UNKNOWN"])
@needs_nodes
def test_a_driver_that_does_not_start_is_reported(word: str) -> None:
    report = value(with_nvml(healthy_p5(), init=f"error {word}"))
    assert report["init"]["error"] == word
    assert set(report) == {"init", "init_s"}


@needs_nodes
def test_an_older_driver_is_asked_the_older_way() -> None:
    newer = (
        "nvmlDeviceGetCurrentClocksEventReasons,nvmlDeviceGetTemperatureV,nvmlDeviceGetMemoryInfo_v2,"
        "nvmlDeviceGetGpuFabricInfoV"
    )
    before, after = healthy(), value(with_nvml(healthy_p5(), without=newer))
    for old, new in zip(before["gpus"], after["gpus"], strict=True):
        assert new["memory_total_mib"] >= new["memory_used_mib"] >= old["memory_used_mib"]
        assert old | {"memory_used_mib": 0} == new | {"memory_used_mib": 0}


@needs_nodes
def test_what_a_driver_does_not_know_is_an_error_in_its_place() -> None:
    without = "nvmlDeviceGetMarginTemperature,nvmlDeviceGetSramEccErrorStatus,nvmlDeviceGetRowRemapperHistogram"
    gpu = value(with_nvml(healthy_p5(), without=without))["gpus"][3]
    errors = {key: field["error"] for key, field in gpu.items() if isinstance(field, dict) and "error" in field}
    assert errors == {
        "temperature_margin_c": "FUNCTION_NOT_FOUND",
        "sram_threshold_exceeded": "FUNCTION_NOT_FOUND",
        "remap_banks": "FUNCTION_NOT_FOUND",
        "retired_pages_pending": "NOT_SUPPORTED",
        "retired_pages_single_bit": "NOT_SUPPORTED",
        "retired_pages_double_bit": "NOT_SUPPORTED",
    }


@needs_nodes
def test_nothing_asks_nvidia_smi() -> None:
    ran = "/run/nvidia-smi-ran"
    with entered(with_tool(healthy_p5(), "nvidia-smi", f"#!/bin/sh\ntouch {ran}\nexit 9\n")) as node:
        evidence = probe_node(node, collector_names(), PATIENT)
        assert not (node.root / ran[1:]).exists()
    assert evidence.collectors["nvml"].status is Status.READ


@needs_nodes
def test_a_call_that_hangs_names_its_gpu_and_value() -> None:
    collector = collected(with_nvml(healthy_p5(), 5, hang="memory_info"), SHORT)
    assert collector.status is Status.TIMED_OUT
    assert collector.detail == "GPU 5: memory_used_mib memory_total_mib: no answer within 2.1 s"


@needs_nodes
def test_what_other_gpus_said_before_one_hung_is_said_and_the_rest_is_unread() -> None:
    image = with_nvml(with_nvml(healthy_p5(), 0, ecc_uncorrected_dram=14), 5, hang="memory_info")
    with entered(image) as node:
        evidence = probe_node(node, ["nvml"], SHORT)
    of = Node(Target("gpu001"), evidence)
    assert [gpu.index for gpu in of.gpus] == list(range(8))
    result = evaluate(node_checks()["gpu.no_uncorrected_ecc"], of)
    assert (result.verdict, "GPU 0: uncorrected ECC errors: 14" in result.message) == (Verdict.FAIL, True)
    assert "GPU 5" in evaluate(node_checks()["gpu.row_remap"], of).message
    assert evaluate(node_checks()["gpu.driver_answers_in_time"], of).verdict is Verdict.FAIL


@needs_nodes
def test_processes_are_reported_with_their_names_and_slurm_jobs() -> None:
    image = with_nvml(healthy_p5(), 3, processes="1:900,4000000:12")
    image = with_file(image, "/proc/1/cgroup", "9:cpuset:/\n4:memory:/slurm/uid_1000/job_123/step_0\n0::/\n")
    whose = {"uid": 0, "program": Path("/bin/sh").resolve().name, "parent": {}}  # it has none in this /proc
    assert value(image)["gpus"][3]["processes"] == [
        {"pid": 1, "memory_mib": 900, "name": "sh", "cgroup": "/slurm/uid_1000/job_123/step_0", **whose},
        {"pid": 4000000, "memory_mib": 12, "name": "", "cgroup": "", "parent": {}},
    ]


@needs_nodes
def test_a_node_without_the_library_has_no_gpus_to_report() -> None:
    assert collected(healthy_cpu()).status is Status.ABSENT


@needs_nodes
def test_a_library_that_does_not_load_is_no_absence() -> None:
    image = with_file(healthy_cpu(), "/usr/lib64/libnvidia-ml.so.1", "no library" * 1000)
    collector = collected(image)
    assert collector.status is Status.BROKE
    assert "invalid ELF header" in collector.detail


@needs_nodes
def test_the_part_of_pynvml_that_travels_reads_what_the_whole_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    image = with_nvml(healthy_p5(), 2, remap_pending="error GPU_IS_LOST", processes="1:5", nvlinks=4)
    image = with_nvml(image, 6, handle="error RESET_REQUIRED")
    part = value(image)
    monkeypatch.setattr(payload, "pynvml_for", lambda *_: nvidia_ml.pynvml_source())
    payload.payload.cache_clear()
    whole = value(image)
    payload.payload.cache_clear()
    assert part | {"init_s": 0} == whole | {"init_s": 0}
