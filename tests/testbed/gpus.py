"""GPUs of healthy nodes, model by model, as answers of the fake NVML library.

The numbers in a row come from the capture it names (folders of the shared samples), so that a check that complains
about one complains about a healthy GPU. Rows without a capture use the model's published size and power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterproof.plugins.catalog import PACKAGED
from tests.testbed import nvme, software, sysfs
from tests.testbed.efa import INSTALLED_PAGES, with_efa
from tests.testbed.healthy import SERVICES, healthy_cpu
from tests.testbed.host_faults import with_huge_pages
from tests.testbed.image import NodeImage, Service
from tests.testbed.imex import with_imex
from tests.testbed.nvml.values import BLACKWELL, NONE, Values, gpu_lines
from tests.testbed.pci import GPU_BUSES, NVSWITCH_BUSES

RATES = {  # port rates in sysfs's words, by Gb/s
    50: "50 Gb/sec (1X HDR)",
    100: "100 Gb/sec (4X EDR)",
    200: "200 Gb/sec (4X HDR)",
    400: "400 Gb/sec (4X NDR)",
}
TOOLKITS = {"515": "11.7", "535": "12.2", "570": "12.8"}  # CUDA version by driver branch
FIRST_NVSWITCH_BUS = NVSWITCH_BUSES[0]
FABRIC_MANAGER = Path(__file__).with_name("tools") / "nv-fabricmanager"
CARD: Values = dict.fromkeys(("nvlinks", "fabric_state"), NONE)
NO_MIG: Values = {"mig_mode": NONE}
NO_FABRIC: Values = {"fabric_state": NONE}
NO_MARGIN: Values = {"temperature_margin_c": NONE}
BEFORE_AMPERE: Values = (
    NO_MIG
    | NO_MARGIN
    | {"retired_pages_single_bit": 0, "retired_pages_double_bit": 0, "retired_pages_pending": False}
    | dict.fromkeys(("remap_pending", "remap_failed", "remap_banks", "sram_threshold_exceeded"), NONE)
    | dict.fromkeys(("memory_unrepairable", "channel_repair_pending", "tpc_repair_pending"), NONE)
)
DRIVER_515 = ",".join(  # NVML functions added by later drivers
    (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    )
)


@dataclass(frozen=True)
class Model:
    """One model, in the instance type that has it."""

    instance_type: str
    device: str  # PCI device id
    driver: str
    values: Values
    loaded: Values
    gpus: int = 8
    is_open: bool = True  # which of NVIDIA's kernel modules EC2's images load
    without: str = ""  # NVML functions that the driver does not have yet
    domains: tuple[int, ...] = field(default=())  # PCI domains, if each GPU has its own


MODELS: Mapping[str, Model] = {
    # no capture of a V100: retired pages as nvidia-smi-q-xml/netdata-tesla-p100.xml has them
    "V100": Model(
        "p3dn.24xlarge",
        "1db5",
        "535.183.01",
        BEFORE_AMPERE
        | NO_FABRIC
        | {"name": "Tesla V100-SXM2-32GB", "vbios": "88.00.80.00.01", "nvlinks": 6, "recovery_action": NONE}
        | {"memory_total_mib": 32768, "memory_reserved_mib": 270, "power_limit_w": 300, "pcie_gen": 3}
        | {"temperature_c": 38},
        {"memory_used_mib": 30100, "utilization_percent": 99, "temperature_c": 66},
        is_open=False,
    ),
    # nvidia-smi-q-xml/telegraf-tesla-t4.xml; loaded: its memory
    "T4": Model(
        "g4dn.metal",
        "1eb8",
        "515.105.01",
        BEFORE_AMPERE
        | CARD
        | {"name": "Tesla T4", "vbios": "90.04.84.00.06", "recovery_action": NONE}
        | {"memory_total_mib": 15360, "memory_reserved_mib": 388, "power_limit_w": 70}
        | {"pcie_gen": 3, "pcie_width": 8, "temperature_c": 40},
        {"memory_used_mib": 1032, "utilization_percent": 97, "temperature_c": 71},
        is_open=False,
        without=DRIVER_515,
    ),
    # nvidia-smi-q-xml/a100-hw.xml
    "A100-40": Model(
        "p4d.24xlarge",
        "20b0",
        "570.148.08",
        NO_FABRIC
        | NO_MARGIN
        | {"name": "NVIDIA A100-SXM4-40GB", "vbios": "92.00.45.00.03", "nvlinks": 12}
        | {"memory_total_mib": 40960, "memory_reserved_mib": 518, "power_limit_w": 400, "pcie_gen": 4}
        | {"temperature_c": 33, "remap_banks": "640 0 0 0 0"},
        {"memory_used_mib": 38000, "utilization_percent": 100, "temperature_c": 64},
    ),
    # nvidia-smi-q-xml/telegraf-a100-sxm4-v12.xml, nvidia-smi-nvlink/awsome-p4de-s.txt; banks as of the row above
    "A100-80": Model(
        "p4de.24xlarge",
        "20b2",
        "535.54.03",
        NO_FABRIC
        | NO_MARGIN
        | {"name": "NVIDIA A100-SXM4-80GB", "vbios": "92.00.36.00.02", "nvlinks": 12, "recovery_action": NONE}
        | {"memory_total_mib": 81920, "memory_reserved_mib": 869, "power_limit_w": 500, "pcie_gen": 4}
        | {"temperature_c": 27, "remap_banks": "640 0 0 0 0"},
        {"memory_used_mib": 78000, "utilization_percent": 100, "temperature_c": 62},
    ),
    # nvidia-smi-q/gpud-a10-535.129-remap-pending.txt without its fault; name, size and power of the A10G
    "A10G": Model(
        "g5.48xlarge",
        "2237",
        "535.129.03",
        CARD
        | NO_MIG
        | NO_MARGIN
        | {"name": "NVIDIA A10G", "vbios": "94.02.5C.00.04", "recovery_action": NONE, "sram_threshold_exceeded": NONE}
        | {"memory_total_mib": 23028, "memory_used_mib": 4, "memory_reserved_mib": 512, "power_limit_w": 300}
        | {"pcie_gen": 4, "temperature_c": 33, "remap_banks": "192 0 0 0 0"},
        {"memory_used_mib": 21000, "utilization_percent": 98, "temperature_c": 62},
    ),
    # no capture of an L4
    "L4": Model(
        "g6.48xlarge",
        "27b8",
        "570.148.08",
        CARD
        | NO_MIG
        | {"name": "NVIDIA L4", "vbios": "95.04.29.00.06", "memory_total_mib": 23034, "memory_reserved_mib": 483}
        | {"power_limit_w": 72, "pcie_gen": 4, "pcie_width": 8, "remap_banks": "96 0 0 0 0"}
        | {"temperature_c": 35, "temperature_margin_c": 50},
        {"memory_used_mib": 21000, "utilization_percent": 98, "temperature_c": 70, "temperature_margin_c": 15},
    ),
    # nvidia-smi-q-xml/l40s-hw.xml; loaded: nvidia-smi-q/l40s-595-load.txt
    "L40S": Model(
        "g6e.48xlarge",
        "26b9",
        "595.91.07",
        CARD
        | NO_MIG
        | {"name": "NVIDIA L40S", "vbios": "95.02.66.00.15", "memory_total_mib": 46068, "memory_reserved_mib": 609}
        | {"power_limit_w": 350, "pcie_gen": 4, "pcie_width": 8, "remap_banks": "192 0 0 0 0"}
        | {"temperature_c": 29, "temperature_margin_c": 59},
        {"memory_used_mib": 1235, "utilization_percent": 9, "temperature_c": 54, "temperature_margin_c": 34},
    ),
    # nvidia-smi-query-gpu/h100-allfields-idle.csv, replays of nvidia-smi-q-xml/h100-hw.xml;
    # loaded: nvidia-smi-q/h100-590-load.txt
    "H100": Model(
        "p5.48xlarge",
        "2330",
        "590.48.01",
        {"name": "NVIDIA H100 80GB HBM3", "vbios": "96.00.A5.00.01", "memory_total_mib": 81559}
        | {"memory_reserved_mib": 479, "power_limit_w": 700, "remap_banks": "2560 0 0 0 0", "pcie_replays": 174}
        | {"temperature_c": 41, "temperature_margin_c": 46},
        {"memory_used_mib": 19818, "utilization_percent": 100, "temperature_c": 59, "temperature_margin_c": 26},
    ),
    # nvidia-smi-query-gpu/h200-allfields-idle.csv and h200-allfields-load.csv
    "H200": Model(
        "p5en.48xlarge",
        "2335",
        "590.48.01",
        {"name": "NVIDIA H200", "vbios": "96.00.A5.00.03", "memory_total_mib": 143771, "memory_reserved_mib": 614}
        | {"power_limit_w": 700, "remap_banks": "3072 0 0 0 0", "temperature_c": 28, "temperature_margin_c": 59},
        {"memory_used_mib": 32362, "utilization_percent": 100, "temperature_c": 52, "temperature_margin_c": 35},
    ),
    # name: nvidia-smi-L/gke-b200.txt; no capture of its values
    "B200": Model(
        "p6-b200.48xlarge",
        "2901",
        "580.126.09",
        BLACKWELL
        | {"name": "NVIDIA B200", "vbios": "97.00.88.00.0F", "memory_total_mib": 183359, "memory_reserved_mib": 693}
        | {"power_limit_w": 1000, "remap_banks": "5952 0 0 0 0", "temperature_c": 30, "temperature_margin_c": 60},
        {"memory_used_mib": 170000, "utilization_percent": 100, "temperature_c": 58, "temperature_margin_c": 32},
    ),
    # nvidia-smi-q-xml/mock-gb200-throttle-counters.xml, which is NVIDIA's mock and no capture
    "GB200": Model(
        "p6e-gb200.36xlarge",
        "2941",
        "580.65.06",
        BLACKWELL
        | {"name": "NVIDIA GB200", "vbios": "96.00.9E.00.01", "memory_total_mib": 196608, "memory_reserved_mib": 1024}
        | {"power_limit_w": 1000, "pcie_gen": 6, "remap_banks": "3072 0 0 0 0"}
        | {"fabric_cluster_uuid": "00000000-0000-0000-0000-000000000001"}
        | {"temperature_c": 36, "temperature_margin_c": 54},
        {"memory_used_mib": 180000, "utilization_percent": 100, "temperature_c": 55, "temperature_margin_c": 35},
        gpus=4,
        domains=(0x08, 0x09, 0x18, 0x19),
    ),
    # nvidia-smi-q-xml/gb300-hw.xml, two GPUs of a board with one serial among them
    "GB300": Model(
        "p6e-gb300r.36xlarge",
        "31c2",
        "580.173.02",
        BLACKWELL
        | {"name": "NVIDIA GB300", "vbios": "97.10.4A.00.1A", "memory_total_mib": 284208, "memory_reserved_mib": 947}
        | {"power_limit_w": 1400, "pcie_gen": 6, "remap_banks": "5952 0 0 0 0"}
        | {"fabric_clique": 32766, "fabric_cluster_uuid": "00000001-0000-0000-0000-000000000001"}
        | {"temperature_c": 38, "temperature_margin_c": 49},
        {"memory_used_mib": 270000, "utilization_percent": 100, "temperature_c": 60, "temperature_margin_c": 27},
        gpus=4,
        domains=(0x08, 0x09, 0x18, 0x19),
    ),
}
# nvidia-smi-query-gpu/h100-mig-allfields-idle.csv, nvidia-smi-nvlink/h100-mig-s.txt
PARTITIONED: Values = {"mig_mode": True, "memory_used_mib": 59} | dict.fromkeys(
    ("nvlinks", "utilization_percent", "remap_pending", "remap_failed"), NONE
)
BUSY: Values = {"clocks_event_reasons": "0x0"}


def healthy_gpu_node(model: str, *, mig: bool = False, loaded: bool = False, gpus: int = 0) -> NodeImage:
    """An EC2 node with these GPUs and no fault in them; it has no EFA devices.

    `mig`: partitioned; `loaded`: a program computes on each; `gpus`: this many instead of the type's.
    """
    row = MODELS[model]
    values = row.values | (PARTITIONED if mig else {}) | (BUSY | row.loaded | {"processes": "1:900"} if loaded else {})
    addresses = _addresses(row, gpus or row.gpus)
    text = f"driver = {row.driver}\ncuda = 13000\nwithout = {row.without}\n"
    for index, address in enumerate(addresses):
        board = index // 2 if row.domains else index
        text += gpu_lines(f"{model}-gpu", index, address, values | {"serial": 1650000000001 + board})
    return _node(row, addresses, text)


def _addresses(row: Model, gpus: int) -> list[str]:
    if row.domains:
        return [f"{domain:04x}:06:00.0" for domain in row.domains]
    buses = GPU_BUSES if gpus <= len(GPU_BUSES) else range(0x10, 0x10 + gpus)
    return [f"0000:{bus:02x}:00.0" for bus in buses[:gpus]]


def _node(row: Model, addresses: list[str], nvml: str) -> NodeImage:
    has = PACKAGED.instance_type(row.instance_type)
    assert has
    base = healthy_cpu(row.instance_type, has.vcpus or 144, (has.memory_mib or 983_040) // 1024)
    tree = {**base.sys, **software.SYS, "module/nvidia/taint": "OE\n" if row.is_open else "POE\n"}
    for module in ("nvidia", "nvidia_uvm", "nvidia_modeset", "gdrdrv"):
        tree |= sysfs.module(module, row.driver if module.startswith("nvidia") else "")
    link = (8 if row.values.get("pcie_width") == 8 else 16, "16.0 GT/s PCIe")
    for address in addresses:
        tree |= sysfs.pci_function(address, "10de", row.device, "030200", "nvidia", link=link)
    for bus in range(FIRST_NVSWITCH_BUS, FIRST_NVSWITCH_BUS + (has.nvswitches or 0)):
        tree |= sysfs.pci_function(f"0000:{bus:02x}:00.0", "10de", "22a3", "068000", "nvidia-nvswitch")
    image = replace(
        base,
        files=base.files
        | software.files(row.driver, TOOLKITS.get(row.driver[:3], software.TOOLKIT_VERSION))
        | software.device_files(len(addresses)),
        tools=base.tools | software.TOOLS | {"nv-fabricmanager": FABRIC_MANAGER.read_text()},
        sys=tree,
        proc=base.proc | ({"sys/kernel/numa_balancing": "0\n"} if has.numa_balancing is False else {}),
        nvml=nvml,
        services=SERVICES | ({"nvidia-imex": Service()} if row.domains else {}),
    )
    image = with_imex(image, row.driver) if row.domains else image
    image = with_efa(image, has.efa or 0, RATES.get(has.efa_gbps or 0, RATES[100]))
    image = with_huge_pages(image, INSTALLED_PAGES, INSTALLED_PAGES) if has.efa else image
    return nvme.with_scratch(image, has.nvme) if has.nvme else image
