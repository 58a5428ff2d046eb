"""Reads one GPU through NVML: a table of queries, each with its own answer or error; NVLinks and fabric."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pynvml

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, call, fields, filled, is_unsupported, newest
from clusterproof.plugins.evidence.host.collect_owner import in_turn, owner, parent, program

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

# Up to Hopper a link's counters are read individually; the corresponding fields are always 0 on Hopper.
COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}  # nvmlNvLinkErrorCounter_t
# From Blackwell on only fields report them, of other kinds: NVML_FI_DEV_NVLINK_COUNT_….
FIELDS = {
    "malformed": 206,
    "overrun": 207,
    "receive": 208,
    "integrity": 211,
    "recovery": 213,  # that succeeded
    "recovery_failed": 214,
    "effective_ber": 220,  # bit errors that error correction left, of all bits since the link's counters began
    "symbol_ber": 222,
}
NO_ERRORS = 238  # a rate without any error is 15e-255, or 15e-238
MAX_LINKS = 36  # of any GPU so far; beyond its last link a GPU reports an invalid argument
UP = (1, 2)  # active, and asleep to save power; 3 is active with its traffic disabled


def nvlinks(handle: object) -> tuple[object, object]:
    """The states of the links, and their error counters."""
    states = _states(handle)
    return states, answer_to(_errors, handle, len(states)) if isinstance(states, list) else states


def _states(handle: object) -> object:
    """The state of each link up to the GPU's last; an error if it has none."""
    links: list[object] = []
    for link in range(MAX_LINKS):
        state = answer_to(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if isinstance(state, dict) and state["error"] == "INVALID_ARGUMENT":
            break
        links.append(state if isinstance(state, dict) else state in UP)
    first = links[0] if links else None
    while links and _has_no_link(links[-1]):
        links.pop()
    return links or first or []


def _has_no_link(state: object) -> bool:
    return isinstance(state, dict) and state["error"] == "NOT_SUPPORTED"


def _errors(handle: object, links: int) -> object:
    """By kind, the links with a non-zero or unreadable counter; an error if no kind is supported."""
    replays = _counted([answer_to(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, 0) for link in range(links)])
    if is_unsupported(replays):
        kinds = {
            kind: _of_field(handle, field, links, _rate if "_ber" in kind else int) for kind, field in FIELDS.items()
        }
    else:
        kinds = {kind: replays if kind == "replay" else _of_kind(handle, kind, links) for kind in COUNTERS}
    unsupported = [answer for answer in kinds.values() if is_unsupported(answer)]
    return unsupported[0] if len(unsupported) == len(kinds) else kinds


def _of_kind(handle: object, kind: str, links: int) -> object:
    counts = (answer_to(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, COUNTERS[kind]) for link in range(links))
    return _counted(list(counts))


def _of_field(handle: object, field: int, links: int, of: Callable[[Any], object]) -> object:
    answer = answer_to(fields, handle, [(field, link) for link in range(links)])
    if not isinstance(answer, tuple):
        return answer
    return _counted([reported if isinstance(reported, dict) else of(reported) for reported in answer])


def _rate(packed: int) -> float:
    """Decode a bit error rate: four bits of mantissa above eight of exponent."""
    power = packed & 255
    return (packed >> 8 & 15) / 10**power if power < NO_ERRORS else 0


def _counted(answers: list[object]) -> object:
    if answers and all(is_unsupported(answer) for answer in answers):
        return answers[0]
    return {str(link): answer for link, answer in enumerate(answers) if answer}


class _FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t; a prefix of it is the second form, without the version the first.

    Declared here because nvidia-ml-py up to 13.595 gives the cluster's UUID 80 bytes, and so misreads what follows.
    """

    _fields_ = [
        ("version", ctypes.c_uint),
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health_mask", ctypes.c_uint),
        ("health_summary", ctypes.c_ubyte),
    ]


def _fabric(name: str, version: int) -> Callable[[object], object]:
    """The fabric from this call in this version of the struct; version 0 is the unversioned struct."""

    def ask(handle: object) -> object:
        info = _FabricInfo(version=version)
        getattr(pynvml, name)(handle, ctypes.byref(info, 0 if version else _FabricInfo.cluster_uuid.offset))
        fields = {key: getattr(info, key) for key in ("state", "status", "health_mask", "health_summary", "clique")}
        return {**fields, "cluster_uuid": bytes(info.cluster_uuid).hex()}

    return ask


fabric = newest(
    _fabric("nvmlDeviceGetGpuFabricInfoV", 0x03000028),
    _fabric("nvmlDeviceGetGpuFabricInfoV", 0x02000024),
    _fabric("nvmlDeviceGetGpuFabricInfo", 0),
)
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
DRAM, SRAM = 2, 7  # memory locations
GPU_SENSOR = 0
GRAPHICS = 0  # of the kinds of clocks
RETIRED_SINGLE_BIT, RETIRED_DOUBLE_BIT, RECOVERY_ACTION = 29, 30, 230  # fields, NVML_FI_DEV_…
MIB = 2**20
MAX_PROCESSES = 256
POD = Pattern(
    r"/kubepods(?:(?!/kubepods).)*pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})"
)  # its uid, as the kubelet writes it


def gpu(node: Node, index: int) -> dict[str, object]:
    """Everything about one GPU; only its index and the error if there is no handle."""
    node.at(f"GPU {index}: handle")
    handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(handle, dict):
        return {"index": index, "lost": handle}
    values: dict[str, object] = {"index": index, "lost": None}
    for keys in ASKED:
        values.update(answers_to(keys, handle, node, index))
    node.at(f"GPU {index}: processes")
    running = answer_to(_processes, handle, node)
    values["processes"] = in_turn(running, "cgroup", MAX_PROCESSES) if isinstance(running, list) else running
    values["processes_left_out"] = max(0, len(running) - MAX_PROCESSES) if isinstance(running, list) else 0
    return values


def answers_to(keys: str, handle: object, node: Node, index: int) -> dict[str, object]:
    """What one call says of these keys of ASKED, or its error under each."""
    node.at(f"GPU {index}: {keys}")
    answer = answer_to(ASKED[keys], handle)
    names = keys.split()
    return dict(zip(names, answer if isinstance(answer, tuple) else [answer] * len(names)))


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _flags(pair: Any) -> tuple[bool, bool]:
    return bool(pair[0]), bool(pair[1])


def _address(info: Any) -> str:
    """The PCI address as sysfs writes it: four digits of domain, small letters."""
    domain, rest = info.busId.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _memory(memory: Any) -> tuple[int, int]:
    return memory.used // MIB, memory.total // MIB


def _processes(handle: object, node: Node) -> object:
    running: Any = RUNNING(handle)
    if isinstance(running, dict):
        return running
    return [_process(node, process.pid, process.usedGpuMemory) for process in running]


def _process(node: Node, pid: int, memory: int | None) -> dict[str, object]:
    groups, name = node.text(f"/proc/{pid}/cgroup", absent=""), node.text(f"/proc/{pid}/comm", absent="")
    paths = [line.split(":", 2)[-1] for line in groups.split("\n")] if isinstance(groups, str) else []
    group = max(paths, key=len, default="")  # of cgroup v1's many, the one that says most
    pod = POD.search(group)
    return {
        "pid": pid,
        "memory_mib": None if memory is None else memory // MIB,
        "name": name if isinstance(name, str) else "",
        "cgroup": group,
        **({"pod": pod[1].replace("_", "-")} if pod else {}),
        **_owner(node, str(pid)),
        "parent": _owner(node, parent(node, pid)),
    }


def _owner(node: Node, pid: str) -> dict[str, object]:
    """The user that runs it and the program, nothing where it has ended."""
    try:
        return {"uid": owner(node, pid), "program": program(node, pid)}
    except OSError:
        return {}


RUNNING = newest(
    call("nvmlDeviceGetComputeRunningProcesses"),
    call("nvmlDeviceGetComputeRunningProcesses_v2"),  # before 510
)
# The keys that one call reads, and the call; for several keys it returns a tuple.
ASKED: dict[str, Callable[[object], object]] = {
    "uuid": call("nvmlDeviceGetUUID"),
    "serial": call("nvmlDeviceGetSerial"),
    "name": call("nvmlDeviceGetName"),
    "vbios": call("nvmlDeviceGetVbiosVersion"),
    "inforom": call("nvmlDeviceGetInforomImageVersion"),
    "pci": call("nvmlDeviceGetPciInfo", of=_address),
    "ecc_enabled ecc_pending": call("nvmlDeviceGetEccMode", of=_flags),
    "ecc_uncorrected_dram": call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, DRAM),
    "ecc_uncorrected_sram": call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, SRAM),
    "ecc_uncorrected_total": call("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
    "ecc_corrected_total": call("nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE),
    "ecc_aggregate_uncorrected_sram": call("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, AGGREGATE, SRAM),
    "sram_threshold_exceeded": filled(
        "nvmlDeviceGetSramEccErrorStatus",
        "c_nvmlEccSramErrorStatus_v1_t",
        of=lambda status: bool(status.bThresholdExceeded),
    ),
    "remapped_correctable remapped_uncorrectable remap_pending remap_failed": call(
        "nvmlDeviceGetRemappedRows", of=lambda rows: (rows[0], rows[1], bool(rows[2]), bool(rows[3]))
    ),
    "remap_banks": call(
        "nvmlDeviceGetRowRemapperHistogram",
        of=lambda banks: [banks.max, banks.high, banks.partial, banks.low, banks.none],
    ),
    "memory_unrepairable": call("nvmlDeviceGetUnrepairableMemoryFlag_v1", of=bool),
    "channel_repair_pending tpc_repair_pending": call("nvmlDeviceGetRepairStatus", of=_flags),
    "retired_pages_pending": call("nvmlDeviceGetRetiredPagesPendingStatus", of=bool),
    "retired_pages_single_bit retired_pages_double_bit recovery_action": lambda handle: fields(
        handle, (RETIRED_SINGLE_BIT, RETIRED_DOUBLE_BIT, RECOVERY_ACTION)
    ),
    "nvlinks nvlink_errors": nvlinks,
    "fabric": fabric,
    "pcie_width": call("nvmlDeviceGetCurrPcieLinkWidth"),
    "pcie_width_max": call("nvmlDeviceGetMaxPcieLinkWidth"),
    "pcie_gen": call("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_gen_max": call("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_replays": call("nvmlDeviceGetPcieReplayCounter"),
    "temperature_c": newest(
        call("nvmlDeviceGetTemperatureV", GPU_SENSOR), call("nvmlDeviceGetTemperature", GPU_SENSOR)
    ),
    "temperature_margin_c": call("nvmlDeviceGetMarginTemperature"),
    "clocks_event_reasons": newest(
        call("nvmlDeviceGetCurrentClocksEventReasons"), call("nvmlDeviceGetCurrentClocksThrottleReasons")
    ),
    "power_w": call("nvmlDeviceGetPowerUsage", of=_watts),
    "power_limit_w": call("nvmlDeviceGetEnforcedPowerLimit", of=_watts),
    "power_limit_default_w": call("nvmlDeviceGetPowerManagementDefaultLimit", of=_watts),
    "clock_mhz": call("nvmlDeviceGetClockInfo", GRAPHICS),
    "clock_max_mhz": call("nvmlDeviceGetMaxClockInfo", GRAPHICS),
    "app_clock_mhz": call("nvmlDeviceGetApplicationsClock", GRAPHICS),
    "app_clock_default_mhz": call("nvmlDeviceGetDefaultApplicationsClock", GRAPHICS),
    "persistence_mode": call("nvmlDeviceGetPersistenceMode", of=bool),
    "mig_mode mig_pending": call("nvmlDeviceGetMigMode", of=_flags),
    "compute_mode": call("nvmlDeviceGetComputeMode"),
    "memory_used_mib memory_total_mib": newest(  # the newer call leaves out what the driver keeps for itself
        lambda handle: _memory(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)),
        call("nvmlDeviceGetMemoryInfo", of=_memory),
    ),
    "utilization_percent": call("nvmlDeviceGetUtilizationRates", of=lambda rates: rates.gpu),
}
