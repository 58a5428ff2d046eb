"""What the kernel log reports about the host."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.kernel_log import logged
from tests.testbed.buses import GPU_BUSES
from tests.testbed.image import NodeImage
from tests.testbed.kernel_log import edac_controller
from tests.testbed.node import with_file

AER = "PCIe Bus Error: severity={}, type=Transaction Layer, (Receiver ID)"
EVICTED = "LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress"
EFA = "efa 0000:4f:00.0 rdmap79s0: "
DISK = "nvme3n1"
CGROUP = "/slurm/uid_1000/job_77"
GPU = f"0000:{GPU_BUSES[0]:02x}:00.0"


def counted(image: NodeImage, **counts: int) -> NodeImage:
    """The node's memory controllers have counted errors."""
    return reduce(lambda made, file: with_file(made, *file), edac_controller(**counts).items(), image)


FAULTS = (
    Fault(
        "a hung task in the kernel log",
        logged("INFO: task python3:4242 blocked for more than 122 seconds."),
        {"host.d_state": CONCERN},
        "python3 (pid 4242)",
    ),
    Fault(
        "a process killed for want of memory",
        logged("Out of memory: Killed process 3921 (python3) total-vm:812345kB, anon-rss:801234kB"),
        {"host.no_oom_kill": FAIL},
        "killed for want of memory: python3 (pid 3921) (at 20",
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
        "100 corrected errors a day (in the log); expected at most 9",
    ),
    Fault(
        "a hardware error that ended the boot before",
        logged("BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal"),
        {"host.mce_edac": CONCERN},
        "the boot before ended with [Hardware Error]: event severity: fatal",
    ),
    Fault(
        "a memory controller whose counters may not be read",
        lambda image: with_file(counted(image), "/sys/devices/system/edac/mc/mc0/ue_count", "many\n"),
        {"host.mce_edac": INCOMPLETE},
        "uncorrected could not be read",
    ),
    Fault(
        "a fatal PCIe error of a GPU",
        logged(f"pcieport 0000:50:01.0: AER: Uncorrected (Fatal) error received: {GPU}"),
        {"host.pcie_aer": FAIL},
        f"fatal error of {GPU} (GPU 0, GPU-",
    ),
    Fault(
        "a PCIe error that is not fatal",
        logged(
            "pcieport 0000:80:01.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:81:00.0",
            "nvme 0000:81:00.0: " + AER.format("Uncorrectable (Non-Fatal)"),
        ),
        {"host.pcie_aer": CONCERN},
        "nonfatal error of 0000:81:00.0 (at 20",
    ),
    Fault(
        "corrected PCIe errors without end",
        logged(*(f"nvidia {GPU}: " + AER.format("Corrected") for _ in range(500))),
        {"host.pcie_aer": CONCERN},
        "500 times",
    ),
    Fault(
        "an EFA device that does not answer its driver",
        logged(
            EFA + "The device didn't send any completion for admin cmd CREATE_QP(1) status 0 (ctx 0x1, sq producer: 5"
        ),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: an admin command got no answer",
    ),
    Fault(
        "an EFA device of which only what followed its loss is in the log",
        logged(EFA + "Admin queue is closed", EFA + "Failed to submit command CREATE_QP (opcode 1) err -19"),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: the driver sends it no more commands",
    ),
    Fault(
        "an EFA device that is lost again after its driver was reloaded",
        logged(
            EFA + "Reset indication didn't turn off",
            "efa 0000:4f:00.0 efa_0: IB device registered",
            EFA + "Admin queue is closed",
        ),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: the driver sends it no more commands",
    ),
    Fault(
        "an EFA command that failed",
        logged(EFA + "Failed to process command CREATE_AH (opcode 5) comp_status 3 err -12"),
        {"network.efa_driver_errors": CONCERN},
        "rdmap79s0: a command failed",
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
        "a Lustre client that was evicted",
        logged(EVICTED),
        {"storage.file_system_errors": CONCERN},
        "fsx-OST0001 evicted this client",
    ),
    Fault(
        "an NFS server that does not respond",
        logged("nfs: server 10.0.0.9 not responding, still trying"),
        {"storage.file_system_errors": CONCERN},
        "10.0.0.9 does not respond",
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
        "a mounted disk whose file system has shut down",
        lambda image: logged(
            f"XFS ({DISK}): log I/O error -5",
            f"XFS ({DISK}): Filesystem has been shut down due to log error (0x2).",
        )(
            replace(
                image,
                mounted=tuple(line.replace("/dev/mapper/vg.01-lv_ephemeral", f"/dev/{DISK}") for line in image.mounted),
            )
        ),
        {"storage.disk_errors": FAIL},
        f"{DISK}: XFS has shut it down (at 20",
    ),
    Fault(
        "a file system that stopped, and is not mounted under that name",
        logged("EXT4-fs error (device dm-3): ext4_journal_check_start:87: comm python3: Detected aborted journal"),
        {"storage.disk_errors": CONCERN},
        "dm-3: ext4 found an error",
    ),
    Fault(
        "an NVMe disk whose commands time out",
        logged("nvme nvme1: I/O tag 333 (a14d) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:4096"),
        {"storage.disk_errors": CONCERN},
        "nvme1: a command timed out",
    ),
    Fault(
        "a network adapter that does not report to its driver",
        logged("ena 0000:00:05.0 ens5: Keep alive watchdog timeout."),
        {"network.ena_driver_errors": CONCERN},
        "ens5: the device did not report for seconds, and was reset",
    ),
    Fault(
        "a full neighbour table",
        logged("neighbour: arp_cache: neighbor table overflow!"),
        {"network.kernel_tables": CONCERN},
        "no room in arp_cache",
    ),
    Fault(
        "a full connection table",
        logged(*("nf_conntrack: nf_conntrack: table full, dropping packet" for _ in range(50))),
        {"network.kernel_tables": CONCERN},
        "no room in conntrack (50 times",
    ),
    Fault(
        "a link that flaps",
        logged(*("mlx5_core 0000:5c:00.0: Port module event: module 0, Cable unplugged" for _ in range(6))),
        {"network.link_flaps": CONCERN},
        "0000:5c:00.0 (cable unplugged, 6 times",
    ),
)
