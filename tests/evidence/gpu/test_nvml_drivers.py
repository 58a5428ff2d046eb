"""Old and new drivers and GPUs: what one lacks is reported as such, and costs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.agent import nvidia_ml, payload
from tests.builders.evaluated import probed, results
from tests.evidence.gpu.nvml import changed, healthy, value
from tests.testbed.gpus import DRIVER_515, healthy_gpu_node
from tests.testbed.image import Content, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5, with_file, with_nvml
from tests.testbed.nvml.values import SOURCES, VALUES_PATH, fake_nvml

SINCE_515 = {
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetTemperatureV",
}
NVLINK_5 = re.compile(r"^NVML_FI_DEV_NVLINK_COUNT_.*\n", re.MULTILINE)


def with_library(image: NodeImage, *without: str) -> NodeImage:
    """The node's NVML library was built without these functions."""
    library: dict[str, Content] = {"/usr/lib64/libnvidia-ml.so.1": fake_nvml(without), VALUES_PATH: image.nvml or ""}
    return replace(image, nvml=None, files=image.files | library)


def with_pynvml_source(monkeypatch: pytest.MonkeyPatch, changed: Callable[[str], str]) -> None:
    """The control machine has another nvidia-ml-py."""
    source = changed(nvidia_ml.pynvml_source())
    monkeypatch.setattr(nvidia_ml, "pynvml_source", lambda: source)
    payload.payload.cache_clear()


def without_functions(*names: str) -> Callable[[str], str]:
    """An nvidia-ml-py without these functions and structures."""

    def older(source: str) -> str:
        statements = nvidia_ml.split(source)
        return "".join(text for text in statements if not re.match(rf"(def|class) ({'|'.join(names)})\b", text))

    return older


def errors_of(gpu: dict[str, Any]) -> dict[str, str]:
    """NVML's errors for values that a GPU did not report, by key."""
    return {key: field["error"] for key, field in gpu.items() if isinstance(field, dict) and "error" in field}


@needs_nodes
def test_functions_that_a_driver_lacks_are_errors_in_their_places_and_nothing_more() -> None:
    report = value(with_library(healthy_p5(), *SINCE_515, "nvmlDeviceGetGpuFabricInfo"))
    for gpu, before in zip(report["gpus"], healthy()["gpus"], strict=True):
        lacking = {"temperature_margin_c", "sram_threshold_exceeded", "fabric"}
        assert errors_of(gpu) == errors_of(before) | dict.fromkeys(lacking, "FUNCTION_NOT_FOUND")
        assert {key: gpu[key] for key in gpu if key not in lacking} == {
            key: before[key] for key in gpu if key not in lacking
        }


@needs_nodes
def test_a_library_with_nothing_but_the_oldest_calls_still_lists_the_gpus() -> None:
    functions = re.findall(r"\b(nvmlDeviceGet\w+)", fake_source())
    oldest = {"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName"}
    kept = {"nvmlDeviceGetTemperature", "nvmlDeviceGetMemoryInfo"}  # the fake's newer calls use these
    report = value(with_library(healthy_p5(), *sorted(set(functions) - oldest - kept)))
    assert [gpu["name"] for gpu in report["gpus"]] == ["NVIDIA H100 80GB HBM3"] * 8
    assert set(errors_of(report["gpus"][0]).values()) == {"FUNCTION_NOT_FOUND"}
    assert report["gpus"][0]["memory_total_mib"] == 81559


def fake_source() -> str:
    return "".join(file.read_text() for file in SOURCES)


@needs_nodes
def test_a_driver_before_510_reports_its_processes_the_older_way() -> None:
    image = with_nvml(healthy_p5(), 3, processes="1:900")
    report = value(with_library(image, "nvmlDeviceGetComputeRunningProcesses_v3"))
    assert [len(gpu["processes"]) for gpu in report["gpus"]] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert report["gpus"][3]["processes"][0]["memory_mib"] == 900


@needs_nodes
def test_an_older_nvidia_ml_py_costs_what_it_does_not_know_and_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    before = healthy()["gpus"][3]
    with_pynvml_source(monkeypatch, without_functions(*SINCE_515, "c_nvmlEccSramErrorStatus_v1_t"))
    try:
        gpu = value(healthy_p5())["gpus"][3]
    finally:
        payload.payload.cache_clear()
    lacking = dict.fromkeys(("temperature_margin_c", "sram_threshold_exceeded"), "FUNCTION_NOT_FOUND")
    assert errors_of(gpu) == errors_of(before) | lacking
    assert gpu | dict.fromkeys(lacking) == before | dict.fromkeys(lacking)


@needs_nodes
def test_nvidia_ml_py_s_own_idea_of_a_fabric_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    image = with_nvml(healthy_gpu_node("GB300"), 3, fabric_status=999)
    before = value(image)["gpus"][3]["fabric"]
    with_pynvml_source(monkeypatch, without_functions(r"c_nvmlGpuFabricInfo\w*"))
    try:
        after = value(image)["gpus"][3]["fabric"]
    finally:
        payload.payload.cache_clear()
    assert after == before
    assert (after["state"], after["status"], after["clique"]) == (3, 999, 32766)
    assert after["cluster_uuid"] == "00000001000000000000000000000001"


@needs_nodes
@pytest.mark.parametrize("newest", [1, 2])
def test_the_fabric_of_an_older_driver_is_read_in_its_form(newest: int) -> None:
    image = with_nvml(with_nvml(healthy_gpu_node("GB300"), 3, fabric_health_mask=1), 3, fabric_version=newest)
    if newest == 1:
        image = with_nvml(image, without="nvmlDeviceGetGpuFabricInfoV")
    fabric = value(image)["gpus"][3]["fabric"]
    assert (fabric["state"], fabric["clique"], fabric["cluster_uuid"]) == (3, 32766, "00000001000000000000000000000001")
    assert (fabric["health_mask"], fabric["health_summary"]) == (1 if newest == 2 else 0, 0)


@needs_nodes
def test_a_nvidia_ml_py_without_the_fields_of_nvlink_5_asks_for_them_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    image = with_nvml(healthy_gpu_node("B200"), 3, **{"nvlink 17 field 214": 2})
    with_pynvml_source(monkeypatch, lambda source: NVLINK_5.sub("", source))
    try:
        counters = value(image)["gpus"][3]["nvlink_errors"]
    finally:
        payload.payload.cache_clear()
    assert counters["recovery_failed"] == {"17": 2}


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({"nvlink 5 errors 0": 12, "nvlink 17 errors 0": 1}, {"replay": {"5": 12, "17": 1}}),
        ({"nvlink 5 errors 1": 2}, {"recovery": {"5": 2}}),
        ({"nvlink 5 errors 2": 3, "nvlink 5 errors 3": 4}, {"crc_flit": {"5": 3}, "crc_data": {"5": 4}}),
    ],
)
@needs_nodes
def test_nvlink_errors_are_reported_by_kind_and_link(values: dict[str, object], differs: dict[str, object]) -> None:
    none: dict[str, dict[str, int]] = {"replay": {}, "recovery": {}, "crc_flit": {}, "crc_data": {}}
    assert changed(**values) == {"nvlink_errors": none | differs}


@needs_nodes
def test_a_nvlink_error_counter_that_cannot_be_read_is_an_error_in_its_place() -> None:
    counters = changed(**{"nvlink 5 errors 0": "error UNKNOWN"})["nvlink_errors"]
    assert counters["replay"]["5"]["error"] == "UNKNOWN"
    assert counters["recovery"] == {}


@needs_nodes
def test_nvlink_errors_of_blackwell_are_read_from_fields() -> None:
    image = with_nvml(healthy_gpu_node("B200"), 3, **{"nvlink 17 field 214": 2, "nvlink 1 field 208": "error UNKNOWN"})
    gpus = value(image)["gpus"]
    kinds = (
        "malformed",
        "overrun",
        "receive",
        "integrity",
        "recovery",
        "recovery_failed",
        "effective_ber",
        "symbol_ber",
    )
    assert gpus[2]["nvlink_errors"] == {kind: {} for kind in kinds}
    assert gpus[3]["nvlink_errors"]["recovery_failed"] == {"17": 2}
    assert gpus[3]["nvlink_errors"]["receive"]["1"]["error"] == "UNKNOWN"


@needs_nodes
def test_a_bit_error_rate_is_unpacked_and_none_is_left_out() -> None:
    packed = {"nvlink 0 field 220": 0, "nvlink 1 field 220": 15 << 8 | 238, "nvlink 2 field 220": 15 << 8 | 12}
    image = with_nvml(healthy_gpu_node("B200"), 3, **packed, **{"nvlink 17 field 222": 1 << 8 | 19})
    errors = value(image)["gpus"][3]["nvlink_errors"]
    assert (errors["effective_ber"], errors["symbol_ber"]) == ({"2": 15e-12}, {"17": 1e-19})


@needs_nodes
def test_a_driver_that_reports_no_nvlink_error_at_all_says_so_once() -> None:
    image = with_nvml(healthy_gpu_node("B200"), without="nvmlDeviceGetFieldValues")
    gpu = value(image)["gpus"][0]
    assert gpu["nvlinks"] == [True] * 18
    assert gpu["nvlink_errors"]["error"] == "FUNCTION_NOT_FOUND"


@needs_nodes
def test_gpus_without_nvlink_have_no_nvlink_errors_either() -> None:
    gpu = value(healthy_gpu_node("L40S"))["gpus"][0]
    assert (gpu["nvlinks"]["error"], gpu["nvlink_errors"]["error"]) == ("NOT_SUPPORTED", "NOT_SUPPORTED")


@needs_nodes
def test_all_of_sixteen_gpus_are_reported() -> None:
    report = value(healthy_gpu_node("V100", gpus=16))
    assert report["count"] == 16
    assert [gpu["index"] for gpu in report["gpus"]] == list(range(16))
    assert len({gpu["uuid"] for gpu in report["gpus"]}) == 16
    assert len({gpu["pci"] for gpu in report["gpus"]}) == 16


@needs_nodes
def test_a_node_with_more_gpus_than_its_type_has_is_not_passed_on_their_count() -> None:
    by_check = results(probed(healthy_gpu_node("V100", gpus=16)))
    assert by_check["gpu.gpu_count"].message == "NVML counts 16 GPUs, 16 on the PCI bus; expected 8"
    assert by_check["gpu.gpu_answers"].verdict == "pass"


@needs_nodes
def test_the_turing_node_is_one_of_an_old_driver() -> None:
    image = healthy_gpu_node("T4")
    assert f"without = {DRIVER_515}" in (image.nvml or "")
    gpu = value(image)["gpus"][0]
    assert gpu["clocks_event_reasons"] == 1
    assert gpu["temperature_c"] == 40
    assert errors_of(gpu)["temperature_margin_c"] == "FUNCTION_NOT_FOUND"


@needs_nodes
def test_no_python_of_the_node_s_own_is_needed_for_nvml() -> None:
    image = with_file(healthy_p5(), "/usr/lib/python3/dist-packages/pynvml.py", "raise SystemExit('a broken one')\n")
    assert value(image)["count"] == 8
