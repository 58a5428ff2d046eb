"""The fake NVML library and the probe agree with NVIDIA's nvml.h on functions, structures, errors and fields."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from clusterproof.plugins.evidence.gpu.collect_nvml import COUNTERS as SLOWDOWN
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import COUNTERS, FIELDS, _FabricInfo
from tests.counterparts.installed import folder, needs
from tests.testbed.nvml.values import SOURCES, fake_nvml

pytestmark = needs("nvml_header")

HEADERS = {"12": "nvidia/nvml_dev/include/nvml.h", "13": "nvidia/cu13/include/nvml.h"}
versions = pytest.mark.parametrize("cuda", HEADERS)
# The fake's structures, NVIDIA's, and the fields of both that the probe reads or the fake fills.
LAYOUTS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("SramStatus", "nvmlEccSramErrorStatus_v1_t"): {
        "version": "version",
        "aggregate_secded": "aggregateUncSecDed",
        "secded": "volatileUncSecDed",
        "threshold_exceeded": "bThresholdExceeded",
    },
    ("PciInfo", "nvmlPciInfo_t"): {
        "legacy_id": "busIdLegacy",
        "domain": "domain",
        "bus": "bus",
        "device": "device",
        "ids": "pciDeviceId",
        "subsystem_ids": "pciSubSystemId",
        "id": "busId",
    },
    ("Temperature", "nvmlTemperature_v1_t"): {"sensor": "sensorType", "celsius": "temperature"},
    ("Margin", "nvmlMarginTemperature_v1_t"): {"celsius": "marginTemperature"},
    ("Memory", "nvmlMemory_t"): {"total": "total", "free": "free", "used": "used"},
    ("MemoryV2", "nvmlMemory_v2_t"): {"total": "total", "reserved": "reserved", "free": "free", "used": "used"},
    ("Process", "nvmlProcessInfo_t"): {"pid": "pid", "memory": "usedGpuMemory", "gpu_instance": "gpuInstanceId"},
    ("FieldValue", "nvmlFieldValue_t"): {
        "id": "fieldId",
        "scope": "scopeId",
        "type": "valueType",
        "status": "nvmlReturn",
        "value": "value",
    },
    ("Fabric", "nvmlGpuFabricInfo_t"): {"uuid": "clusterUuid", "status": "status", "clique": "cliqueId"},
    ("FabricV2", "nvmlGpuFabricInfo_v2_t"): {"fabric.clique": "cliqueId", "health_mask": "healthMask"},
    ("FabricV3", "nvmlGpuFabricInfo_v3_t"): {"v2.health_mask": "healthMask", "health_summary": "healthSummary"},
}

SINCE_13 = ("nvmlGpuFabricInfo_v3_t",)
FUNCTIONS_SINCE_13 = {"nvmlDeviceGetRepairStatus", "nvmlDeviceGetUnrepairableMemoryFlag_v1"}
IN_HEADER = [(cuda, *both) for cuda in HEADERS for both in LAYOUTS if cuda == "13" or both[1] not in SINCE_13]


@cache
def header(cuda: str) -> str:
    return folder("nvml_header").joinpath(HEADERS[cuda]).read_text()


@cache
def compiled(include: str, expressions: tuple[str, ...], scratch: Path) -> tuple[int, ...]:
    """The values in C of these constants, after that `#include`."""
    printed = "".join(f'printf("%lld\\n", (long long)({expression}));\n' for expression in expressions)
    source = f"#include <stddef.h>\n#include <stdio.h>\n#include {include}\nint main(void) {{\n{printed}return 0; }}\n"
    built = scratch / "constants"
    subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", str(built)], input=source, text=True, check=True)
    return tuple(int(line) for line in subprocess.check_output([built], text=True).split())


def of_nvidia(cuda: str, expressions: Iterable[str], scratch: Path) -> tuple[int, ...]:
    path = folder("nvml_header") / HEADERS[cuda]
    return compiled(f'"{path}"', tuple(expressions), scratch)


def of_fake(expressions: Iterable[str], scratch: Path) -> tuple[int, ...]:
    return compiled(f'"{SOURCES[0]}"', tuple(expressions), scratch)


def parameters(text: str, function: str) -> list[int]:
    """The number of parameters in each declaration of a function."""
    lists = re.findall(rf"\b{function}\s*\(([^()]*)\)\s*[;{{]", text)
    return [0 if arguments.strip() in ("", "void") else arguments.count(",") + 1 for arguments in lists]


@versions
def test_every_function_of_the_fake_is_nvidia_s_with_as_many_parameters(cuda: str, tmp_path: Path) -> None:
    library = tmp_path / "fake.so"
    library.write_bytes(fake_nvml())
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True)
    names = {line.split()[-1] for line in symbols.splitlines() if " T nvml" in line}
    names -= FUNCTIONS_SINCE_13 if cuda == "12" else set()
    assert len(names) > 40
    expanded = subprocess.check_output(["gcc", "-E", "-P", SOURCES[0]], text=True)
    ours = {name: set(parameters(expanded, name)) for name in names}
    theirs = {name: set(parameters(header(cuda), name)) for name in names}
    assert {name: count for name, count in ours.items() if not count & theirs[name]} == {}


@pytest.mark.parametrize(("cuda", "ours", "theirs"), IN_HEADER)
def test_a_structure_of_the_fake_is_laid_out_as_nvidia_s(cuda: str, ours: str, theirs: str, tmp_path: Path) -> None:
    fields = LAYOUTS[ours, theirs]
    own = [f"sizeof({ours})", *(f"offsetof({ours}, {field})" for field in fields)]
    other = [f"sizeof({theirs})", *(f"offsetof({theirs}, {field})" for field in fields.values())]
    assert of_fake(own, tmp_path) == of_nvidia(cuda, other, tmp_path)


@versions
def test_the_errors_have_nvidia_s_numbers(cuda: str, tmp_path: Path) -> None:
    text = SOURCES[-1].read_text()
    errors = {name: int(code) for code, name in re.findall(r'\{(\d+), "([A-Z_]+)"\}', text)}
    assert len(errors) > 30
    known = [name for name in errors if f"NVML_ERROR_{name} " in header(cuda)]
    numbers = of_nvidia(cuda, [f"NVML_ERROR_{name}" for name in known], tmp_path)
    assert dict(zip(known, numbers, strict=True)) == {name: errors[name] for name in known}
    assert cuda == "12" or set(known) == set(errors)


def test_the_probe_reads_a_fabric_as_nvidia_lays_it_out(tmp_path: Path) -> None:
    names = {"cluster_uuid": "clusterUuid", "health_mask": "healthMask", "health_summary": "healthSummary"}
    names |= {"status": "status", "clique": "cliqueId", "state": "state"}
    expressions = [f"offsetof(nvmlGpuFabricInfo_v3_t, {theirs})" for theirs in names.values()]
    offsets = of_nvidia("13", ["sizeof(nvmlGpuFabricInfo_v3_t)", *expressions], tmp_path)
    assert offsets == (ctypes.sizeof(_FabricInfo), *(getattr(_FabricInfo, ours).offset for ours in names))


@versions
def test_the_probe_asks_for_nvlink_errors_by_nvidia_s_numbers(cuda: str, tmp_path: Path) -> None:
    names = {
        "malformed": "MALFORMED_PACKET_ERRORS",
        "overrun": "BUFFER_OVERRUN_ERRORS",
        "receive": "RCV_ERRORS",
        "integrity": "LOCAL_LINK_INTEGRITY_ERRORS",
        "recovery": "LINK_RECOVERY_SUCCESSFUL_EVENTS",
        "recovery_failed": "LINK_RECOVERY_FAILED_EVENTS",
        "effective_ber": "EFFECTIVE_BER",
        "symbol_ber": "SYMBOL_BER",
    }
    fields = of_nvidia(cuda, [f"NVML_FI_DEV_NVLINK_COUNT_{name}" for name in names.values()], tmp_path)
    assert dict(zip(names, fields, strict=True)) == FIELDS
    kinds = [f"NVML_NVLINK_ERROR_DL_{name}" for name in ("REPLAY", "RECOVERY", "CRC_FLIT", "CRC_DATA")]
    assert of_nvidia(cuda, kinds, tmp_path) == tuple(COUNTERS.values())


@versions
def test_the_probe_counts_slowdowns_by_the_numbers_of_both_headers(cuda: str, tmp_path: Path) -> None:
    reasons = [f"NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_{name}_SLOWDOWN" for name in ("THERM", "POWER_BRAKE")]
    ids = of_nvidia(cuda, ["NVML_FI_DEV_PERF_POLICY_THERMAL", *reasons], tmp_path)
    assert set(ids) <= set(SLOWDOWN)
    assert ids[1:] == {"12": (252, 253), "13": (270, 271)}[cuda]
