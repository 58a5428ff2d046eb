"""One GPU through NVML: a table of what is asked, each answer or error by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pynvml

from clusterproof.plugins.probe.reading import Node

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

ERRORS = {code: name[11:] for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
OLDER_DRIVER = ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT", "NOT_SUPPORTED")
FIELD_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by NVML's value type
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
DRAM, SRAM = 2, 7  # memory locations
GPU_SENSOR = 0
MIB = 2**20
MAX_PROCESSES = 256


def gpu(node: Node, index: int) -> dict[str, object]:
    """Everything that one GPU tells; only its index and why, where it does not even give a handle."""
    node.at(f"GPU {index}: handle")
    handle = told(pynvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(handle, dict):
        return {"index": index, "lost": handle}
    values: dict[str, object] = {"index": index, "lost": None}
    for keys, ask in ASKED.items():
        node.at(f"GPU {index}: {keys}")
        answer = told(ask, handle)
        names = keys.split()
        values.update(zip(names, answer if isinstance(answer, tuple) else [answer] * len(names)))
    node.at(f"GPU {index}: processes")
    values["processes"] = told(_processes, handle, node)
    return values


def told(ask: Callable[..., object], *arguments: object) -> object:
    """What a call answers, or its error as a value: nothing that one GPU does costs another's evidence."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as problem:
        return {"error": ERRORS.get(problem.value, f"CODE_{problem.value}"), "text": str(problem)}
    except AttributeError as problem:  # an nvidia-ml-py that does not know the call
        return {"error": "FUNCTION_NOT_FOUND", "text": str(problem)}
    except (ValueError, TypeError, IndexError, ctypes.ArgumentError) as problem:
        return {"error": "NOT_UNDERSTOOD", "text": f"{type(problem).__name__}: {problem}"}


def _itself(answer: object) -> object:
    return answer


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _call(name: str, *more: int, of: Callable[[Any], object] = _itself) -> Callable[[object], object]:
    """A call by its name in pynvml, and what is made `of` its answer."""
    return lambda handle: of(getattr(pynvml, name)(handle, *more))


def _filled(name: str, struct: str, of: Callable[[Any], object]) -> Callable[[object], object]:
    """A call that fills a structure, and what is made `of` that."""

    def ask(handle: object) -> object:
        filled = getattr(pynvml, struct)()
        getattr(pynvml, name)(handle, ctypes.byref(filled))
        return of(filled)

    return ask


def _newest(*asked: Callable[[object], object]) -> Callable[[object], object]:
    """The first of these calls, newest first, that this driver knows."""

    def ask(handle: object) -> object:
        answer: object = None
        for call in asked:
            answer = told(call, handle)
            if not (isinstance(answer, dict) and answer.get("error") in OLDER_DRIVER):
                break
        return answer

    return ask


def _address(info: Any) -> str:
    """The PCI address as sysfs writes it: four digits of domain, small letters."""
    domain, rest = info.busId.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _recovery_action(handle: object) -> object:
    """The driver's recovery action; a driver that does not know this field calls it an invalid argument."""
    field = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if field.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return getattr(field.value, FIELD_VALUES[field.valueType])


def _nvlinks(handle: object) -> object:
    """Each link's state, to the last that the GPU has; one error where it has none at all."""
    links: list[object] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = told(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if isinstance(state, dict) and state["error"] == "INVALID_ARGUMENT":
            break
        links.append(state if isinstance(state, dict) else bool(state))
    first = links[0] if links else None
    while links and _is_unsupported(links[-1]):
        links.pop()
    return links or first or []


def _is_unsupported(link: object) -> bool:
    return isinstance(link, dict) and link["error"] == "NOT_SUPPORTED"


def _fabric(info: Any) -> dict[str, object]:
    return {
        "state": info.state,
        "status": info.status,
        "health_mask": getattr(info, "healthMask", 0),
        "clique": info.cliqueId,
        "cluster_uuid": bytes(info.clusterUuid).hex(),
    }


def _memory(memory: Any) -> tuple[int, int]:
    return memory.used // MIB, memory.total // MIB


def _processes(handle: object, node: Node) -> list[dict[str, object]]:
    running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return [_process(node, process.pid, process.usedGpuMemory) for process in running[:MAX_PROCESSES]]


def _process(node: Node, pid: int, memory: int | None) -> dict[str, object]:
    groups, name = node.text(f"/proc/{pid}/cgroup", absent=""), node.text(f"/proc/{pid}/comm", absent="")
    paths = [line.split(":", 2)[-1] for line in groups.splitlines()] if isinstance(groups, str) else []
    return {
        "pid": pid,
        "memory_mib": None if memory is None else memory // MIB,
        "name": name if isinstance(name, str) else "",
        "cgroup": max(paths, key=len, default=""),  # of cgroup v1's many, the one that says most
    }


# The keys that one call tells, and the call; of several keys, it tells a tuple.
ASKED: dict[str, Callable[[object], object]] = {
    "uuid": _call("nvmlDeviceGetUUID"),
    "serial": _call("nvmlDeviceGetSerial"),
    "name": _call("nvmlDeviceGetName"),
    "vbios": _call("nvmlDeviceGetVbiosVersion"),
    "pci": _call("nvmlDeviceGetPciInfo", of=_address),
    "ecc_enabled": _call("nvmlDeviceGetEccMode", of=lambda modes: bool(modes[0])),
    "ecc_uncorrected_dram": _call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, DRAM),
    "ecc_uncorrected_sram": _call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, SRAM),
    "ecc_uncorrected_total": _call("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
    "ecc_corrected_total": _call("nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE),
    "ecc_aggregate_uncorrected_sram": _call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, AGGREGATE, SRAM),
    "sram_threshold_exceeded": _filled(
        "nvmlDeviceGetSramEccErrorStatus",
        "c_nvmlEccSramErrorStatus_v1_t",
        of=lambda status: bool(status.bThresholdExceeded),
    ),
    "remapped_correctable remapped_uncorrectable remap_pending remap_failed": _call(
        "nvmlDeviceGetRemappedRows", of=lambda rows: (rows[0], rows[1], bool(rows[2]), bool(rows[3]))
    ),
    "remap_banks": _call(
        "nvmlDeviceGetRowRemapperHistogram",
        of=lambda banks: [banks.max, banks.high, banks.partial, banks.low, banks.none],
    ),
    "retired_pages_pending": _call("nvmlDeviceGetRetiredPagesPendingStatus", of=bool),
    "recovery_action": _recovery_action,
    "nvlinks": _nvlinks,
    "fabric": _newest(
        _filled("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", of=_fabric),
        _filled("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", of=_fabric),
        _filled("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", of=_fabric),
    ),
    "pcie_width": _call("nvmlDeviceGetCurrPcieLinkWidth"),
    "pcie_width_max": _call("nvmlDeviceGetMaxPcieLinkWidth"),
    "pcie_gen": _call("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_gen_max": _call("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_replays": _call("nvmlDeviceGetPcieReplayCounter"),
    "temperature_c": _newest(
        _call("nvmlDeviceGetTemperatureV", GPU_SENSOR), _call("nvmlDeviceGetTemperature", GPU_SENSOR)
    ),
    "temperature_margin_c": _call("nvmlDeviceGetMarginTemperature"),
    "clocks_event_reasons": _newest(
        _call("nvmlDeviceGetCurrentClocksEventReasons"), _call("nvmlDeviceGetCurrentClocksThrottleReasons")
    ),
    "power_limit_w": _call("nvmlDeviceGetEnforcedPowerLimit", of=_watts),
    "power_limit_default_w": _call("nvmlDeviceGetPowerManagementDefaultLimit", of=_watts),
    "persistence_mode": _call("nvmlDeviceGetPersistenceMode", of=bool),
    "mig_mode": _call("nvmlDeviceGetMigMode", of=lambda modes: bool(modes[0])),
    "compute_mode": _call("nvmlDeviceGetComputeMode"),
    "memory_used_mib memory_total_mib": _newest(  # the newer call leaves out what the driver keeps for itself
        lambda handle: _memory(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)),
        _call("nvmlDeviceGetMemoryInfo", of=_memory),
    ),
    "utilization_percent": _call("nvmlDeviceGetUtilizationRates", of=lambda rates: rates.gpu),
}
