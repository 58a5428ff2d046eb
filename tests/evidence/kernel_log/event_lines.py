"""Kernel log lines that are parsed beyond their form, each with its event."""

from __future__ import annotations

from clusterproof.plugins.evidence.kernel_log.events_host import (
    AllocationFailure,
    HardwareError,
    OomKill,
    PcieError,
    Segfault,
)

GPU = "0000:53:00.0"


def hardware(
    source: str,
    is_corrected: bool,
    words: str,
    count: int = 1,
    earlier: bool = False,
    place: str = "",
    severity: str = "",
    report: str = "",
) -> HardwareError:
    return HardwareError(source, is_corrected, count, words, earlier, 1.0, 1, place, severity, report)


CE = "EDAC MC0: 5 CE memory read error on CPU_SrcID#2_Channel#2_DIMM#0 (channel:2 slot:0)"
EDAC_AMD = "EDAC amd64 MC0: CE ERROR_ADDRESS= 0x12345"
CORRECTED_MCE = "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010090"
FATAL_MCE = "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400"
NAMED_BY_FILE = FATAL_MCE.replace("mce", "core")
POISONED = "Memory failure: 0x3f5d2a: recovery action for reserved kernel page: Ignored"
CONSUMED = "mce: Uncorrected hardware memory error in user-access at 3f5d2a000"
HARDWARE = [
    (CE, hardware("edac", True, CE, 5, place="MC0 CPU_SrcID#2_Channel#2_DIMM#0")),
    (
        "EDAC MC0: 0 CE memory read error on DIMM#0",
        hardware("edac", True, "EDAC MC0: 0 CE memory read error on DIMM#0", place="MC0 DIMM#0"),
    ),
    (
        "EDAC MC1: UE page 0x12345, offset 0x0",
        hardware("edac", False, "EDAC MC1: UE page 0x12345, offset 0x0", place="MC1"),
    ),
    (EDAC_AMD, hardware("edac", True, EDAC_AMD, place="MC0")),
    (CORRECTED_MCE, hardware("mce", True, CORRECTED_MCE)),
    (FATAL_MCE, hardware("mce", False, FATAL_MCE)),
    (NAMED_BY_FILE, hardware("mce", False, NAMED_BY_FILE)),
    (POISONED, hardware("memory", False, POISONED)),
    (CONSUMED, hardware("memory", False, CONSUMED)),
    (
        "mce: [Hardware Error]: Machine check events logged",
        hardware("mce log", True, "mce: [Hardware Error]: Machine check events logged"),
    ),
    (
        "{3}[Hardware Error]: event severity: recoverable",
        hardware(
            "apei", False, "{3}[Hardware Error]: event severity: recoverable", severity="recoverable", report="{3}"
        ),
    ),
    (
        "{3}[Hardware Error]: event severity: corrected",
        hardware("apei", True, "{3}[Hardware Error]: event severity: corrected", severity="corrected", report="{3}"),
    ),
    (
        "[Hardware Error]: event severity: fatal",
        hardware("apei", False, "[Hardware Error]: event severity: fatal", earlier=True, severity="fatal"),
    ),
    (
        "[Hardware Error]: Corrected error, no action required.",
        hardware("mce", True, "[Hardware Error]: Corrected error, no action required."),
    ),
    (
        "[Hardware Error]: Uncorrected, software restartable error.",
        hardware("mce", False, "[Hardware Error]: Uncorrected, software restartable error."),
    ),
]

PCIE = [
    (
        f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        PcieError(GPU, "corrected", "physical layer", 1.0),
    ),
    (
        f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
        PcieError(GPU, "fatal", "transaction layer", 1.0),
    ),
    (
        "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link Layer, id=00e4",
        PcieError("0000:00:1c.0", "nonfatal", "data link layer", 1.0),
    ),
    (
        f"pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: {GPU}",
        PcieError(GPU, "fatal", "", 1.0),
    ),
    (
        f"pcieport 0000:80:01.1: AER: Multiple Correctable error message received from {GPU}",
        PcieError(GPU, "corrected", "", 1.0),
    ),
    (
        "pcieport 0000:00:1c.0: AER: Corrected error received: id=00e0",
        PcieError("0000:00:1c.0", "corrected", "", 1.0),
    ),
    (  # before Linux 4.18: bus, device and function of the sender in one number
        "pcieport 0001:3a:00.0: AER: Multiple Uncorrected (Fatal) error received: id=3b09",
        PcieError("0001:3b:01.1", "fatal", "", 1.0),
    ),
    (  # it names no sender
        "pcieport 0001:3a:00.0: AER: Uncorrected (Non-Fatal) error received: id=0000",
        PcieError("0001:3a:00.0", "nonfatal", "", 1.0),
    ),
]


NCCL = (
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2"
)


MEMORY = [
    ("Out of memory: Killed process 39 (python3) total-vm:1kB, anon-rss:1kB", OomKill("python3", 39, "", 1.0)),
    ("Out of memory: Kill process 39 (python3) score 900 or sacrifice child", OomKill("python3", 39, "", 1.0)),
    ("Out of memory (oom_kill_allocating_task): Killed process 39 (a b)", OomKill("a b", 39, "", 1.0)),
    ("Out of memory: Killed process 39 ((sd-pam)) total-vm:1kB", OomKill("(sd-pam)", 39, "", 1.0)),
    ("Memory cgroup out of memory: Killed process 39 (python3) total-vm:1kB", OomKill("python3", 39, "?", 1.0)),
    (
        "python3: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL)",
        AllocationFailure("page allocation failure of python3", 4, 1.0),
    ),
    (
        "kworker/0:1: page allocation failure. order:0, mode:0x20",
        AllocationFailure("page allocation failure of kworker/0:1", 0, 1.0),
    ),
    (
        "cgroup: fork rejected by pids controller in /user.slice/user-1.slice",
        AllocationFailure("fork rejected by pids controller in /user.slice/user-1.slice", None, 1.0),
    ),
    (
        "python3: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=0,cpuset=/j 7,mems_allowed=0-1",
        AllocationFailure("page allocation failure of python3", 0, 1.0),
    ),
]

CRASHES = [
    (f"{NCCL}[7f7c7ac00000+d3d3000]", Segfault("pt_main_thread", 2536443, "libnccl.so.2", 1.0)),
    (
        f"{NCCL}[7f7c7ac00000+d3d3000] likely on CPU 3 (core 3, socket 0)",
        Segfault("pt_main_thread", 2536443, "libnccl.so.2", 1.0),
    ),
    ("python3[7]: segfault at 0 ip (null) sp 00007ffd error 14", Segfault("python3", 7, "", 1.0)),
    (
        "traps: python3[7] general protection fault ip:7f12 sp:7ffd error:0 in libc.so.6[7f10+195000]",
        Segfault("python3", 7, "libc.so.6", 1.0),
    ),
    (
        "traps: ray::Worker[7] general protection ip:7f12 sp:7ffd error:0 in libtorch_cpu.so[7f10+195000]",
        Segfault("ray::Worker", 7, "libtorch_cpu.so", 1.0),
    ),
]
CLOSER_READ = [*MEMORY, *HARDWARE, *PCIE, *CRASHES]
