"""Kernel settings and taints, folders of all users, and limits of logins, daemons and the whole node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, reading_of
from clusterproof.plugins.evidence.group import compared, describe, differences
from clusterproof.plugins.evidence.host.facts_node import LOGIN, PORTS
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]

OVERCOMMIT, BACKLOG = "/proc/sys/vm/overcommit_memory", "/proc/sys/net/core/somaxconn"
NAMESPACES, PRELOAD = "/proc/sys/user/max_user_namespaces", "/etc/ld.so.preload"
ISOLATED = "/sys/devices/system/cpu/isolated"
NEVER = 2  # memory is promised only as far as there is some
ALL, STICKY = 0o007, 0o1000


@mark.ami
@mark.hyperpod_node_debugger("I")
@evidence(
    "sysctl vm.overcommit_memory net.core.somaxconn net.ipv4.ip_local_port_range user.max_user_namespaces "
    "kernel.pid_max; grep . /etc/ld.so.preload /sys/devices/system/cpu/isolated; taskset -cp $(pgrep -o slurmd); "
    "grep 'open files' /proc/$(pgrep -o slurmd)/limits"
)
def test_kernel_settings(node: Node) -> None:
    """Kernel settings.

    CUDA reserves far more address space than there is memory, which a kernel without overcommit refuses. Thousands of
    ranks connect to one rank at once, and each connection needs a port. Other settings are compared with the group:
    user namespaces, which enroot needs; isolated CPUs; preloaded libraries; the job daemon's CPU affinity and open-file
    limit, which jobs inherit; and the maximum process ID.

    Remedy (fix configuration): Set the value in /etc/sysctl.d as on the other nodes, then run sysctl --system. isolcpus
    is set on the kernel command line, CPUAffinity in the daemon's unit.
    """
    least, ports = node.threshold("settings.somaxconn"), node.threshold("settings.ports")
    with part:
        concern_if(node.kernel_limits.number(OVERCOMMIT) == NEVER, "vm.overcommit_memory 2; expected 0 or 1")
    with part:
        has = node.kernel_limits.number(BACKLOG)
        concern_if(has is not None and has < least, f"net.core.somaxconn {has}; expected at least {least:.0f}")
    with part:
        has = node.kernel_limits.ports
        concern_if(
            has is not None and has < ports,
            f"{has} ports in net.ipv4.ip_local_port_range; expected at least {ports:.0f}",
        )
    deviations = known(
        lambda: differences(
            node, "settings", lambda other: {**_set(other), **_cpus(other), **_open_files(other)}, absent=None
        ),
        (),
    )
    concern_if(deviations, describe(deviations))


COMPARED: Mapping[str, Callable[[Node], str | None]] = {
    "vm.overcommit_memory": lambda node: node.kernel_limits.setting(OVERCOMMIT) or None,
    "net.core.somaxconn": lambda node: node.kernel_limits.setting(BACKLOG) or None,
    "net.ipv4.ip_local_port_range": lambda node: "-".join(node.kernel_limits.setting(PORTS).split()) or None,
    "user.max_user_namespaces": lambda node: "0" if node.kernel_limits.number(NAMESPACES) == 0 else "more",
    "kernel.pid_max": lambda node: _pid_max(node),
    "isolated CPUs": lambda node: node.kernel_limits.setting(ISOLATED) or "nothing",
    "/etc/ld.so.preload": lambda node: " ".join(node.kernel_limits.setting(PRELOAD).split()) or "nothing",
}


PIDS, PIDS_OF_A_CPU = 32768, 1024  # what Linux begins with: kernel/pid.c, pid_idr_init


def _pid_max(node: Node) -> str | None:
    """How many processes the kernel can number; None if unknown, or the kernel's default for its CPUs."""
    most = reading_of(node.kernel_limits, "pid_max")
    cpus = reading_of(node, "boot.cpus")
    is_own = cpus is not None and most == max(PIDS, PIDS_OF_A_CPU * cpus)
    return None if most is None or is_own else str(most)


def _set(node: Node) -> Mapping[str, str | None]:
    return compared(node, COMPARED)


def _cpus(node: Node) -> Mapping[str, str | None]:
    """The CPUs of each daemon that starts jobs."""
    daemons = known(lambda: node.process_limits, {})
    cpus_of = each(daemons.items(), lambda daemon: (daemon[0], daemon[1].cpus if "cpus" in daemon[1].data else ""))
    return {f"CPUs of {name}": cpus for name, cpus in cpus_of if cpus}


def _open_files(node: Node) -> Mapping[str, str | None]:
    """How many files each daemon that starts jobs may open, as far as that is known."""
    most: dict[str, str | None] = {}
    for name, limits in known(lambda: node.process_limits, {}).items():
        with suppress(Incomplete):  # which host.ulimits says
            most[f"nofile of {name}"] = str(limits.soft("nofile") or "unlimited")
    return most


@mark.hyperpod_node_debugger("N")
@evidence("cat /proc/sys/kernel/tainted")
def test_kernel_taint(node: Node) -> None:
    """Kernel taint.

    Until the next boot, the kernel's taint flags record a machine check, a bad page, an Oops or a soft lockup, even if
    the log no longer has the line.

    Remedy (investigate): Find the error in the journal (journalctl -k). Replace the node after a machine check or a bad
    page; otherwise reboot it.
    """
    taints = node.kernel_limits.taints
    concern_if(taints, f"the kernel is tainted by {' and '.join(taints)}; expected none since boot")


@mark.ami
@mark.hyperpod_node_debugger("I")
@evidence("stat -c '%a %n' /tmp /var/tmp /dev/shm")
def test_shared_folders(node: Node) -> None:
    """Folders of all users.

    Compilers, launchers and data loaders write to /tmp, NCCL to /dev/shm. If only root may write there, jobs fail;
    without the sticky bit, any user can delete another user's files.

    Remedy (fix configuration): chmod 1777 FOLDER, and find out what changed the mode.
    """
    modes = dict(each(node.kernel_limits.modes, lambda folder: (folder, node.kernel_limits.mode(folder))))
    closed = ", ".join(f"{folder} has mode {mode:04o}" for folder, mode in modes.items() if mode & ALL != ALL)
    fail_if(closed, f"{closed}; expected 1777")
    loose = ", ".join(
        f"{folder} has mode {mode:04o}" for folder, mode in modes.items() if mode & ALL == ALL and not mode & STICKY
    )
    concern_if(loose, f"{loose}; expected 1777")


@mark.ami
@mark.job
@mark.hyperpod_nccl("17")
@evidence("ulimit -s -n -u; cat /proc/$(pgrep -o slurmd)/limits")
def test_ulimits(node: Node) -> None:
    """Stack, file and process limits.

    Jobs inherit the limits of the daemon that starts them. A training process has many connections and threads. If the
    stack is unlimited, glibc gives each thread one of only 2 MiB, in which NCCL has crashed in large jobs.

    Remedy (fix configuration): Set nofile, nproc and stack in /etc/security/limits.conf, and LimitNOFILE, LimitNPROC
    and LimitSTACK in the daemon's unit, then restart the daemon. For a container: --ulimit.
    """
    stack_kib, stacks = node.threshold("stack.minimum_kib"), _of(node, "stack")
    small = ", ".join(f"{size // 1024} KiB for {owner}" for owner, size in _less(stacks, stack_kib * 1024))
    fail_if(small, f"stack is {small}; expected at least {stack_kib:.0f} KiB")
    least = {name: node.threshold(f"limits.{name}") for name in ("nofile", "nproc")}
    few = [(name, owner, has) for name, limit in least.items() for owner, has in _less(_of(node, name), limit)]
    wanted = ", ".join(f"{name} {least[name]:.0f}" for name in dict.fromkeys(name for name, *_ in few))
    seen = ", ".join(f"{name} {has} for {owner}" for name, owner, has in few)
    concern_if(few, f"{seen}; expected at least {wanted}")
    nodes, large = len(node.group.nodes), node.threshold("stack.large_job_nodes")
    unlimited = [owner for owner, size in stacks.items() if size is None]
    concern_if(
        unlimited and nodes >= large,
        f"stack is unlimited for {', '.join(unlimited)}, and a job can span {nodes} nodes; "
        f"expected a limited one, such as 8192 KiB, on clusters of {large:.0f} nodes or more",
    )


def _of(node: Node, name: str) -> dict[str, int | None]:
    """One limit of jobs: that of a login and of each daemon, as far as it could be read; None is unlimited."""
    return dict(each(node.job_limits.items(), lambda daemon: (daemon[0], daemon[1].soft(name))))


def _less(limits: dict[str, int | None], least: float) -> list[tuple[str, int]]:
    return [(owner, has) for owner, has in limits.items() if has is not None and has < least]


@mark.ami
@mark.hyperpod_node_debugger("I")
@evidence(
    "systemctl show -p Id,MemoryMax slurmd containerd system.slice; "
    "grep . /sys/fs/cgroup/system.slice/{slurmd,containerd}.service/memory.max"
)
def test_daemon_memory(node: Node) -> None:
    """Job daemon memory limit.

    Everything the daemon starts shares the memory limit of its cgroup or a parent cgroup, unless it is moved to
    another. Jobs are then killed at that limit although they stayed within their own, and the node has memory left.

    Remedy (fix configuration): Remove MemoryMax and MemoryHigh from the daemon's unit and its slice (systemctl edit),
    and restart it.
    """
    percent = node.threshold("memory.daemon_percent")
    daemons = {name: limits for name, limits in node.process_limits.items() if name != LOGIN}
    if not daemons:
        not_applicable("neither slurmd nor containerd runs here")
    limits_of = dict(each(daemons.items(), lambda daemon: (daemon[0], daemon[1].soft("memory"))))
    total_kib = node.main_memory.total_kib
    little = {
        name: most for name, most in limits_of.items() if most is not None and most < total_kib * 1024 * percent / 100
    }
    if little:
        seen = ", ".join(f"{name} may use {most / 2**30:.4g} GiB" for name, most in little.items())
        concern(f"{seen} of {total_kib / 2**20:.0f} GiB; expected at least {percent:.0f} %, or no limit")


@mark.hyperpod_node_debugger("I")
@evidence(
    "cat /proc/sys/fs/file-nr; sysctl fs.file-max; lsof -n | awk '{print $1, $3}' | sort | uniq -c | sort -n | tail"
)
def test_open_files(node: Node) -> None:
    """Open files of the whole node.

    At the limit only root can open a file or a socket: data loaders and NCCL fail, whatever their ulimit. Any user can
    hold many files, so this does not block jobs on the node.

    Remedy (clean up): Find the process that holds them (lsof -n) and
    restart it. Raise fs.file-max if jobs need that many.
    """
    limits, percent = node.kernel_limits, node.threshold("processes.open_files_percent")
    least = node.threshold("limits.nofile")
    concern_if(
        limits.max_files < least, f"fs.file-max {limits.max_files}; expected at least {least:.0f}, as for a user"
    )
    is_full = limits.open_files >= limits.max_files * percent / 100
    concern_if(is_full, f"{limits.open_files} of {limits.max_files} files are open; expected less than {percent:.0f} %")


@mark.hyperpod_node_debugger("I")
@evidence(
    "sysctl kernel.pid_max kernel.threads-max; ps -eLf | wc -l; grep . /sys/fs/cgroup/system.slice/*/pids.{current,max}"
)
def test_process_ids(node: Node) -> None:
    """Processes and threads of the whole node.

    At the limit no process or thread can start ("Resource temporarily unavailable"): data loaders, NCCL's threads and
    the job daemons fail. Everything that Slurm or the kubelet starts shares its cgroup's limit (TasksMax). Any user can
    start many, so this does not block jobs on the node.

    Remedy (clean up): Find their owner (ps -eLo user= | sort | uniq -c) and kill them. If jobs need that many, raise
    kernel.pid_max, or TasksMax in the daemon's unit.
    """
    limits, percent = node.kernel_limits, node.threshold("processes.pids_percent")
    least = node.threshold("processes.pid_max")
    with part:
        concern_if(limits.pid_max < least, f"kernel.pid_max {limits.pid_max}; expected at least {least:.0f}")
    kernel = {"kernel.pid_max": lambda: limits.pid_max, "kernel.threads-max": lambda: limits.threads_max}
    rows = [
        *each(kernel, lambda name: (limits.threads, kernel[name](), name)),
        *each(known(lambda: limits.groups, ()), lambda group: (group.pids, group.most, group.path)),
    ]
    full = [f"{has} of {most} ({limit_name})" for has, most, limit_name in rows if has >= most * percent / 100]
    concern_if(full, f"processes and threads: {', '.join(full)}; expected less than {percent:.0f} %")
