"""Lines of the kernel log that are read closer than by their form, each with the event that it is."""

from __future__ import annotations

from clusterproof.plugins.evidence.kernel_log.events_host import AllocationFailure, OomKill, Segfault
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
