"""The table of faults: each is put into an otherwise healthy node, and changes just the verdicts that it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import pytest

from clusterproof.plugins.suite import all_checks
from clusterproof.plugins.verdict import Verdict
from tests.testbed import sysfs
from tests.testbed.image import Link, NodeImage
from tests.testbed.needs import needs_frozen, needs_hung_mount
from tests.testbed.node import (
    healthy_cpu,
    healthy_p5,
    with_file,
    with_frozen,
    with_full_root,
    with_hung_mount,
    with_kernel_line,
    with_line,
    with_memlock,
    with_nvml,
    with_service,
    with_stuck_nvml,
    with_tmpfs,
    with_tool,
    without_efa,
    without_file,
    without_libfabric_domain,
    without_module,
    without_pci,
    without_tmpfs,
)

FAIL, CONCERN, INCOMPLETE, NA = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
LUSTRE = "10.0.0.9@tcp:/abcdefgh /fsx lustre defaults,noatime,flock,_netdev 0 0"
XID = "NVRM: Xid (PCI:0000:{bus}:00): {text}"

# A process that no signal ends, and that last ran (says /proc) in the machine's first second.
STUCK_LONG_AGO = """
sh -c 'echo >/stuck/file' &
while ! grep -q '^State:.D' /proc/$!/status; do :; done
sed 's/^se.exec_start .*/se.exec_start : 1000.0/' /proc/$!/sched >/run/sched
mount --bind /run/sched /proc/$!/sched
echo ready
wait
"""

ZOMBIES = """exec python3 -c 'import os, time
for _ in range(1001): os.fork() or os._exit(0)
print(flush=True); time.sleep(60)'"""

# What cannot be known of one GPU that does not answer, or of all while the driver does not.
OF_A_GPU = {
    "gpu.recovery_action": INCOMPLETE,
    "gpu.no_uncorrected_ecc": INCOMPLETE,
    "gpu.row_remap": INCOMPLETE,
    "gpu.nvlink_active": INCOMPLETE,
    "gpu.fabric_state": INCOMPLETE,
    "gpu.pcie_link": INCOMPLETE,
    "gpu.no_throttle": INCOMPLETE,
    "gpu.no_leftover_processes": INCOMPLETE,
    "gpu.sram_threshold": INCOMPLETE,
    "gpu.corrected_ecc_rate": INCOMPLETE,
    "gpu.temperature": INCOMPLETE,
    "gpu.power_limit": INCOMPLETE,
    "gpu.persistence_mode": INCOMPLETE,
    "gpu.compute_mode": INCOMPLETE,
    "gpu.ecc_mode": INCOMPLETE,
    "gpu.mig_uniform": INCOMPLETE,
    "gpu.vbios_uniform": INCOMPLETE,
}
OF_THE_DRIVER = OF_A_GPU | {
    "gpu.gpu_answers": INCOMPLETE,
    "gpu.gpu_count": INCOMPLETE,
    "gpu.fabric_manager": INCOMPLETE,
}


def p5() -> NodeImage:
    """The node that every fault of a p5 is put into."""
    return healthy_p5()


def infiniband() -> NodeImage:
    """A GPU-less node with one ConnectX port."""
    image = healthy_cpu()
    address, name = "0000:17:00.0", "mlx5_0"
    here = f"devices/pci0000:00/{address}/infiniband/{name}"
    tree = sysfs.pci_function(address, "15b3", "1021", "020700", "mlx5_core") | {
        f"class/infiniband/{name}": Link(f"../../{here}"),
        f"{here}/device": Link(f"../../../{address}"),
        f"{here}/ports/1/state": "4: ACTIVE\n",
        f"{here}/ports/1/phys_state": "5: LinkUp\n",
        f"{here}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        f"{here}/ports/1/link_layer": "InfiniBand\n",
    }
    return replace(image, sys=image.sys | tree)


IB_PORT = "/sys/class/infiniband/mlx5_0/ports/1"


@dataclass(frozen=True)
class Fault:
    """One fault, every verdict that it changes from the healthy node's, and words that the first one's message has."""

    name: str
    put: Callable[[NodeImage], NodeImage]
    expect: Mapping[str, Verdict]
    words: str
    base: Callable[[], NodeImage] = p5
    beside: str = ""
    occasion: str = "preflight"
    leaf_s: float = 5.0
    marks: tuple[pytest.MarkDecorator, ...] = field(default=())


FAULTS = (
    Fault(
        "a node that answers rubbish",
        lambda image: with_tool(image, "python3", "#!/bin/sh\ncat >/dev/null\nhead -c 500 /dev/urandom\n"),
        {"node.reachable": FAIL, **{name: INCOMPLETE for name in all_checks() if name != "node.reachable"}},
        "garbled",
    ),
    Fault(
        "a driver that hangs in the kernel",
        lambda image: with_stuck_nvml(image, gpu=5),
        {"node.evidence_complete": FAIL, "gpu.driver_answers_in_time": FAIL, **OF_THE_DRIVER},
        "nvml",
        leaf_s=0.5,
        marks=(needs_frozen,),
    ),
    Fault(
        "a driver that does not answer",
        lambda image: with_nvml(image, gpu=5, hang="memory_info"),
        {"node.evidence_complete": CONCERN, "gpu.driver_answers_in_time": FAIL, **OF_THE_DRIVER},
        "nvml",
        leaf_s=0.5,
    ),
    Fault(
        "a driver that is slow to start",
        lambda image: with_nvml(image, slow="init 5.2"),
        {"gpu.driver_answers_in_time": CONCERN},
        "5.2 s",
    ),
    Fault(
        "a node that has just booted",
        lambda image: with_file(image, "/proc/uptime", "61.20 100.00\n"),
        {"node.uptime_settled": INCOMPLETE},
        "up for 61 s",
    ),
    Fault(
        "a GPU that failed before the driver saw it",
        lambda image: with_nvml(without_pci(image, "0000:53:00.0"), count=7),
        {"gpu.gpu_count": FAIL},
        "NVML counts 7 GPUs, 7 on the PCI bus; expected 8",
    ),
    Fault(
        "a GPU that the driver lost from its count",
        lambda image: with_nvml(image, count=7),
        {"gpu.gpu_count": FAIL},
        "8 on the PCI bus, so the driver lost some",
    ),
    Fault(
        "a driver that counts no GPU at all",
        lambda image: with_nvml(image, count=0),
        {"gpu.gpu_count": FAIL, "gpu.gpu_answers": INCOMPLETE, **OF_A_GPU},
        "NVML counts 0 GPUs, 8 on the PCI bus",
    ),
    Fault(
        "GPUs short while the node settles",
        lambda image: with_file(with_nvml(image, count=7), "/proc/uptime", "61.20 100.00\n"),
        {"gpu.gpu_count": INCOMPLETE, "node.uptime_settled": INCOMPLETE},
        "61 s after boot",
    ),
    Fault(
        "a driver that is not loaded",
        lambda image: with_nvml(image, init="error DRIVER_NOT_LOADED"),
        {
            "gpu.gpu_count": FAIL,
            **{name: verdict for name, verdict in OF_THE_DRIVER.items() if name != "gpu.gpu_count"},
            "gpu.driver_answers_in_time": INCOMPLETE,
        },
        "DRIVER_NOT_LOADED",
    ),
    Fault(
        "a node without the NVML library",
        lambda image: replace(image, nvml=None),
        {
            "gpu.gpu_count": FAIL,
            **{name: verdict for name, verdict in OF_THE_DRIVER.items() if name != "gpu.gpu_count"},
            "gpu.driver_answers_in_time": INCOMPLETE,
        },
        "no NVML library",
    ),
    Fault(
        "a GPU that is lost",
        lambda image: with_nvml(image, gpu=3, handle="error GPU_IS_LOST"),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 3: the driver says GPU_IS_LOST",
    ),
    Fault(
        "two GPUs lost at once",
        lambda image: with_nvml(
            with_nvml(image, gpu=3, handle="error GPU_IS_LOST"), gpu=6, handle="error RESET_REQUIRED"
        ),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 6: the driver says RESET_REQUIRED",
    ),
    Fault(
        "a GPU that asks for a reset",
        lambda image: with_nvml(image, gpu=2, recovery_action=1),
        {"gpu.recovery_action": FAIL},
        "GPU 2: the driver asks for GPU reset",
    ),
    Fault(
        "uncorrected errors in DRAM",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_dram=14),
        {"gpu.no_uncorrected_ecc": FAIL},
        "GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0",
    ),
    Fault(
        "uncorrected errors in SRAM while DRAM cannot be read",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_sram=2, ecc_uncorrected_dram="error UNKNOWN"),
        {"gpu.no_uncorrected_ecc": FAIL},
        "2 in SRAM",
    ),
    Fault(
        "an ECC counter that cannot be read",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_dram="error UNKNOWN"),
        {"gpu.no_uncorrected_ecc": INCOMPLETE},
        "UNKNOWN",
    ),
    Fault(
        "an ECC error on one GPU and an unreadable counter on another",
        lambda image: with_nvml(
            with_nvml(image, gpu=1, ecc_uncorrected_dram="error UNKNOWN"), gpu=6, ecc_uncorrected_dram=3
        ),
        {"gpu.no_uncorrected_ecc": FAIL},
        "GPU 6: uncorrected ECC errors: 3 in DRAM",
    ),
    Fault(
        "ECC switched off",
        lambda image: with_nvml(
            image,
            gpu=0,
            ecc_enabled=False,
            ecc_uncorrected_dram="error NOT_SUPPORTED",
            ecc_uncorrected_sram="error NOT_SUPPORTED",
        ),
        {"gpu.no_uncorrected_ecc": CONCERN, "gpu.ecc_mode": CONCERN},
        "ECC is disabled",
    ),
    Fault(
        "a row remapping that is pending",
        lambda image: with_nvml(image, gpu=4, remap_pending=True),
        {"gpu.row_remap": FAIL},
        "GPU 4: row remapping is pending",
    ),
    Fault(
        "a row remapping that is pending before a job",
        lambda image: with_nvml(image, gpu=4, remap_pending=True),
        {"gpu.row_remap": CONCERN},
        "pending",
        occasion="prolog",
    ),
    Fault(
        "a row remapping that failed",
        lambda image: with_nvml(image, gpu=4, remap_failed=True),
        {"gpu.row_remap": FAIL},
        "row remapping failed",
    ),
    Fault(
        "memory banks without spare rows",
        lambda image: with_nvml(image, gpu=4, remap_banks="2556 0 0 3 1"),
        {"gpu.row_remap": CONCERN},
        "4 memory banks",
    ),
    Fault(
        "an Xid of the hardware",
        lambda image: with_kernel_line(image, XID.format(bus="53", text="79, GPU has fallen off the bus.")),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:53:00.0",
    ),
    Fault(
        "an application's Xid that repeats",
        lambda image: with_kernel_line(
            with_kernel_line(image, XID.format(bus="53", text="31, pid=7, name=python3, MMU Fault"), at_s=70_000),
            XID.format(bus="53", text="31, pid=9, name=python3, MMU Fault"),
            at_s=80_000,
        ),
        {"gpu.no_xid": CONCERN},
        "Xid 31",
    ),
    Fault(
        "a kernel log that may not be read",
        lambda image: without_file(
            with_tool(
                with_tool(
                    image,
                    "dmesg",
                    "#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2\nexit 1\n",
                ),
                "journalctl",
                "#!/bin/sh\nexit 1\n",
            ),
            "/dev/kmsg",
        ),
        {"gpu.no_xid": INCOMPLETE, "gpu.no_sxid": INCOMPLETE, "host.d_state": INCOMPLETE},
        "kernel_log",
    ),
    Fault(
        "a fatal SXid",
        lambda image: with_kernel_line(
            image, "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
        ),
        {"gpu.no_sxid": FAIL},
        "SXid 20034",
    ),
    Fault(
        "an NVLink that is down",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 5": "inactive"}),
        {"gpu.nvlink_active": FAIL},
        "GPU 7: NVLink 5 inactive; expected 18",
    ),
    Fault(
        "NVLinks that are missing",
        lambda image: with_nvml(image, gpu=7, nvlinks=16),
        {"gpu.nvlink_active": FAIL},
        "16 NVLinks; expected 18",
    ),
    Fault(
        "an NVLink that is down beside one that cannot be read",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 2": "error UNKNOWN", "nvlink 5": "inactive"}),
        {"gpu.nvlink_active": FAIL},
        "NVLink 5 inactive",
    ),
    Fault(
        "a fabric that is not ready",
        lambda image: with_nvml(image, gpu=0, fabric_state=2),
        {"gpu.fabric_state": FAIL},
        "fabric state is in progress",
    ),
    Fault(
        "a fabric that failed",
        lambda image: with_nvml(image, gpu=0, fabric_status=999),
        {"gpu.fabric_state": FAIL},
        "fabric status is 999",
    ),
    Fault(
        "a fabric route that is unhealthy",
        lambda image: with_nvml(image, gpu=0, fabric_health_mask=0x10),
        {"gpu.fabric_state": FAIL},
        "route unhealthy",
    ),
    Fault(
        "fabric manager stopped",
        lambda image: with_service(image, "nvidia-fabricmanager", active="inactive", sub="dead", enabled="disabled"),
        {"gpu.fabric_manager": FAIL},
        "nvidia-fabricmanager is inactive",
    ),
    Fault(
        "fabric manager of another version",
        lambda image: with_tool(image, "nv-fabricmanager", "#!/bin/sh\necho 'Fabric Manager version is : 570.86.15'\n"),
        {"gpu.fabric_manager": FAIL},
        "fabric manager 570.86.15 with driver 580.126.09",
    ),
    Fault(
        "a fabric manager that does not tell its version",
        lambda image: without_file(image, "/usr/bin/nv-fabricmanager"),
        {"gpu.fabric_manager": INCOMPLETE},
        "nv-fabricmanager is not found",
    ),
    Fault(
        "a PCIe link that lost lanes",
        lambda image: with_nvml(image, gpu=2, pcie_width=8),
        {"gpu.pcie_link": FAIL},
        "GPU 2: PCIe x8; expected x16",
    ),
    Fault(
        "a PCIe link that is slow under load",
        lambda image: with_nvml(image, gpu=2, pcie_gen=3, utilization_percent=97),
        {"gpu.pcie_link": FAIL},
        "PCIe generation 3 under load; expected 5",
    ),
    Fault(
        "a hardware slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x48"),
        {"gpu.no_throttle": FAIL},
        "hardware thermal slowdown",
    ),
    Fault(
        "a software slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x20"),
        {"gpu.no_throttle": CONCERN},
        "software thermal slowdown",
    ),
    Fault(
        "a GPU that somebody holds",
        lambda image: with_nvml(image, gpu=2, processes="1:9000"),
        {"gpu.no_leftover_processes": CONCERN},
        "(pid 1)",
    ),
    Fault(
        "a GPU that somebody holds before a job",
        lambda image: with_nvml(image, gpu=2, processes="1:9000"),
        {"gpu.no_leftover_processes": FAIL},
        "of no job",
        occasion="prolog",
    ),
    Fault(
        "GPU memory that nobody owns",
        lambda image: with_nvml(image, gpu=2, memory_used_mib=30_000),
        {"gpu.no_leftover_processes": CONCERN},
        "30000 MiB",
    ),
    Fault(
        "an SRAM that meets the criterion for replacement",
        lambda image: with_nvml(image, gpu=2, sram_threshold_exceeded=True),
        {"gpu.sram_threshold": FAIL},
        "GPU 2: the SRAM error threshold is exceeded",
    ),
    Fault(
        "an SRAM that is close to the criterion for replacement",
        lambda image: with_nvml(image, gpu=2, ecc_aggregate_uncorrected_sram=5),
        {"gpu.sram_threshold": CONCERN},
        "5 uncorrected SRAM errors",
    ),
    Fault(
        "corrected errors by the thousand each second",
        lambda image: with_nvml(image, gpu=2, ecc_corrected_dram=400_000_000),
        {"gpu.corrected_ecc_rate": FAIL},
        "4630 corrected ECC errors a second",
    ),
    Fault(
        "corrected errors by the thousand each day",
        lambda image: with_nvml(image, gpu=2, ecc_corrected_dram=4000),
        {"gpu.corrected_ecc_rate": CONCERN},
        "4000 corrected ECC errors a day",
    ),
    Fault(
        "a GPU above its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=89, temperature_margin_c=-2),
        {"gpu.temperature": FAIL},
        "GPU 2: 2 °C above its slowdown temperature",
    ),
    Fault(
        "a GPU close to its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=84, temperature_margin_c=3),
        {"gpu.temperature": CONCERN},
        "3 °C below",
    ),
    Fault(
        "a hot GPU whose driver tells no margin",
        lambda image: with_nvml(image, gpu=2, temperature_c=91, temperature_margin_c="error NOT_SUPPORTED"),
        {"gpu.temperature": FAIL},
        "91 °C; expected less than 88 °C",
    ),
    Fault(
        "a lowered power limit",
        lambda image: with_nvml(image, gpu=2, power_limit_w=500),
        {"gpu.power_limit": CONCERN},
        "power limit is 500 W; expected 700 W",
    ),
    Fault(
        "persistence mode off",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": CONCERN},
        "persistence mode is off",
    ),
    Fault(
        "persistence mode off in an image",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": FAIL},
        "persistence mode is off",
        occasion="ami",
    ),
    Fault(
        "an exclusive compute mode",
        lambda image: with_nvml(image, gpu=2, compute_mode=3),
        {"gpu.compute_mode": CONCERN},
        "compute mode is exclusive process",
    ),
    Fault(
        "MIG on one GPU only",
        lambda image: with_nvml(image, gpu=2, mig_mode=True),
        {"gpu.mig_uniform": CONCERN},
        "MIG is on for GPU 2 of 8",
    ),
    Fault(
        "a GPU with another VBIOS",
        lambda image: with_nvml(image, gpu=2, vbios="96.00.89.00.01"),
        {"gpu.vbios_uniform": CONCERN},
        "96.00.89.00.01 on 1 GPUs",
    ),
    Fault(
        "an EFA port at a quarter of its rate",
        lambda image: with_file(
            image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports/1/rate", "25 Gb/sec (1X EDR)\n"
        ),
        {"network.efa_rate": FAIL},
        "port 1 at 25 Gb/sec (1X EDR); expected at least 100 Gb/s",
    ),
    Fault(
        "an EFA device that is missing",
        lambda image: without_efa(image, efa_names(image)[4]),
        {"network.efa_count": FAIL},
        "31 EFA devices, 31 on the PCI bus; expected 32",
    ),
    Fault(
        "no EFA device at all",
        lambda image: reduce(without_efa, efa_names(image), image),
        {
            "network.efa_count": FAIL,
            "network.efa_port_active": INCOMPLETE,
            "network.efa_rate": INCOMPLETE,
            "network.libfabric_efa": FAIL,
        },
        "0 EFA devices, 0 on the PCI bus; expected 32",
    ),
    Fault(
        "an EFA port that is down",
        lambda image: with_file(image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports/1/state", "1: DOWN\n"),
        {"network.efa_port_active": FAIL},
        "port 1 is 1: DOWN",
    ),
    Fault(
        "an EFA device without a port",
        lambda image: without_file(image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports"),
        {"network.efa_port_active": FAIL, "network.efa_rate": INCOMPLETE},
        "no port; expected port 1",
    ),
    Fault(
        "EFA devices that libfabric does not see",
        lambda image: without_libfabric_domain(image, *efa_names(image)[:2]),
        {"network.libfabric_efa": FAIL},
        "30 EFA domains; expected 32",
    ),
    Fault(
        "libfabric without its EFA provider",
        lambda image: with_tool(image, "/opt/amazon/efa/bin/fi_info", "#!/bin/sh\necho 'fi_getinfo: -61'\nexit 61\n"),
        {"network.libfabric_efa": FAIL},
        "fi_getinfo: -61",
    ),
    Fault(
        "a kernel module that is not loaded",
        lambda image: without_module(image, "ib_uverbs"),
        {"network.efa_modules": FAIL},
        "not loaded: ib_uverbs",
    ),
    Fault(
        "an EFA device file that is missing",
        lambda image: without_file(image, "/dev/infiniband/uverbs3"),
        {"network.efa_modules": FAIL},
        "31 device files",
    ),
    Fault(
        "a daemon that may lock little memory",
        lambda image: with_memlock(image, "8388608", daemon="slurmd"),
        {"network.memlock": FAIL},
        "for slurmd",
    ),
    Fault(
        "an InfiniBand port that is down",
        lambda image: with_file(
            with_file(image, f"{IB_PORT}/state", "1: DOWN\n"), f"{IB_PORT}/phys_state", "2: Polling\n"
        ),
        {"network.ib_ports": FAIL},
        "port 1 is 1: DOWN (2: Polling)",
        base=infiniband,
    ),
    Fault(
        "a small /dev/shm",
        lambda image: with_tmpfs(image, "/dev/shm", "64m"),
        {"host.dev_shm": FAIL},
        "expected at least 16 GiB",
    ),
    Fault(
        "no /dev/shm",
        lambda image: without_tmpfs(image, "/dev/shm"),
        {"host.dev_shm": FAIL},
        "nothing is mounted on /dev/shm",
    ),
    Fault(
        "a root volume that is full",
        lambda image: with_full_root(image, 93),
        {"host.root_volume": FAIL},
        "/ is 93 % full; expected less than 90 %",
    ),
    Fault(
        "a root volume that fills up",
        lambda image: with_full_root(image, 84),
        {"host.root_volume": CONCERN},
        "/ is 84 % full",
    ),
    Fault(
        "a process that hangs in the kernel",
        lambda image: with_frozen(image, "/stuck"),
        {"host.d_state": FAIL},
        "in state D: sh (pid ",
        beside=STUCK_LONG_AGO,
        marks=(needs_frozen,),
    ),
    Fault(
        "a process that hangs, of which the kernel does not tell for how long",
        lambda image: with_frozen(image, "/stuck"),
        {"host.d_state": CONCERN},
        "does not tell for how long: sh (pid ",
        beside=STUCK_LONG_AGO.replace("1000.0/", "/"),
        marks=(needs_frozen,),
    ),
    Fault(
        "processes that nobody waits for",
        lambda image: image,
        {"host.zombies": CONCERN},
        "zombies; expected at most 1000",
        beside=ZOMBIES,
    ),
    Fault(
        "a hung task in the kernel log",
        lambda image: with_kernel_line(image, "INFO: task python3:4242 blocked for more than 122 seconds."),
        {"host.d_state": CONCERN},
        "python3 (pid 4242)",
    ),
    Fault(
        "a failed unit",
        lambda image: with_service(image, "slurmd", active="failed", sub="failed"),
        {"host.services": FAIL},
        "slurmd",
    ),
    Fault(
        "an enabled service that does not run",
        lambda image: with_service(image, "munge", active="inactive", sub="dead"),
        {"host.services": FAIL},
        "munge is inactive",
    ),
    Fault(
        "a file server that does not answer",
        lambda image: with_hung_mount(image, "/fsx"),
        {"storage.mounts_alive": FAIL},
        "/fsx: fuse.sshfs",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file system of fstab that is not mounted",
        lambda image: with_line(image, "/etc/fstab", LUSTRE),
        {"storage.mounts_expected": FAIL},
        "/fsx (lustre, in /etc/fstab)",
    ),
)


def efa_names(image: NodeImage) -> list[str]:
    """The EFA devices of an image."""
    folder = "class/infiniband/"
    return sorted(path.removeprefix(folder) for path in image.sys if path.startswith(folder))


BY_NAME = {fault.name: fault for fault in FAULTS}
