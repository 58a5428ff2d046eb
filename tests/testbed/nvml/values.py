"""Where a node has the fake NVML library, and a healthy GPU's answers: an H100 unless told otherwise."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library

Values = dict[str, object]

NONE = "error NOT_SUPPORTED"
ECC = [
    f"ecc_{life}{kind}_{where}"
    for life in ("", "aggregate_")
    for kind in ("corrected", "uncorrected")
    for where in ("dram", "sram")
]
# An idle H100 of a p5, as nvidia-smi of driver 590 shows it; a young node's counters are zero.
H100: Values = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.A5.00.01",
    "inforom": "G520.0200.00.05",
    "inforom_valid": True,
    "ecc_enabled": True,
    **dict.fromkeys(ECC, 0),
    "sram_threshold_exceeded": False,
    "remap_pending": False,
    "remap_failed": False,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remap_banks": "2560 0 0 0 0",
    "memory_unrepairable": False,
    "channel_repair_pending": False,
    "tpc_repair_pending": False,
    "recovery_action": 0,
    "nvlinks": 18,
    "fabric_state": 3,
    "fabric_status": 0,
    "fabric_health_mask": 0,
    "fabric_clique": 0,
    "fabric_cluster_uuid": "00000000-0000-0000-0000-000000000000",
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_replays": 0,
    "clocks_event_reasons": "0x1",
    "power_w": 71,
    "power_limit_w": 700,
    "clock_mhz": 345,
    "clock_max_mhz": 1980,
    "app_clock_mhz": 1980,
    "app_clock_default_mhz": 1980,
    "persistence_mode": True,
    "mig_mode": False,
    "compute_mode": 0,
    "memory_total_mib": 81559,
    "memory_used_mib": 0,
    "memory_reserved_mib": 479,
    "utilization_percent": 0,
    "processes": "",
}
# Since Blackwell, NVLink errors are fields, and the fabric's health is reported: every field of its mask is good.
BLACKWELL: Values = {"nvlink_version": 5, "fabric_health_mask": 0x1AA, "fabric_health_summary": 1}


def gpu_lines(node: str, index: int, address: str, values: Values) -> str:
    """One GPU's part of the file: PCI address, identity, and differences from an H100."""
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}-gpu{index}")
    own = {"uuid": f"GPU-{identity}", "serial": 1650000000000 + identity.int % 10**9, "pci": address}
    of_gpu = {**H100, **own, **values}
    of_gpu.setdefault("power_limit_default_w", of_gpu["power_limit_w"])
    of_gpu["pcie_gen_max"] = max(of_gpu["pcie_gen"], values.get("pcie_gen_max", 0))  # type: ignore[call-overload]
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in of_gpu.items()]
    return "\n".join([f"[gpu {index}]", *lines]) + "\n"


SONAME = "libnvidia-ml.so.1"
VALUES_PATH = "/run/fake-nvml.txt"  # the library reads its answers here
SOURCES = tuple(Path(__file__).with_name(name) for name in ("fake_nvml.c", "gpm.h", "links.h", "repair.h", "values.h"))
LIBRARY_PATH = f"{LIBRARIES}/{SONAME}"


def fake_nvml(without: tuple[str, ...] = ()) -> bytes:
    """The shared library, `without` functions that an older driver does not have."""
    return shared_library(SOURCES[0], SONAME, without)


def answer_now(root: Path, text: str) -> None:
    """Change the answers of the library on the node at `root`, including for programs that have it loaded."""
    values = root / VALUES_PATH.lstrip("/")
    new = values.with_suffix(".new")
    new.write_text(text)
    new.replace(values)
