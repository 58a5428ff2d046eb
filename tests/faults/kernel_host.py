"""The kernel log's reports on the host itself: memory, processors, and the kernel."""

from __future__ import annotations

from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.kernel_log import logged
from tests.testbed.image import NodeImage
from tests.testbed.kernel_log import edac_controller, report
from tests.testbed.node import with_file
from tests.testbed.pci import GPU_BUSES

CGROUP = "/slurm/uid_1000/job_77"
GPU = f"0000:{GPU_BUSES[0]:02x}:00.0"


def counted(image: NodeImage, **counts: int) -> NodeImage:
    """The node's memory controllers have counted errors."""
    return reduce(lambda made, file: with_file(made, *file), edac_controller(**counts).items(), image)


FAULTS = (
    Fault(
        "a hung task in the kernel log",
        logged("INFO: task python3:4242 blocked for more than 122 seconds."),
        {"host.lockups": CONCERN},
        "python3 (pid 4242), for more than 122 s",
    ),
    Fault(
        "a process killed for lack of memory",
        logged("Out of memory: Killed process 3921 (python3) total-vm:812345kB, anon-rss:801234kB"),
        {"host.no_oom_kill": FAIL},
        "killed for lack of memory: python3 (pid 3921) (at 20",
    ),
    Fault(
        "a fork that the kernel refused",
        logged("cgroup: fork rejected by pids controller in /user.slice/user-1000.slice"),
        {"host.no_oom_kill": CONCERN},
        "fork rejected by pids controller in /user.slice/user-1000.slice",
    ),
    Fault(
        "a page that the kernel could not give",
        logged("kworker/u8:2: page allocation failure: order:0, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)"),
        {"host.no_oom_kill": FAIL},
        "page allocation failure of kworker/u8:2, order 0",
    ),
    Fault(
        "many pages together that the kernel could not give",
        logged("python3: page allocation failure: order:5, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO)"),
        {"host.no_oom_kill": CONCERN},
        "page allocation failure of python3, order 5",
    ),
    Fault(
        "a job that reached its limit of memory",
        logged(
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={CGROUP},"
            f"task_memcg={CGROUP}/step_0,task=python3,pid=3921,uid=1000",
            "Memory cgroup out of memory: Killed process 3921 (python3) total-vm:10kB, anon-rss:9kB, file-rss:0kB",
        ),
        {"host.no_oom_kill": CONCERN},
        f"at the limit of {CGROUP}: python3 (pid 3921)",
    ),
    Fault(
        "a job that filled the NUMA node that it is bound to",
        logged(
            "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=0,cpuset=/,mems_allowed=0-1,global_oom,"
            "task_memcg=/user.slice,task=python3,pid=3921,uid=1000",
            "Out of memory: Killed process 3921 (python3) total-vm:10kB, anon-rss:9kB, file-rss:0kB",
        ),
        {"host.no_oom_kill": CONCERN},
        "at the limit of the NUMA nodes that it is bound to: python3 (pid 3921)",
    ),
    Fault(
        "an uncorrected memory error in the kernel log",
        logged("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x30aa905)"),
        {"host.mce_edac": FAIL},
        "EDAC MC0: 1 UE memory read error",
    ),
    Fault(
        "a fatal error that the firmware reported",
        logged("{1}[Hardware Error]: event severity: fatal"),
        {"host.mce_edac": FAIL},
        "event severity: fatal",
    ),
    Fault(
        "an error of a GPU on the bus that the firmware reported, and that was recovered from",
        logged(*report(2, "recoverable", "section_type: PCIe error", f"device_id: {GPU}")),
        {"host.pcie_aer": CONCERN},
        f"nonfatal error of {GPU} (GPU 0, GPU-",
    ),
    Fault(
        "an error of memory that the firmware reported as recoverable",
        logged(*report(3, "recoverable", "section_type: memory error")),
        {"host.mce_edac": FAIL},
        "event severity: recoverable (memory error)",
    ),
    Fault(
        "an error of a processor that was recovered from",
        logged(*report(4, "recoverable", "section_type: general processor error")),
        {"host.mce_edac": CONCERN},
        "event severity: recoverable (general processor error)",
    ),
    Fault(
        "an error of what only its vendor knows, that was recovered from",
        logged(*report(8, "recoverable", "section type: unknown, 6d5244f2-2712-11ec-bea7-cb3fdb95c786")),
        {"host.mce_edac": CONCERN},
        "event severity: recoverable (unknown)",
    ),
    Fault(
        "a machine check that was not corrected",
        logged("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"),
        {"host.mce_edac": FAIL},
        "Machine Check Exception",
    ),
    Fault(
        "an uncorrected memory error that a controller counted",
        lambda image: counted(image, uncorrected=1),
        {"host.mce_edac": FAIL},
        "mc0: CPU_SrcID#0_MC#0_Chan#1_DIMM#0 counts 1 uncorrected",
    ),
    Fault(
        "many corrected memory errors that a controller counted",
        lambda image: counted(image, corrected=40),
        {"host.mce_edac": CONCERN},
        "corrected errors a day (mc0: CPU_SrcID#0_MC#0_Chan#1_DIMM#0); expected at most 9",
    ),
    Fault(
        "many corrected memory errors in the kernel log",
        logged(*("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0" for _ in range(100))),
        {"host.mce_edac": CONCERN},
        "100 corrected errors a day (in the log: MC0 CPU_SrcID#0_MC#0_Chan#1_DIMM#0); expected at most 9",
    ),
    Fault(
        "a hardware error that ended the boot before",
        logged("BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal"),
        {"host.mce_edac": CONCERN},
        "the previous boot ended with [Hardware Error]: event severity: fatal",
    ),
    Fault(
        "a memory controller whose counters may not be read",
        lambda image: with_file(counted(image), "/sys/devices/system/edac/mc/mc0/ue_count", "many\n"),
        {"host.mce_edac": INCOMPLETE},
        "uncorrected could not be read",
    ),
    Fault(
        "training that crashes in NCCL",
        logged(
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 "
            "in libnccl.so.2[7f7c7ac00000+d3d3000]"
        ),
        {"host.segfaults": CONCERN},
        "pt_main_thread in libnccl.so.2",
    ),
    Fault(
        "a CPU that handles no interrupts",
        logged("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"),
        {"host.lockups": FAIL},
        "hard lockup (at 20",
    ),
    Fault(
        "a CPU held by one task",
        logged("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [nvidia-smi:4711]"),
        {"host.lockups": CONCERN},
        "soft lockup (at 20",
    ),
    Fault(
        "a stall of the kernel",
        logged("rcu: INFO: rcu_sched self-detected stall on CPU"),
        {"host.lockups": CONCERN},
        "RCU stall (at 20",
    ),
    Fault(
        "an error of the kernel's own",
        logged("BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0000 [#1] PREEMPT SMP NOPTI"),
        {"host.kernel_oops": FAIL},
        "BUG: kernel NULL pointer dereference, address: 0000000000000008 (at 20",
    ),
    Fault(
        "a processor that is too hot",
        logged("mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 5)"),
        {"host.cpu_throttled": CONCERN},
        "a CPU package was above its temperature (at 20",
    ),
    Fault(
        "a page of memory that was taken away",
        logged("Memory failure: 0x3f5d2a: recovery action for dirty LRU page: Recovered"),
        {"host.mce_edac": CONCERN},
        "a page with an uncorrectable error was taken offline",
    ),
    Fault(
        "a page of memory that could not be taken away",
        logged("Memory failure: 0x3f5d2a: recovery action for reserved kernel page: Ignored"),
        {"host.mce_edac": FAIL},
        "recovery action for reserved kernel page: Ignored",
    ),
    Fault(
        "a node whose files are all open",
        logged("VFS: file-max limit 2000 reached"),
        {"host.no_oom_kill": FAIL},
        "all 2000 of the node are open",
    ),
    Fault(
        "a machine that shuts down for its heat",
        logged("thermal thermal_zone0: acpitz: critical temperature reached, shutting down"),
        {"host.cpu_throttled": FAIL},
        "thermal_zone0: the machine is so hot that it shuts down",
    ),
    Fault(
        "a clock that became unstable",
        logged("clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is"),
        {"host.kernel_oops": CONCERN},
        "the clock tsc is unstable",
    ),
)
