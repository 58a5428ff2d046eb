"""Healthy nodes: what a p5.48xlarge and a CPU node of a Slurm cluster on EC2 look like from inside."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.testbed import sysfs
from tests.testbed.buses import EFA_BUSES, GPU_BUSES, NVSWITCH_BUSES
from tests.testbed.image import NOT_FOUND, Content, Device, File, NodeImage, Service
from tests.testbed.kernel_log import ec2_lines, kmsg, p5_lines

DRIVER = "580.126.09"
KERNEL = "6.8.0-1021-aws"
EFA_BIN = "/opt/amazon/efa/bin"

OS_RELEASE = """PRETTY_NAME="Ubuntu 22.04.5 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
ID=ubuntu
ID_LIKE=debian
"""
FSTAB = """LABEL=cloudimg-rootfs\t/\t ext4\tdiscard,errors=remount-ro\t0 1
tmpfs\t/opt/dlami/scratch\ttmpfs\tsize=1g,mode=1777\t0 0
"""
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "gdrdrv", "efa", "ib_uverbs", "ib_core", "ena", "lustre")
SERVICES = {
    "slurmd": Service(),
    "munge": Service(),
    "containerd": Service(),
    "docker": Service(),
    "nvidia-fabricmanager": Service(),
    "nvidia-persistenced": Service(enabled="static"),
    "nvidia-dcgm": Service(),
    "dcgm": NOT_FOUND,
    "chrony": Service(),
    "ssh": Service(),
    "apt-daily": Service("loaded", "inactive", "dead", "static"),
}

# An idle H100 of a p5, as nvidia-smi of driver 590 shows one at rest; counters of a young node are zero.
GPU = """
[gpu {index}]
name = NVIDIA H100 80GB HBM3
uuid = {uuid}
serial = {serial}
vbios = 96.00.A5.00.01
pci = 0000:{bus:02x}:00.0
ecc_enabled = true
ecc_corrected_dram = 0
ecc_corrected_sram = 0
ecc_uncorrected_dram = 0
ecc_uncorrected_sram = 0
ecc_aggregate_corrected_dram = 0
ecc_aggregate_corrected_sram = 0
ecc_aggregate_uncorrected_dram = 0
ecc_aggregate_uncorrected_sram = 0
sram_threshold_exceeded = false
remap_pending = false
remap_failed = false
remapped_correctable = 0
remapped_uncorrectable = 0
remap_banks = 2560 0 0 0 0
recovery_action = 0
nvlinks = 18
fabric_state = 3
fabric_status = 0
fabric_health_mask = 0
fabric_clique = 0
fabric_cluster_uuid = 00000000-0000-0000-0000-000000000000
pcie_width = 16
pcie_width_max = 16
pcie_gen = 5
pcie_gen_max = 5
pcie_replays = 0
temperature_c = {temperature}
temperature_margin_c = {margin}
clocks_event_reasons = 0x1
power_limit_w = 700
power_limit_default_w = 700
persistence_mode = true
mig_mode = false
compute_mode = 0
memory_total_mib = 81559
memory_used_mib = 0
memory_reserved_mib = 479
utilization_percent = 0
processes =
"""


def healthy_p5(name: str = "gpu001") -> NodeImage:
    """A p5.48xlarge at rest, a day after its boot: 8 H100, 32 EFA; `name` gives its GPUs their identities."""
    gpu_link = (16, "32.0 GT/s PCIe")
    tree = sysfs.common(192) | sysfs.dmi("Amazon EC2", "p5.48xlarge")
    for module in MODULES:
        tree |= sysfs.module(module, DRIVER if module.startswith("nvidia") else "")
    for bus in GPU_BUSES:
        tree |= sysfs.pci_function(f"0000:{bus:02x}:00.0", "10de", "2330", "030200", "nvidia", link=gpu_link)
    for bus in NVSWITCH_BUSES:
        tree |= sysfs.pci_function(
            f"0000:{bus:02x}:00.0", "10de", "22a3", "068000", "nvidia-nvswitch", link=(2, "16.0 GT/s PCIe")
        )
    for number, bus in enumerate(EFA_BUSES):
        tree |= sysfs.efa_device(number, bus, "efa2")
    tree |= sysfs.pci_function("0000:00:04.0", "1d0f", "8061", "010802", "nvme")
    tree |= sysfs.pci_function("0000:00:05.0", "1d0f", "ec20", "020000", "ena")
    files: dict[str, Content] = {
        "/dev/kmsg": File(kmsg(p5_lines(DRIVER, KERNEL)), 0o600),
        **{f"/dev/infiniband/uverbs{number}": Device(231, 192 + number) for number in range(len(EFA_BUSES))},
    }
    return NodeImage(
        files=_common_files() | files,
        tools={f"{EFA_BIN}/fi_info": _tool("fi_info"), "nv-fabricmanager": _tool("nv-fabricmanager")},
        sys=tree,
        proc=_proc(memory_gib=2048),
        nvml=nvml_values(name),
        tmpfs={"/dev/shm": "1t", "/opt/dlami/scratch": "1g"},
        services=SERVICES,
        daemons={"slurmd": "unlimited", "containerd": "unlimited"},
    )


def healthy_cpu() -> NodeImage:
    """A c6i.32xlarge at rest: no GPU, no EFA."""
    tree = sysfs.common(128) | sysfs.dmi("Amazon EC2", "c6i.32xlarge")
    tree |= sysfs.module("ena") | sysfs.module("lustre")
    tree |= sysfs.pci_function("0000:00:04.0", "1d0f", "8061", "010802", "nvme")
    tree |= sysfs.pci_function("0000:00:05.0", "1d0f", "ec20", "020000", "ena")
    gpu_services = {"nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm"}
    files: dict[str, Content] = {"/dev/kmsg": File(kmsg(ec2_lines("c6i.32xlarge", KERNEL)), 0o600)}
    return NodeImage(
        files=_common_files() | files,
        sys=tree,
        proc=_proc(memory_gib=256),
        tmpfs={"/dev/shm": "128g", "/opt/dlami/scratch": "1g"},
        services={name: NOT_FOUND if name in gpu_services else unit for name, unit in SERVICES.items()},
        daemons={"slurmd": "unlimited", "containerd": "unlimited"},
    )


def nvml_values(node: str, gpus: int = 8) -> str:
    """What the fake NVML library answers with on a healthy node."""
    text = f"driver = {DRIVER}\nnvml = 13.{DRIVER}\ncuda = 13000\n"
    for index in range(gpus):
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}-gpu{index}")
        text += GPU.format(
            index=index,
            uuid=f"GPU-{identity}",
            serial=1650000000000 + identity.int % 10**9,
            bus=GPU_BUSES[index],
            temperature=33 + index % 4,
            margin=54 - index % 4,
        )
    return text


def _tool(name: str) -> str:
    return Path(__file__).with_name("tools").joinpath(name).read_text()


def _common_files() -> dict[str, Content]:
    return {"/etc/os-release": OS_RELEASE, "/etc/fstab": FSTAB}


def _proc(memory_gib: int) -> dict[str, Content]:
    total = memory_gib * 1024 * 1024 - 12_345_678  # what firmware and kernel keep is missing, as always
    meminfo = {"MemTotal": total, "MemFree": total - 30_000_000, "MemAvailable": total - 25_000_000}
    return {
        "uptime": "86400.50 16500000.00\n",
        "meminfo": "".join(f"{key + ':':<16}{kib:>8} kB\n" for key, kib in meminfo.items()),
        "sys/kernel/osrelease": f"{KERNEL}\n",
        "sys/kernel/random/boot_id": "3f1c9a52-6d0e-4b77-9c1d-5a2e8f704b16\n",
    }
