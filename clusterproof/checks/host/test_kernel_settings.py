"""Settings of the kernel and of the system that every job inherits, and what has happened to the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.group import compared, differences, in_words
from clusterproof.plugins.evidence.host.facts_node import PORTS
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
    "sysctl vm.overcommit_memory net.core.somaxconn net.ipv4.ip_local_port_range user.max_user_namespaces; "
    "cat /etc/ld.so.preload /sys/devices/system/cpu/isolated; taskset -cp $(pgrep -o slurmd)"
)
def test_kernel_settings(node: Node) -> None:
    """Kernel settings.

    CUDA reserves far more addresses than there is memory, which a kernel that never overcommits refuses. Thousands of
    ranks connect to one at once, and each needs a port of its own. What else may differ is compared with the group:
    whether users may have namespaces, as enroot needs; which CPUs run nothing unless it asks for them; which library
    every program loads first; on which CPUs the daemon that starts jobs may run, and with it what it starts.

    Remedy (fix configuration): Set it in /etc/sysctl.d as on the other nodes (sysctl --system). isolcpus is on the
    kernel's command line, CPUAffinity in the daemon's unit.
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
    found = known(lambda: differences(node, "settings", lambda one: {**_set(one), **_cpus(one)}, absent=None), ())
    concern_if(found, in_words(found))


COMPARED: Mapping[str, Callable[[Node], str | None]] = {
    "vm.overcommit_memory": lambda node: node.kernel_limits.setting(OVERCOMMIT) or None,
    "net.core.somaxconn": lambda node: node.kernel_limits.setting(BACKLOG) or None,
    "net.ipv4.ip_local_port_range": lambda node: "-".join(node.kernel_limits.setting(PORTS).split()) or None,
    "user.max_user_namespaces": lambda node: "0" if node.kernel_limits.number(NAMESPACES) == 0 else "more",
    "isolated CPUs": lambda node: node.kernel_limits.setting(ISOLATED) or "nothing",
    "/etc/ld.so.preload": lambda node: " ".join(node.kernel_limits.setting(PRELOAD).split()) or "nothing",
}


def _set(node: Node) -> Mapping[str, str | None]:
    return compared(node, COMPARED)


def _cpus(node: Node) -> Mapping[str, str | None]:
    """The CPUs of each daemon that starts jobs."""
    daemons = known(lambda: node.process_limits, {})
    data = each(daemons.items(), lambda daemon: (daemon[0], daemon[1].cpus if "cpus" in daemon[1].data else ""))
    return {f"CPUs of {name}": cpus for name, cpus in data if cpus}


@mark.hyperpod_node_debugger("N")
@evidence("cat /proc/sys/kernel/tainted")
def test_kernel_taint(node: Node) -> None:
    """Kernel taint.

    The kernel keeps until the next boot that a machine check, a bad page, an Oops or a soft lockup has happened, also
    where its log no longer has the line.

    Remedy (investigate): Look for the line in the journal. Replace the node after a machine check or a bad page;
    otherwise reboot it.
    """
    taints = node.kernel_limits.taints
    concern_if(taints, f"the kernel is tainted by {' and '.join(taints)}; expected none since boot")


@mark.ami
@mark.hyperpod_node_debugger("I")
@evidence("stat -c '%a %n' /tmp /var/tmp /dev/shm")
def test_shared_folders(node: Node) -> None:
    """Folders of all users.

    Compilers, launchers and data loaders write to /tmp, NCCL to /dev/shm. Where others than root may not, jobs fail;
    without the sticky bit any user may remove what another has written.

    Remedy (fix configuration): chmod 1777, and find out who changed it.
    """
    modes = dict(each(node.kernel_limits.modes, lambda folder: (folder, node.kernel_limits.mode(folder))))
    closed = ", ".join(f"{folder} has mode {mode:04o}" for folder, mode in modes.items() if mode & ALL != ALL)
    fail_if(closed, f"{closed}; expected 1777")
    loose = ", ".join(
        f"{folder} has mode {mode:04o}" for folder, mode in modes.items() if mode & ALL == ALL and not mode & STICKY
    )
    concern_if(loose, f"{loose}; expected 1777")
