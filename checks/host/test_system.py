"""The host itself: its root volume, its processes, its services."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import threshold
from clusterproof.plugins.facts.kernel_log import HungTask
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.manifest.told import unattached
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import concern, incomplete, not_applicable

pytestmark = [pytest.mark.host, pytest.mark.preflight, pytest.mark.prolog]

DCGM = ("nvidia-dcgm", "dcgm")


@pytest.mark.ami
@pytest.mark.hyperpod_node_debugger("I.2")
@evidence("df -h /; df -i /")
def test_root_volume(node: Node) -> None:
    """The root volume is full.

    A full root volume breaks logging, containers and SSM sessions, and so every attempt to repair the node.

    Remedy: Remove old logs, images and core files; move checkpoints and caches to the shared or the NVMe file system.
    """
    root = node.mount_at("/")
    if root is None or root.total_kib is None or root.free_kib is None or not root.total_kib:
        incomplete("the root volume does not tell its size")
    assert root.inodes_free != 0 or not root.inodes, f"no inode free of {root.inodes}; expected some"
    used = 100 * (1 - root.free_kib / root.total_kib)
    fail, worry = threshold("root.used_fail_percent"), threshold("root.used_concern_percent")
    assert used < fail, f"/ is {used:.0f} % full; expected less than {fail:.0f} %"
    if used >= worry:
        concern(f"/ is {used:.0f} % full; expected less than {worry:.0f} %")


@pytest.mark.epilog
@pytest.mark.hyperpod_node_debugger("G")
@evidence("ps -eo pid,stat,etimes,wchan:32,comm | awk '$2 ~ /^D/'")
def test_d_state(node: Node) -> None:
    """Processes hang in the kernel.

    A process in uninterruptible sleep cannot be killed; one that stays there waits for a driver, a disk or a file
    server that does not answer, and whoever waits for it hangs as well.

    Remedy: Find what it waits for (wchan). A hung GPU driver or a dead mount that does not come back needs a reboot.
    """
    limit_s = threshold("processes.d_state_fail_s")
    hung = [process for process in node.blocked_processes if (process.blocked_s or 0) > limit_s]
    seen = ", ".join(f"{p.name} (pid {p.pid}, {p.blocked_s or 0:.0f} s in {p.wait or 'the kernel'})" for p in hung)
    assert not hung, f"in state D: {seen}; expected none for longer than {limit_s:.0f} s"
    untold = [p for p in node.blocked_processes if p.blocked_s is None and p.age_s > limit_s]
    if untold:
        named = ", ".join(f"{p.name} (pid {p.pid})" for p in untold)
        concern(f"in state D at both looks, the kernel does not tell for how long: {named}; expected none")
    told = [event for event in node.kernel_events if isinstance(event, HungTask)]
    if told:
        last = f"{told[-1].process} (pid {told[-1].pid}) for more than {told[-1].seconds} s"
        concern(f"since boot the kernel told {len(told)} times of a hung task, the last: {last}; expected none")


@pytest.mark.hyperpod_node_debugger("I")
@evidence("ps -eo stat | grep -c ^Z")
def test_zombies(node: Node) -> None:
    """Many dead processes are not waited for.

    Remedy: Find their parent (ps -eo ppid,stat | grep Z) and restart it.
    """
    limit = threshold("processes.zombies_concern")
    if node.zombies > limit:
        concern(f"{node.zombies} zombies; expected at most {limit:.0f}")


@pytest.mark.ami
@pytest.mark.hyperpod_node_debugger("D")
@evidence("systemctl --failed; systemctl status slurmd munge containerd nvidia-persistenced")
def test_services(node: Node) -> None:
    """A service that the node needs does not run.

    A unit that failed, or one that is enabled and does not run. A service that is not installed or not enabled is not
    missed, but for DCGM: without it nobody watches the GPUs while jobs run. A machine that only builds an image need
    not run those that are there for a device it has not.

    Remedy: Read its log (journalctl -u NAME), mend what it names and start it.
    """
    idle = deviceless(node)
    failed = ", ".join(unit for unit in node.failed_units if unit.removesuffix(".service") not in idle)
    assert not failed, f"failed: {failed}; expected no failed unit"
    dead = [
        f"{name} is {service.active}"
        for name, service in node.services.items()
        if name not in idle
        and service.is_installed
        and service.enabled == "enabled"
        and service.active not in ("active", "activating", "reloading")
    ]
    assert not dead, f"{', '.join(dead)}; expected every enabled service active"
    if idle:
        not_applicable(f"no device for {', '.join(idle)} is attached to this {node.type_name}; all others run")
    dcgm = {name: service.active for name, service in node.services.items() if name in DCGM and service.is_installed}
    if dcgm and "active" not in dcgm.values():
        concern(f"{', '.join(f'{name} is {state}' for name, state in dcgm.items())}; expected DCGM to watch the GPUs")


def deviceless(node: Node) -> list[str]:
    """The services that wait for a device which a machine that only builds images has not."""
    if node.occasion != "ami" or not node.is_build_host:
        return []
    return [
        name
        for name, service in node.services.items()
        if service.is_installed and service.active != "active" and unattached(node, name)
    ]
