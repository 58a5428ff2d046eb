"""Healthy nodes: a p5.48xlarge and a CPU node of a Slurm cluster on EC2, as seen from inside."""

from __future__ import annotations

from pathlib import Path

from tests.testbed import efa, host, imds, ioctls, lustre, nvme, software, sysfs
from tests.testbed.image import NOT_FOUND, OPENS, Content, File, NodeImage, Service
from tests.testbed.kernel_log import ec2_lines, kmsg, p5_lines
from tests.testbed.nvml.values import Values, gpu_lines
from tests.testbed.pci import EFA_BUSES, GPU_BUSES, NVSWITCH_BUSES

DRIVER = "580.126.09"
BOOT_ID = "3f1c9a52-6d0e-4b77-9c1d-5a2e8f704b16"
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
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
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


def healthy_p5(name: str = "gpu001") -> NodeImage:
    """A p5.48xlarge at rest a day after boot: 8 H100, 32 EFA; `name` determines its GPUs' identities."""
    gpu_link = (16, "32.0 GT/s PCIe")
    tree = sysfs.common(192) | sysfs.dmi("Amazon EC2", "p5.48xlarge") | host.processors_sys(192, sockets=2)
    tree |= host.memory_sys(_memory_kib(2048), nodes=2, reserved_pages=5128)
    for module in MODULES:
        tree |= sysfs.module(module, DRIVER if module.startswith("nvidia") else "")
    for bus in GPU_BUSES:
        tree |= sysfs.pci_function(f"0000:{bus:02x}:00.0", "10de", "2330", "030200", "nvidia", link=gpu_link)
    for bus in NVSWITCH_BUSES:
        tree |= sysfs.pci_function(
            f"0000:{bus:02x}:00.0", "10de", "22a3", "068000", "nvidia-nvswitch", link=(2, "16.0 GT/s PCIe")
        )
    for number, bus in enumerate(EFA_BUSES):
        tree |= sysfs.efa_device(number, bus, "efa2") | efa.workings(bus)
    tree |= sysfs.pci_function("0000:00:04.0", "1d0f", "8061", "010802", "nvme")
    tree |= nvme.root_disk() | nvme.local_disks(8) | lustre.client_files() | lustre.mounted_files()
    tree |= sysfs.pci_function("0000:00:05.0", "1d0f", "ec20", "020000", "ena") | efa.ec2_interfaces()
    files: dict[str, Content] = {
        "/etc/fstab": FSTAB + lustre.FSTAB,
        **imds.imds_files("p5.48xlarge"),
        **ioctls.ena_counters("ens32"),
        **ioctls.ebs_volume("nvme0"),
        "/dev/kmsg": File(kmsg(p5_lines(DRIVER, KERNEL)), 0o600),
        **{f"/dev/infiniband/uverbs{number}": OPENS for number in range(len(EFA_BUSES))},
        **software.device_files(len(GPU_BUSES)),
    }
    return NodeImage(
        files=_common_files() | software.files(DRIVER) | files,
        tools={f"{EFA_BIN}/fi_info": _tool("fi_info"), "nv-fabricmanager": _tool("nv-fabricmanager")} | software.TOOLS,
        sys=tree | software.SYS,
        proc=_proc(memory_gib=2048) | software.PROC | host.processors_proc(192, 2, host.EPYC),
        nvml=nvml_values(name),
        tmpfs={"/dev/shm": "1t", "/opt/dlami/scratch": "1g"},
        mounted=(nvme.MOUNT, lustre.MOUNT),
        services=SERVICES,
        daemons={"slurmd": "unlimited", "containerd": "unlimited", imds.DAEMON: ""},
        limits=host.LIMITS,
    )


def healthy_cpu(instance_type: str = "c6i.32xlarge", cpus: int = 128, memory_gib: int = 256) -> NodeImage:
    """A c6i.32xlarge, or another type, at rest: no GPU, no EFA."""
    tree = sysfs.common(cpus) | sysfs.dmi("Amazon EC2", instance_type) | host.processors_sys(cpus, sockets=2)
    tree |= host.memory_sys(_memory_kib(memory_gib), nodes=2)
    tree |= sysfs.module("ena") | sysfs.module("lustre")
    tree |= sysfs.pci_function("0000:00:04.0", "1d0f", "8061", "010802", "nvme")
    tree |= nvme.root_disk() | lustre.client_files()
    tree |= sysfs.pci_function("0000:00:05.0", "1d0f", "ec20", "020000", "ena") | efa.ec2_interfaces()
    gpu_services = {"nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm"}
    files: dict[str, Content] = {"/dev/kmsg": File(kmsg(ec2_lines(instance_type, KERNEL)), 0o600)}
    files |= imds.imds_files(instance_type) | ioctls.ena_counters("ens32") | ioctls.ebs_volume("nvme0")
    return NodeImage(
        files=_common_files() | software.files() | files,
        sys=tree,
        proc=_proc(memory_gib) | software.PROC | host.processors_proc(cpus, 2, host.XEON),
        tmpfs={"/dev/shm": f"{memory_gib // 2}g", "/opt/dlami/scratch": "1g"},
        services={name: NOT_FOUND if name in gpu_services else unit for name, unit in SERVICES.items()},
        daemons={"slurmd": "unlimited", "containerd": "unlimited", imds.DAEMON: ""},
        limits=host.LIMITS,
    )


def nvml_values(node: str, gpus: int = 8) -> str:
    """The fake NVML library's answers on a healthy node."""
    text = f"driver = {DRIVER}\nnvml = 13.{DRIVER}\ncuda = 13000\n"
    for index in range(gpus):
        warmth: Values = {"temperature_c": 33 + index % 4, "temperature_margin_c": 54 - index % 4}
        text += gpu_lines(node, index, f"0000:{GPU_BUSES[index]:02x}:00.0", warmth)
    return text


def _tool(name: str) -> str:
    return Path(__file__).with_name("tools").joinpath(name).read_text()


def _common_files() -> dict[str, Content]:
    files: dict[str, Content] = {"/etc/hosts": HOSTS, "/etc/resolv.conf": "# no nameserver: nobody here may be asked\n"}
    return files | {"/etc/os-release": OS_RELEASE, "/etc/fstab": FSTAB} | host.host_files(KERNEL)


def _proc(memory_gib: int) -> dict[str, Content]:
    total = _memory_kib(memory_gib)
    meminfo = {"MemTotal": total, "MemFree": total - 30_000_000, "MemAvailable": total - 25_000_000}
    meminfo |= {"SwapTotal": 0, "SwapFree": 0, "HardwareCorrupted": 0}
    return {
        "uptime": "86400.50 16500000.00\n",
        "meminfo": "".join(f"{key + ':':<16}{kib:>8} kB\n" for key, kib in meminfo.items()),
        "loadavg": "0.52 0.58 0.59 2/4312 98765\n",
        "sys/fs/file-nr": "9728\t0\t9223372036854775807\n",
        "sys/kernel/pid_max": "4194304\n",
        "sys/kernel/threads-max": "16511894\n",
        "sys/kernel/osrelease": f"{KERNEL}\n",
        "sys/kernel/random/boot_id": f"{BOOT_ID}\n",
    }


def _memory_kib(gib: int) -> int:
    return gib * 1024 * 1024 * 984 // 1000  # firmware and kernel reserve some, as always
