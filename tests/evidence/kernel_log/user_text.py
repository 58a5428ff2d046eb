"""Kernel records that contain an unprivileged user's text, by the user's action; `{}` is the text."""

from __future__ import annotations

COMM_CHARACTERS = 15  # in a process's name (Linux, TASK_COMM_LEN)

# Anybody may mount in their own user namespace, and run a program of any name. The kernel reads a file system's options
# before it asks whether the user may mount it.
ANY_LENGTH = {
    "an option of tmpfs": "tmpfs: Unknown parameter '{}'",
    "a second line in an option of tmpfs": "tmpfs: Unknown parameter 'x\n{}'",
    "an option of a file system that only root mounts": "ext4: Unknown parameter '{}'",
    "an option of xfs": "XFS: unknown mount option [{}].",
    "an option of fuse": "fuse: Unknown parameter '{}'",
    "an option of nfs": "nfs: Unknown parameter '{}'",
    "an option of overlay": 'overlayfs: unrecognized mount option "{}" or missing value',
    "a folder of overlay": "overlayfs: failed to resolve '{}': -2",
    "an option of a control group's file system": "cgroup: Unknown subsys name '{}'",
    "a program whose stack is executable": "process '{}' started with executable stack",
    "such a program at the root of a file system": "process '/{}' started with executable stack",
    "a system call that a filter refuses": 'audit: type=1326 audit(1763583600.1:7): pid=77 comm="x" exe="{}" sig=31',
    "a library in which a process crashes": (
        "x[77]: segfault at 0 ip 000055d0 sp 00007ffd error 4 in {}[55d0+1000] likely on CPU 3 (core 3, socket 0)"
    ),
    "a file in a damaged image that is mounted": "EXT4-fs error (device loop3): ext4_lookup:1815: comm x: bad {}",
    "a control group that is full": "cgroup: fork rejected by pids controller in /user.slice/{}",
}
OF_A_PROCESS = {
    "a crash": "{}[77]: segfault at 0 ip 000055d0 sp 00007ffd error 4 in libc.so.6[167ad8,7fd7+156000] likely on CPU 0",
    "an invalid instruction": "traps: {}[77] trap invalid opcode ip:55d0 sp:7ffd error:0 in x[55d0+1000]",
    "a bad frame": "{}[77] bad frame in rt_sigreturn frame:000000008a7 ip:55d0 sp:7ffd orax:ffffffffffffffff in x[1+1]",
    "a crash on arm64": "{}[77]: unhandled exception: DABT (lower EL), ESR 0x0000000092000006, in x[1+1]",
    "the old system call page": "{}[77] vsyscall read attempt denied -- look up the vsyscall kernel parameter ip:55d0",
    "a limit of memory": "{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "huge pages": "{} (77): Using mlock ulimits for SHM_HUGETLB is obsolete",
    "many pages together": (
        "{}: page allocation failure: order:9, mode:0x40dc0(GFP_KERNEL|__GFP_COMP), nodemask=(null),cpuset=/,"
        "mems_allowed=0-1"
    ),
    "a long wait": "INFO: task {}:77 blocked for more than 122 seconds.",
    "a limit of its data": "mmap: {} (77): VmData 1 exceed data ulimit 2. Update limits",
    "a futex": "futex_wake_op: {} tries to shift op by 800; fix this program",
    "a kill at a limit": "Memory cgroup out of memory: Killed process 77 ({}) total-vm:1kB, anon-rss:1kB, UID:1000",
    "a kill that is announced": (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/x,task_memcg=/x,task={},pid=77,uid=1000"
    ),
    "a GPU program's error": "NVRM: Xid (PCI:0000:53:00): 31, pid=77, name={}, Ch 00000008, intr 10000000. MMU Fault",
    "two lines in a GPU program's name": "NVRM: Xid (PCI:0000:53:00): 31, pid=77, name=\n{}, Ch 00000008",
}
