"""Faults that remove another fault's subject, so that the other cannot be seen beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Taken:
    """Why a check does not name a fault with some of these words in its name beside one with some of those."""

    checks: tuple[str, ...]
    faults: tuple[str, ...]
    beside: tuple[str, ...]

    def explains(self, check: str, fault: str, beside: str) -> bool:
        """Whether it explains why this fault is not named beside that one."""
        return check in self.checks and _has_one(fault, self.faults) and _has_one(beside, self.beside)


def _has_one(name: str, parts: tuple[str, ...]) -> bool:
    return any(word in name for word in parts)


ANY = ("",)
NO_DRIVER = (
    "a driver that does not answer",
    "a driver that hangs in the kernel",
    "a driver that is not loaded",
    "a node without the NVML library",
    "a driver that counts no GPU at all",
)
JUST_BOOTED = ("a node that has just booted", "GPUs short while the node settles")
NO_LINK = ("without a link", "reports no link state", "no interface that is switched on")

ROWS: Mapping[str, Taken] = {
    "a link that is down has no MTU in use": Taken(("network.mtu",), ("no jumbo frames",), NO_LINK),
    "the link of an interface that is switched off is down": Taken(
        ("network.interfaces_up",), ("an interface",), ("no interface that is switched on",)
    ),
    "a driver that does not answer lists no GPU, and names no version": Taken(
        ("gpu.gpu_count", "gpu.fabric_manager"), ("the bus has lost", "of another version"), NO_DRIVER
    ),
    "devices may be missing while a node has just booted": Taken(
        ("gpu.gpu_count", "network.efa_count"), ANY, JUST_BOOTED
    ),
    "a GPU that a process holds is not idle, and its memory has an owner": Taken(
        ("gpu.no_leftover_processes", "gpu.temperature", "host.shm_leftovers"),
        ("nobody owns", "all of them idle", "a killed job", "slow under load", "its slowdown temperature"),
        ("a GPU that somebody holds", "slow under load"),
    ),
    "huge pages are of use to EFA, where nobody chose to do without": Taken(
        ("host.efa_huge_pages",), ("no huge pages",), ("no EFA device", "as was chosen")
    ),
    "a GPU that has left the bus has no PCIe errors there": Taken(
        ("gpu.pcie_errors",), ("PCIe",), ("the bus has lost", "has left the bus")
    ),
    "a GPU that is lost, or needs a reset, reports nothing of itself": Taken(
        ("gpu.nvlink_errors", "gpu.gpu_identity", "gpu.fabric_state", "gpu.no_uncorrected_ecc"),
        ("NVLink", "that report the same", "a fabric that the driver", "ECC of which the driver says nothing"),
        ("is lost", "needs a reset"),
    ),
    "the software that a probe in a container sees is not the node's": Taken(
        ("software.version_drift",), ANY, ("a probe that runs in a container",)
    ),
    "without EFA devices no device file is missing": Taken(
        ("network.efa_modules",), ("device file",), ("EFA device that is missing", "no driver holds", "no EFA device")
    ),
    "a kernel of another sort runs, of which no newer one waits": Taken(
        ("host.kernel_running_is_installed",), ("a newer kernel",), ("without DMA-BUF",)
    ),
    "of two records of one file the node has the other": Taken(
        ("software.version_compat", "software.container_runtime"),
        ("aws-ofi-nccl too old", "a plug-in that Slurm requires", "a new driver installed"),
        ("EFA record", "Slurm may do without", "CUDA toolkit newer", "CUDA toolkit too new", "no libcuda"),
    ),
    "libraries that bridge it make a CUDA toolkit too new for the driver a concern": Taken(
        ("software.version_compat",), ("too new for the driver",), ("with libraries that bridge it",)
    ),
    "what a package database that cannot be read would show is unknown": Taken(
        ("software.version_drift",),
        ("the group has and this node does not", "gdrcopy's module"),
        ("a package database that cannot be read",),
    ),
    "a device of another generation has other devices of its model": Taken(
        ("network.nic_link",), ("an EFA device with half of the lanes",), ("of another generation",)
    ),
    "a driver that was loaded anew ends what its devices had before": Taken(
        ("network.efa_driver_errors",), ("an EFA command", "an EFA device"), ("after its driver was reloaded",)
    ),
    "a driver that was loaded anew, or a reset, ends what its GPUs had before": Taken(
        ("gpu.no_xid", "gpu.nvlink_errors"), ANY, ("before the load line", "an Xid that returns after a reset")
    ),
    "a GPU in MIG mode has no fabric and no remapped rows": Taken(
        ("gpu.fabric_state", "gpu.row_remap"), ("does not support", "supports on the other GPUs"), ("on one GPU only",)
    ),
    "a driver that lists no GPU does not say which is at an address": Taken(
        ("host.pcie_aer",), ("that the firmware reported",), NO_DRIVER
    ),
    "of two values of one variable a job has the other": Taken(
        ("network.transport_plan",), ("no huge pages beside EFA",), ("no huge pages beside EFA",)
    ),
    "a GPU is not the odd one where all of its node have its VBIOS": Taken(
        ("gpu.vbios_uniform",), ("a GPU with another VBIOS",), ("a node whose GPUs have another VBIOS",)
    ),
    "few threads run, whatever the limit": Taken(("host.process_ids",), ("out of threads",), ("few process ids",)),
    "one nameserver answers": Taken(("network.nameservers",), ("answer",), ("beside one that does",)),
    "a job has all devices of a node that it may open, and of no other": Taken(
        ("software.container_devices",),
        ("EFA devices", "an EFA device file", "refuses an EFA device", "hides the GPUs"),
        (
            *("may not open", "daemon-reload", "refuses every GPU", "a container without GPUs", "were to be mounted"),
            *("no EFA device", "an EFA device that is missing"),
        ),
    ),
    "a container without GPUs needs no library of them": Taken(
        ("software.container_libraries",), ANY, ("a container without GPUs",)
    ),
    "NCCL needs no plug-in for EFA where there is none": Taken(
        ("software.container_libraries",), ("plug-in for EFA",), ("no EFA device",)
    ),
    "of two records of one library the job has the other": Taken(
        ("software.container_libraries",),
        ("a new driver installed", "the libcuda of another driver"),
        ("CUDA toolkit newer", "CUDA toolkit too new", "libcuda", "is no version"),
    ),
    "GDRCopy without its module has no device file": Taken(
        ("software.container_devices",), ("without GDRCopy",), ("gdrcopy's module",)
    ),
    "the host name has its own address too": Taken(("network.own_name",), ("another node's",), ("also has",)),
}


def taken(check: str, fault: str, beside: str) -> str:
    """Why one fault is not named beside the other, or empty."""
    return next((reason for reason, row in ROWS.items() if row.explains(check, fault, beside)), "")
