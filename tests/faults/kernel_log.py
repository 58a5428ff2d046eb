"""The kernel log's reports on GPUs and NVSwitches, and a log that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import File, NodeImage
from tests.testbed.node import with_file, with_kernel_line, with_nvml, with_tool, without_file

XID = "NVRM: Xid (PCI:0000:{bus}:00): {text}"
OVER_ALL = (
    "gpu.no_xid",
    "gpu.no_sxid",
    "host.cpu_throttled",
    "host.kernel_oops",
    "host.lockups",
    "host.mce_edac",
    "host.no_oom_kill",
    "host.pcie_aer",
    "host.segfaults",
    "host.unknown_errors",
    "network.efa_driver_errors",
    "network.ena_driver_errors",
    "network.kernel_tables",
    "network.link_flaps",
    "network.nic_driver_errors",
    "storage.disk_errors",
    "storage.file_system_errors",
)
DENIED = "#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2\nexit 1\n"
RELOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09"


def logged(*lines: str) -> Callable[[NodeImage], NodeImage]:
    """The kernel logs these lines, a second apart."""
    return lambda image: reduce(
        lambda made, line: with_kernel_line(made, line[1], at_s=80_000 + line[0]), enumerate(lines), image
    )


def xid(text: str, bus: str = "53") -> str:
    """An Xid line."""
    return XID.format(bus=bus, text=text)


def hours_apart(*lines: str) -> Callable[[NodeImage], NodeImage]:
    """The kernel logs these lines, hours apart."""
    return lambda image: reduce(
        lambda made, line: with_kernel_line(made, line[1], at_s=60_000 + 7200 * line[0]), enumerate(lines), image
    )


def unreadable(image: NodeImage) -> NodeImage:
    """No source of the kernel log is readable."""
    silent = with_tool(with_tool(image, "dmesg", DENIED), "journalctl", "#!/bin/sh\nexit 1\n")
    return without_file(silent, "/dev/kmsg")


def cut(image: NodeImage) -> NodeImage:
    """The ring buffer has lost its beginning, and there is no journal."""
    return with_file(image, "/dev/kmsg", File("6,9000,7200000000,-;usb 1-1: the first record that is left\n", 0o600))


FAULTS = (
    Fault(
        "an Xid of the hardware",
        logged(xid("79, GPU has fallen off the bus.")),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:53:00.0 (GPU 0, GPU-",
    ),
    Fault(
        "a GPU that fell off the bus without an Xid",
        logged("NVRM: The NVIDIA GPU 0000:53:00.0", "NVRM: fallen off the bus and is not responding to commands."),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:53:00.0 (GPU 0, GPU-",
    ),
    Fault(
        "a GPU that was lost before the load line of the same load",
        logged(
            "NVRM: The NVIDIA GPU 0000:5d:00.0",
            "NVRM: fallen off the bus and is not responding to commands.",
            "nvidia: probe of 0000:5d:00.0 failed with error -1",
            "NVRM: The NVIDIA probe routine failed for 1 device(s).",
            RELOAD,
        ),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:5d:00.0",
    ),
    Fault(
        "unified memory that waits for a reboot, though its module was loaded again",
        logged(
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            "nvidia-uvm: Loaded the UVM driver, major device number 511.",
        ),
        {"gpu.no_xid": FAIL},
        "CUDA's unified memory has stopped on all GPUs until a reboot (error 0x60)",
    ),
    Fault(
        "a GPU's firmware that sends no heartbeat",
        logged("NVRM: GPU3 _kgspIsHeartbeatTimedOut: GSP RM heartbeat timed out"),
        {"gpu.no_xid": CONCERN},
        "GPU3: its GSP firmware sends no heartbeat",
    ),
    Fault(
        "a GPU of which the driver says that it needs a reset",
        logged("NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:53:00 (printing 1 of every 30)."),
        {"gpu.no_xid": FAIL},
        "GPU 0, GPU-",
    ),
    Fault(
        "a fabric manager of another version than the driver",
        logged("nvidia-nvswitch: Version mismatch, kernel version 580.95.05 user version 570.124.06"),
        {"gpu.no_sxid": FAIL},
        "fabric manager 570.124.06 on driver 580.95.05",
    ),
    Fault(
        "a GPU that the driver could not start",
        logged("NVRM: GPU 0000:53:00.0: RmInitAdapter failed! (0x26:0x56:1463)"),
        {"gpu.no_xid": FAIL},
        "Xid 143 (GPU Initialization Error) at 0000:53:00.0 (GPU 0, GPU-",
    ),
    Fault(
        "Xids of sixteen addresses at once",
        logged(*(xid("79, GPU has fallen off the bus.", f"{bus:02x}") for bus in range(0x50, 0x60))),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:5f:00.0",
    ),
    Fault(
        "a fatal NVLink error",
        logged(xid("145, RLW_SRC_TRACK Fatal XC1 i0 Link 12 (0x040988e2 0x00000008)")),
        {"gpu.no_xid": FAIL},
        "RLW_SRC_TRACK, link 12",
    ),
    Fault(
        "an NVLink that its other end took down",
        logged(xid("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000)")),
        {"gpu.no_xid": FAIL},
        "NETIR_LINK_EVT, link 9",
    ),
    Fault(
        "an NVLink that the host took down",
        logged(xid("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 03 (0x02812591 0x00000000 0x00000000)")),
        {"gpu.no_xid": CONCERN},
        "look at this host (the tray)",
    ),
    Fault(
        "an Xid that returns after a reset",
        hours_apart(xid("95, Uncontained"), RELOAD, xid("95, Uncontained")),
        {"gpu.no_xid": FAIL},
        "Xid 95",
    ),
    Fault(
        "a row remapping that waits for a reset",
        lambda image: with_nvml(logged(xid("63, Row Remapper: New row marked"))(image), 0, remap_pending=True),
        {"gpu.no_xid": FAIL, "gpu.row_remap": FAIL},
        "Xid 63 (GPU memory remapping event)",
    ),
    Fault(
        "an application's Xid that repeats",
        hours_apart(xid("31, pid=7, name=python3, MMU Fault"), xid("31, pid=9, name=python3, MMU Fault")),
        {"gpu.no_xid": CONCERN},
        "Xid 31",
    ),
    Fault(
        "a contained error after which the driver wants a reset",
        logged(xid("94, Contained: GSP Poison. RST: Yes, D-RST: No")),
        {"gpu.no_xid": FAIL},
        "Xid 94 (Contained memory error)",
    ),
    Fault(
        "an uncontained error after which the driver wants no reset",
        logged(xid("95, pid=7, name=python3, Uncontained: FBHUB. RST: No, D-RST: No")),
        {"gpu.no_xid": CONCERN},
        "Xid 95 (Uncontained memory error)",
    ),
    Fault(
        "an Xid of which only what followed it is in the log",
        logged(xid("45, pid=7, name=python3, Ch 0000000c caused by previous Xid 79")),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus)",
    ),
    Fault(
        "an Xid that nobody knows",
        logged(xid("999, something new")),
        {"gpu.no_xid": CONCERN},
        "Xid 999 (unknown Xid)",
    ),
    Fault(
        "a kernel log that may not be read",
        unreadable,
        dict.fromkeys((*OVER_ALL, "neuron.no_hw_error"), INCOMPLETE),
        "kernel_log",
    ),
    Fault(
        "a kernel log that has lost its beginning",
        cut,
        dict.fromkeys(OVER_ALL, INCOMPLETE),
        "part of the kernel log was overwritten",
    ),
    Fault(
        "an Xid in a kernel log that has lost its beginning",
        lambda image: logged(xid("79, GPU has fallen off the bus."))(cut(image)),
        dict.fromkeys(OVER_ALL, INCOMPLETE) | {"gpu.no_xid": FAIL},
        "Xid 79",
    ),
    Fault(
        "a fatal SXid",
        logged("nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"),
        {"gpu.no_sxid": FAIL},
        "SXid 20034",
    ),
    Fault(
        "an SXid that is not fatal",
        logged("nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"),
        {"gpu.no_sxid": CONCERN},
        "SXid 12028",
    ),
)
