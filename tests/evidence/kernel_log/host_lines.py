"""Lines of the kernel log about the host, as kernels write them, each with the event that it is."""

from __future__ import annotations

from clusterproof.plugins.evidence.kernel_log.events_host import (
    AllocationFailure,
    DiskEvent,
    EfaMessage,
    EfaStarted,
    EnaMessage,
    FileServer,
    LinkDown,
    Lockup,
    OomKill,
    Oops,
    Segfault,
    TableFull,
    Throttled,
)
from tests.evidence.kernel_log.hardware_lines import HARDWARE, PCIE

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

EFA = "0000:4f:00.0"
OTHERS = [
    (
        "efa 0000:4f:00.0 rdmap79s0: The device didn't send any completion for admin cmd CREATE_QP(1) status 0",
        EfaMessage(
            "rdmap79s0", "The device didn't send any completion for admin cmd CREATE_QP(1) status 0", 1.0, address=EFA
        ),
    ),
    (
        "efa 0000:4f:00.0: Reset indication didn't turn on",
        EfaMessage("0000:4f:00.0", "Reset indication didn't turn on", 1.0, address=EFA),
    ),
    ("efa 0000:4f:00.0 efa_0: IB device registered", EfaStarted(EFA, 1.0)),
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
        "watchdog: CPU28: Watchdog detected hard LOCKUP on cpu 28",
        Lockup("hard", "watchdog: CPU28: Watchdog detected hard LOCKUP on cpu 28", 1.0),
    ),
    (
        "Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 13",
        Lockup("hard", "Kernel panic - not syncing: Watchdog detected hard LOCKUP", 1.0),
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

NULL = "BUG: kernel NULL pointer dereference, address: 0000000000000008"
PAGE_FAULT = "BUG: unable to handle page fault for address: ffffa0c1deadbeef"
KERNEL_BUG = "kernel BUG at fs/inode.c:611!"
ON_ARM = "Unable to handle kernel paging request at virtual address ffff800012345678"
OOPSES = (
    "Oops: 0002 [#1]",
    "Oops: Oops: 0000 [#1]",
    "Oops: invalid opcode: 0000 [#3]",
    "Internal error: Oops: 0000000096000004 [#1]",
    "Internal error: Oops - BUG: 00000000f2000800 [#1]",
    "invalid opcode: 0000 [#1]",
    "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1]",
)
KERNEL = [
    *((words, Oops(words, 1.0)) for words in (NULL, PAGE_FAULT, KERNEL_BUG, ON_ARM, *OOPSES)),
    *((f"{words} PREEMPT SMP NOPTI", Oops(f"{words} P", 1.0)) for words in OOPSES),
    ("mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 5)", Throttled(1.0)),
    ("CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 5)", Throttled(1.0)),
]

EXT4 = "ext4 found an error"
XFS, XFS_STOPPED = "XFS found an error", "XFS has shut it down"
NVME, LATE = "the controller does not answer", "a command timed out"
SECTOR = "a sector could not be read or written"
DISKS = [
    (
        "EXT4-fs error (device nvme1n1p1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
        DiskEvent("nvme1n1p1", "error", EXT4, 1.0),
    ),
    (
        "EXT4-fs error (device dm-17) in ext4_reserve_inode_write:5753: Journal has aborted",
        DiskEvent("dm-17", "error", EXT4, 1.0),
    ),
    ("Aborting journal on device nvme1n1p1-8.", DiskEvent("nvme1n1p1", "error", "its journal ended", 1.0)),
    (
        "EXT4-fs (nvme1n1p1): Remounting filesystem read-only",
        DiskEvent("nvme1n1p1", "read_only", "ext4 writes no more", 1.0),
    ),
    (
        "XFS (nvme2n1): xfs_do_force_shutdown(0x2) called from line 1290 of file fs/xfs/xfs_log.c.",
        DiskEvent("nvme2n1", "shut_down", XFS_STOPPED, 1.0),
    ),
    (
        "XFS (dm-0): Filesystem has been shut down due to log error (0x2).",
        DiskEvent("dm-0", "shut_down", XFS_STOPPED, 1.0),
    ),
    (
        "XFS (nvme2n1): Metadata corruption detected at xfs_agf_read_verify+0x70/0x120 [xfs], xfs_agf block 0x1",
        DiskEvent("nvme2n1", "error", XFS, 1.0),
    ),
    (
        'XFS (nvme2n1): metadata I/O error in "xfs_da_read_buf+0xe1/0x140" at daddr 0x8 len 8 error 5',
        DiskEvent("nvme2n1", "error", XFS, 1.0),
    ),
    ("nvme nvme0: I/O 978 QID 3 timeout, completion polled", DiskEvent("nvme0", "late", LATE, 1.0)),
    ("nvme nvme1: I/O tag 12 (100c) QID 0 timeout, reset controller", DiskEvent("nvme1", "late", LATE, 1.0)),
    (
        "nvme nvme1: I/O tag 333 (a14d) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:4096",
        DiskEvent("nvme1", "late", LATE, 1.0),
    ),
    (
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        DiskEvent("nvme1", "error", NVME, 1.0),
    ),
    ("nvme nvme1: Device not ready; aborting initialisation, CSTS=0x0", DiskEvent("nvme1", "error", NVME, 1.0)),
    (
        "I/O error, dev nvme1n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        DiskEvent("nvme1n1", "error", SECTOR, 1.0),
    ),
    ("blk_update_request: critical medium error, dev sdb, sector 7", DiskEvent("sdb", "error", SECTOR, 1.0)),
]

NETWORK = [
    (
        "ena 0000:00:05.0 ens5: Keep alive watchdog timeout.",
        EnaMessage("ens5", "Keep alive watchdog timeout.", 1.0),
    ),
    (
        "ena 0000:00:05.0: Reset attempt failed. Can not reset the device",
        EnaMessage("0000:00:05.0", "Reset attempt failed. Can not reset the device", 1.0),
    ),
    ("neighbour: arp_cache: neighbor table overflow!", TableFull("arp_cache", 1.0)),
    ("Neighbour table overflow.", TableFull("arp_cache", 1.0)),
    ("nf_conntrack: nf_conntrack: table full, dropping packet", TableFull("conntrack", 1.0)),
    ("nf_conntrack: table full, dropping packet", TableFull("conntrack", 1.0)),
    ("mlx5_core 0000:5c:00.0 ens1f0np0: Link down", LinkDown("ens1f0np0", "link down", 1.0)),
    (
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable unplugged",
        LinkDown("0000:5c:00.0", "cable unplugged", 1.0),
    ),
    (
        "mlx5_core 0000:5c:00.0: port_module:249:(pid 0): Port module event[error]: module 0, Cable error, Bad cable",
        LinkDown("0000:5c:00.0", "cable error", 1.0),
    ),
]
FORMS = [*MEMORY, *HARDWARE, *PCIE, *OTHERS, *KERNEL, *DISKS, *NETWORK]
