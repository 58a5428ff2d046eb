"""The fake NVML library: the real nvidia-ml-py reads the file's values and fails as the file says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

import pytest

from tests.testbed.needs import needs_frozen, needs_nodes, needs_pynvml
from tests.testbed.node import (
    Node,
    NodeImage,
    entered,
    healthy_cpu,
    healthy_p5,
    with_nvml,
    with_pynvml,
    with_stuck_nvml,
)

# Input: [values file, expressions] pairs. Prints what nvmlInit and then each expression return with that file; p is
# pynvml, h is GPU 3's handle; errors appear by name.
ASK = """
import json, sys
import pynvml as p
def answer_of(expression):
    try:
        return raw(eval(expression))
    except p.NVMLError as error:
        return "error " + type(error).__name__.removeprefix("NVMLError_")
def raw(value):
    return value.decode() if isinstance(value, bytes) else value
def fabric(structure, ask):
    ask(h, p.byref(structure))
    common = [structure.state, structure.status, structure.cliqueId, bytes(structure.clusterUuid).hex()]
    return common + [getattr(structure, "healthMask", None)]
def sram():
    status = p.c_nvmlEccSramErrorStatus_v1_t()
    p.nvmlDeviceGetSramEccErrorStatus(h, p.byref(status))
    return [status.aggregateUncSecDed, status.volatileUncSecDed, status.bThresholdExceeded]
def field(number):
    value = p.nvmlDeviceGetFieldValues(h, [number])[0]
    return value.value.uiVal if value.nvmlReturn == 0 else "error %d" % value.nvmlReturn
answers = []
for values, expressions in json.load(sys.stdin):
    if values is not None:
        with open("/run/fake-nvml.txt", "w") as file:
            file.write(values)
    started = answer_of("p.nvmlInit()")
    h = None if started else p.nvmlDeviceGetHandleByIndex(3)
    answers.append([started] + [answer_of(expression) for expression in expressions])
    if not started:
        p.nvmlShutdown()
print(json.dumps(answers))
"""

FABRIC = {
    "fabric_state": 3,
    "fabric_clique": 7,
    "fabric_cluster_uuid": "00112233-4455-6677-8899-aabbccddeeff",
}
UUID_HEX = "00112233445566778899aabbccddeeff"
MIB = 1024 * 1024

# GPU 3's part of the file, the expression, and pynvml's answer.
VALUES: list[tuple[dict[str, object], str, object]] = [
    ({}, "p.nvmlDeviceGetCount()", 8),
    ({}, "p.nvmlSystemGetDriverVersion()", "580.126.09"),
    ({}, "p.nvmlSystemGetNVMLVersion()", "13.580.126.09"),
    ({}, "p.nvmlSystemGetCudaDriverVersion_v2()", 13000),
    ({}, "p.nvmlErrorString(15)", "gpu is lost"),
    ({}, "p.nvmlDeviceGetHandleByIndex(8)", "error InvalidArgument"),
    ({"name": "NVIDIA H200"}, "p.nvmlDeviceGetName(h)", "NVIDIA H200"),
    ({"uuid": "GPU-1"}, "p.nvmlDeviceGetUUID(h)", "GPU-1"),
    ({"serial": 165}, "p.nvmlDeviceGetSerial(h)", "165"),
    ({"vbios": "96.00"}, "p.nvmlDeviceGetVbiosVersion(h)", "96.00"),
    ({}, "raw(p.nvmlDeviceGetPciInfo(h).busId)", "00000000:86:00.0"),
    ({}, "hex(p.nvmlDeviceGetPciInfo(h).pciDeviceId)", "0x233010de"),
    ({}, "p.nvmlDeviceGetEccMode(h)", [1, 1]),
    ({"ecc_uncorrected_dram": 14}, "p.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, 2)", 14),
    ({"ecc_uncorrected_sram": 2}, "p.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, 7)", 2),
    ({}, "p.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, 1)", "error NotSupported"),
    ({"ecc_uncorrected_dram": 14, "ecc_uncorrected_sram": 2}, "p.nvmlDeviceGetTotalEccErrors(h, 1, 0)", 16),
    ({"ecc_corrected_total": 9}, "p.nvmlDeviceGetTotalEccErrors(h, 0, 0)", 9),
    ({"ecc_enabled": False}, "p.nvmlDeviceGetTotalEccErrors(h, 1, 0)", "error NotSupported"),
    ({"ecc_aggregate_uncorrected_sram": 5}, "sram()", [5, 0, 0]),
    ({"sram_threshold_exceeded": True}, "sram()", [0, 0, 1]),
    ({"remap_pending": True}, "p.nvmlDeviceGetRemappedRows(h)", [0, 0, 1, 0]),
    ({"remapped_uncorrectable": 2, "remap_failed": True}, "p.nvmlDeviceGetRemappedRows(h)", [0, 2, 0, 1]),
    ({"remap_pending": "error GPU_IS_LOST"}, "p.nvmlDeviceGetRemappedRows(h)", "error GpuIsLost"),
    ({"memory_unrepairable": True}, "p.nvmlDeviceGetUnrepairableMemoryFlag_v1(h)", 1),
    ({"tpc_repair_pending": True}, "p.nvmlDeviceGetRepairStatus(h)", [0, 1]),
    ({"remap_banks": "2550 5 3 1 1"}, "p.nvmlDeviceGetRowRemapperHistogram(h).low", 1),
    ({"retired_pages_pending": True}, "p.nvmlDeviceGetRetiredPagesPendingStatus(h)", 1),
    ({}, "p.nvmlDeviceGetRetiredPagesPendingStatus(h)", "error NotSupported"),
    ({"recovery_action": 2}, "field(p.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)", 2),
    ({"field 150": 77}, "field(150)", 77),
    ({"retired_pages_double_bit": 4}, "field(p.NVML_FI_DEV_RETIRED_DBE)", 4),
    ({}, "field(p.NVML_FI_DEV_RETIRED_DBE)", "error 3"),
    ({}, "field(151)", "error 3"),
    ({"nvlink 5": "inactive"}, "[p.nvmlDeviceGetNvLinkState(h, link) for link in (4, 5)]", [1, 0]),
    ({"nvlink 5": "error UNKNOWN"}, "p.nvmlDeviceGetNvLinkState(h, 5)", "error Unknown"),
    ({}, "p.nvmlDeviceGetNvLinkState(h, 18)", "error InvalidArgument"),
    ({"nvlink 5 errors 1": 12}, "p.nvmlDeviceGetNvLinkErrorCounter(h, 5, 1)", 12),
    ({}, "field((p.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, 5))", "error 3"),
    ({"nvlink_version": 5}, "p.nvmlDeviceGetNvLinkErrorCounter(h, 5, 1)", "error NotSupported"),
    ({"nvlink_version": 5}, "field((p.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, 5))", 0),
    ({"nvlink_version": 5}, "field((p.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, 18))", "error 2"),
    (
        {"nvlink_version": 5, "nvlink 5 field 208": 3},
        "[field((p.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, link)) for link in (4, 5)]",
        [0, 3],
    ),
    (FABRIC, "fabric(p.c_nvmlGpuFabricInfo_t(), p.nvmlDeviceGetGpuFabricInfo)", [3, 0, 7, UUID_HEX, None]),
    (
        FABRIC | {"fabric_health_mask": 2, "fabric_version": 2},
        "fabric(p.c_nvmlGpuFabricInfo_v2_t(), p.nvmlDeviceGetGpuFabricInfoV)",
        [3, 0, 7, UUID_HEX, 2],
    ),
    (
        FABRIC | {"fabric_status": 999},
        "fabric(p.c_nvmlGpuFabricInfo_v3_t(), p.nvmlDeviceGetGpuFabricInfoV)",
        [3, 999, 7, UUID_HEX, 0],
    ),
    (
        {"fabric_version": 2},
        "fabric(p.c_nvmlGpuFabricInfo_v3_t(), p.nvmlDeviceGetGpuFabricInfoV)",
        "error ArgumentVersionMismatch",
    ),
    ({"pcie_width": 8}, "[p.nvmlDeviceGetCurrPcieLinkWidth(h), p.nvmlDeviceGetMaxPcieLinkWidth(h)]", [8, 16]),
    (
        {"pcie_gen": 3},
        "[p.nvmlDeviceGetCurrPcieLinkGeneration(h), p.nvmlDeviceGetMaxPcieLinkGeneration(h)]",
        [3, 5],
    ),
    ({"pcie_replays": 9}, "p.nvmlDeviceGetPcieReplayCounter(h)", 9),
    ({"temperature_c": 88}, "p.nvmlDeviceGetTemperature(h, 0)", 88),
    ({"temperature_c": 88}, "p.nvmlDeviceGetTemperatureV(h, 0)", 88),
    ({"temperature_margin_c": -2}, "p.nvmlDeviceGetMarginTemperature(h)", -2),
    ({"clocks_event_reasons": "0x48"}, "p.nvmlDeviceGetCurrentClocksEventReasons(h)", 0x48),
    ({"clocks_event_reasons": "0x48"}, "p.nvmlDeviceGetCurrentClocksThrottleReasons(h)", 0x48),
    ({"power_w": 650}, "p.nvmlDeviceGetPowerUsage(h)", 650_000),
    ({"clock_mhz": 1755}, "p.nvmlDeviceGetClockInfo(h, 0)", 1755),
    ({"power_limit_w": 500}, "p.nvmlDeviceGetEnforcedPowerLimit(h)", 500_000),
    ({}, "p.nvmlDeviceGetPowerManagementDefaultLimit(h)", 700_000),
    ({"persistence_mode": False}, "p.nvmlDeviceGetPersistenceMode(h)", 0),
    ({"mig_mode": True}, "p.nvmlDeviceGetMigMode(h)", [1, 1]),
    ({"compute_mode": 3}, "p.nvmlDeviceGetComputeMode(h)", 3),
    ({"memory_used_mib": 9}, "p.nvmlDeviceGetMemoryInfo(h).used", (9 + 479) * MIB),
    ({"memory_used_mib": 9}, "p.nvmlDeviceGetMemoryInfo(h, p.nvmlMemory_v2).used", 9 * MIB),
    ({"utilization_percent": 97}, "p.nvmlDeviceGetUtilizationRates(h).gpu", 97),
    ({}, "p.nvmlDeviceGetComputeRunningProcesses(h)", []),
    (
        {"processes": "1234:900,1300:-"},
        "[(one.pid, one.usedGpuMemory) for one in p.nvmlDeviceGetComputeRunningProcesses(h)]",
        [[1234, 900 * MIB], [1300, None]],
    ),
]


def ask(image: NodeImage, *expressions: str) -> list[object]:
    """What `nvmlInit` and then each expression return on a node; None: no error."""
    with entered(with_pynvml(image)) as node:
        return ask_in(node, [(None, expressions)])[0]


def ask_in(
    node: Node, questions: Sequence[tuple[str | None, Sequence[str]]], timeout: float = 600.0
) -> list[list[object]]:
    """The same on a running node, for several values files in turn; None: its own file."""
    done = node.run(
        ["python3", "-c", ASK],
        input=json.dumps(questions).encode(),
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers: list[list[object]] = json.loads(done.stdout)
    return answers


@needs_nodes
@needs_pynvml
def test_pynvml_reads_every_value_of_the_file() -> None:
    p5 = healthy_p5()
    questions = [(with_nvml(p5, 3, **values).nvml, [expression]) for values, expression, _ in VALUES]
    with entered(with_pynvml(p5)) as node:
        answers = ask_in(node, questions)
    wrong = [(*row, got) for row, got in zip(VALUES, answers, strict=True) if got != [None, row[2]]]
    assert wrong == []


@needs_nodes
@needs_pynvml
@pytest.mark.parametrize(
    ("fault", "expression", "answers"),
    [
        (
            {"init": "error DRIVER_NOT_LOADED"},
            "p.nvmlDeviceGetCount()",
            ["error DriverNotLoaded", "error Uninitialized"],
        ),
        ({"count": 7}, "p.nvmlDeviceGetCount()", [None, 7]),
        ({"count": "error UNKNOWN"}, "p.nvmlDeviceGetCount()", [None, "error Unknown"]),
        (
            {"without": "nvmlDeviceGetMarginTemperature,nvmlDeviceGetGpuFabricInfoV"},
            "p.nvmlDeviceGetMarginTemperature(h)",
            [None, "error FunctionNotFound"],
        ),
        (
            {"without": "nvmlDeviceGetGpuFabricInfoV"},
            "fabric(p.c_nvmlGpuFabricInfo_t(), p.nvmlDeviceGetGpuFabricInfo)[:2]",
            [None, [3, 0]],
        ),
        ({"slow": "init 0.01"}, "p.nvmlDeviceGetCount()", [None, 8]),
    ],
)
def test_the_whole_library_fails_as_configured(
    fault: dict[str, object], expression: str, answers: list[object]
) -> None:
    assert ask(with_nvml(healthy_p5(), None, **fault), expression) == answers


@needs_nodes
@needs_pynvml
def test_one_lost_gpu_leaves_the_others_alone() -> None:
    image = with_nvml(healthy_p5(), 5, handle="error GPU_IS_LOST")
    handles = [f"type(p.nvmlDeviceGetHandleByIndex({index})).__name__" for index in (4, 5)]
    assert ask(image, *handles) == [None, "LP_struct_c_nvmlDevice_t", "error GpuIsLost"]


@needs_nodes
@needs_pynvml
def test_a_call_that_hangs_hangs_for_that_gpu_only() -> None:
    well = "p.nvmlDeviceGetMemoryInfo(p.nvmlDeviceGetHandleByIndex(4)).free > 0"
    with entered(with_pynvml(with_nvml(healthy_p5(), 3, hang="memory_info"))) as node:
        assert ask_in(node, [(None, [well])]) == [[None, True]]
        with pytest.raises(subprocess.TimeoutExpired):
            ask_in(node, [(None, ["p.nvmlDeviceGetMemoryInfo(h)"])], timeout=0.5)
        assert node.run(["pgrep", "-x", "python3"]).stdout == b""


@needs_frozen
@needs_pynvml
def test_a_stuck_call_survives_being_killed() -> None:
    with entered(with_pynvml(with_stuck_nvml(healthy_p5(), 3, "total_ecc_errors"))) as node:
        for timeout_s in (0.5, 5.0, 50.0):  # on a busy machine it is killed before the call
            with pytest.raises(subprocess.TimeoutExpired):
                ask_in(node, [(None, ["p.nvmlDeviceGetTotalEccErrors(h, 1, 0)"])], timeout=timeout_s)
            if states := node.run(["ps", "-o", "state=", "-C", "python3"]).stdout:
                break
        assert states == b"D\n"


@needs_nodes
@needs_pynvml
def test_without_values_there_is_no_library() -> None:
    assert ask(healthy_cpu()) == ["error LibraryNotFound"]


@needs_nodes
@needs_pynvml
def test_gpus_of_two_nodes_are_not_the_same() -> None:
    uuid = "p.nvmlDeviceGetUUID(h)"
    assert ask(healthy_p5("gpu001"), uuid) != ask(healthy_p5("gpu002"), uuid)
