"""Lines of the kernel log that tell of the host, as kernels write them, each with the event that it is."""

from __future__ import annotations

from clusterproof.plugins.facts.kernel_host import (
    AllocationFailure,
    EfaMessage,
    FileServer,
    HardwareError,
    Lockup,
    OomKill,
    PcieError,
    Segfault,
)

GPU = "0000:53:00.0"
NCCL = (
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2"
)


def hardware(source: str, is_corrected: bool, words: str, count: int = 1, earlier: bool = False) -> HardwareError:
    return HardwareError(source, is_corrected, count, words, earlier, 1.0)


MEMORY = [
    ("Out of memory: Killed process 39 (python3) total-vm:1kB, anon-rss:1kB", OomKill("python3", 39, "", 1.0)),
    ("Out of memory: Kill process 39 (python3) score 900 or sacrifice child", OomKill("python3", 39, "", 1.0)),
    ("Out of memory (oom_kill_allocating_task): Killed process 39 (a b)", OomKill("a b", 39, "", 1.0)),
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
        "systemd[1]: Failed to fork off sandboxing environment: Cannot allocate memory",
        AllocationFailure("systemd[1]: Failed to fork off sandboxing environment: Cannot allocate memory", None, 1.0),
    ),
]

CE = "EDAC MC0: 5 CE memory read error on CPU_SrcID#2_Channel#2_DIMM#0 (channel:2 slot:0)"
EDAC_AMD = "EDAC amd64 MC0: CE ERROR_ADDRESS= 0x12345"
CORRECTED_MCE = "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010090"
FATAL_MCE = "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400"
POISONED = "Memory failure: 0x3f5d2a: recovery action for dirty LRU page: Recovered"
CONSUMED = "mce: Uncorrected hardware memory error in user-access at 3f5d2a000"
HARDWARE = [
    (CE, hardware("edac", True, CE, 5)),
    (
        "EDAC MC0: 0 CE memory read error on DIMM#0",
        hardware("edac", True, "EDAC MC0: 0 CE memory read error on DIMM#0"),
    ),
    ("EDAC MC1: UE page 0x12345, offset 0x0", hardware("edac", False, "EDAC MC1: UE page 0x12345, offset 0x0")),
    (EDAC_AMD, hardware("edac", True, EDAC_AMD)),
    (CORRECTED_MCE, hardware("mce", True, CORRECTED_MCE)),
    (FATAL_MCE, hardware("mce", False, FATAL_MCE)),
    (POISONED, hardware("memory", False, POISONED)),
    (CONSUMED, hardware("memory", False, CONSUMED)),
    (
        "mce: [Hardware Error]: Machine check events logged",
        hardware("mce log", True, "mce: [Hardware Error]: Machine check events logged"),
    ),
    (
        "{3}[Hardware Error]: event severity: recoverable",
        hardware("apei", False, "{3}[Hardware Error]: event severity: recoverable"),
    ),
    (
        "{3}[Hardware Error]: event severity: corrected",
        hardware("apei", True, "{3}[Hardware Error]: event severity: corrected"),
    ),
    (
        "[Hardware Error]: event severity: fatal",
        hardware("apei", False, "[Hardware Error]: event severity: fatal", earlier=True),
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
    (
        "pcieport 0000:80:01.1: AER: device recovery failed",
        PcieError("0000:80:01.1", "fatal", "recovery failed", 1.0),
    ),
]

OTHERS = [
    (
        "efa 0000:4f:00.0 rdmap79s0: The device didn't send any completion for admin cmd CREATE_QP(1) status 0",
        EfaMessage("rdmap79s0", "The device didn't send any completion for admin cmd CREATE_QP(1) status 0", 1.0),
    ),
    (
        "efa 0000:4f:00.0: Reset indication didn't turn on",
        EfaMessage("0000:4f:00.0", "Reset indication didn't turn on", 1.0),
    ),
    ("infiniband rdmap79s0: Failed to register mr", EfaMessage("rdmap79s0", "Failed to register mr", 1.0)),
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
    (
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]",
        Lockup("soft", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]", 1.0),
    ),
    (
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3",
        Lockup("hard", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", 1.0),
    ),
    (
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        Lockup("rcu", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", 1.0),
    ),
    (
        "INFO: rcu_sched self-detected stall on CPU",
        Lockup("rcu", "INFO: rcu_sched self-detected stall on CPU", 1.0),
    ),
    (
        "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 30s!",
        Lockup("workqueue", "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 30s!", 1.0),
    ),
    (
        "LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress",
        FileServer("fsx-OST0001", False, "evicted this client", 1.0),
    ),
    (
        "Lustre: fsx-MDT0000-mdc-ffff8a01b2c3d400: Connection to fsx-MDT0000 (at 10.0.0.1@tcp) was lost; in progress",
        FileServer("fsx-MDT0000", False, "is lost", 1.0),
    ),
    (
        "Lustre: fsx-MDT0000-mdc-ffff8a01b2c3d400: Connection restored to 10.0.0.1@tcp (at 10.0.0.1@tcp)",
        FileServer("fsx-MDT0000", True, "is back", 1.0),
    ),
    ("Lustre: Unmounted fsx-client", FileServer("fsx-", True, "unmounted", 1.0)),
    (
        "nfs: server fs-1.efs.us-east-1.amazonaws.com not responding, timed out",
        FileServer("fs-1.efs.us-east-1.amazonaws.com", False, "does not respond", 1.0),
    ),
    ("nfs: server 10.0.0.9 OK", FileServer("10.0.0.9", True, "responds", 1.0)),
]
FORMS = [*MEMORY, *HARDWARE, *PCIE, *OTHERS]
