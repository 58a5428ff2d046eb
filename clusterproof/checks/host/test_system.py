"""The root volume, hanging processes and zombies, and devices without a driver."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.catalog.node import HUNG, USER
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings
from clusterproof.plugins.evidence.host.facts import BlockedProcess
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [mark.host, mark.preflight, mark.prolog]


@mark.ami
@mark.hyperpod_node_debugger("I.2")
@evidence("df -h /; df -i /")
def test_root_volume(node: Node) -> None:
    """Root volume space.

    A full root volume breaks logging, containers and SSM sessions, and with them every attempt to repair the node.
    Without free inodes no file can be created, however much space is left. An image (squashfs, erofs, composefs) is
    always full, as on Talos and Bottlerocket, which write elsewhere: storage.space evaluates that.

    Remedy (clean up): Remove old logs, container images and core files (du -xh / | sort -h | tail). Move checkpoints
    and caches to shared or NVMe storage.
    """
    root = node.mount_at("/")
    if root and root.image_type:
        not_applicable(f"/ is an image ({root.image_type}), to which nothing can be written")
    with part:
        if root and root.inodes and root.inodes_free is not None:
            percent = 100 * (1 - root.inodes_free / root.inodes)
            full, filling = node.threshold("space.used_fail_percent"), node.threshold("space.used_concern_percent")
            seen = f"/ has {percent:.1f} % of its {root.inodes} inodes in use"
            fail_if(percent >= full, f"{seen}; expected less than {full:.0f} %")
            concern_if(filling <= percent < full, f"{seen}; expected less than {filling:.0f} %")
    if root is None or not root.total_kib or root.free_kib is None:
        incomplete("the root volume does not report its size")
    used = 100 * (1 - root.free_kib / root.total_kib)
    fail, worry = node.threshold("root.used_fail_percent"), node.threshold("root.used_concern_percent")
    assert used < fail, f"/ is {used:.0f} % full; expected less than {fail:.0f} %"
    if used >= worry:
        concern(f"/ is {used:.0f} % full; expected less than {worry:.0f} %")


@mark.epilog
@mark.hyperpod_node_debugger("G")
@evidence("ps -eo pid,stat,etimes,wchan:32,comm | awk '$2 ~ /^D/'; cat /proc/PID/stack")
def test_d_state(node: Node) -> None:
    """Processes in uninterruptible sleep.

    A process in uninterruptible sleep cannot be killed. If it stays inside a driver or a file system, a device, disk or
    file server does not answer, and everything that waits for the process hangs too. A wait in other kernel functions
    is a concern. Waits that any user can cause at will, as with vfork and FUSE, are ignored.

    Remedy (reset or reboot): Find what the process waits for (cat /proc/PID/stack). Reboot the node if a GPU driver or
    a mount does not recover.
    """
    limit_s = node.threshold("processes.d_state_fail_s")
    processes = known(lambda: node.blocked_processes, ())
    blocked = [
        process for process, waits in each(processes, lambda process: (process, process.waits_for)) if waits != USER
    ]
    dated = [*each(blocked, lambda process: (process, process.blocked_s))]
    long = [process for process, s in dated if (s or 0) > limit_s]
    hung = _waiting(process for process in long if process.waits_for in HUNG)
    more = known(lambda: node.blocked_alike, 0)
    unlisted = f", and {more} more like these" if more else ""
    fail_if(hung, f"in state D: {hung}{unlisted}; expected none for longer than {limit_s:.0f} s")
    others = _waiting(process for process in long if process.waits_for not in HUNG)
    unlisted = "" if hung else unlisted
    concern_if(others, f"in state D, outside any known driver or file system: {others}{unlisted}; expected none")
    ages = each((process for process, s in dated if s is None), lambda process: (process, process.age_s))
    undated = ", ".join(f"{_name(process)} (pid {process.pid})" for process, age_s in ages if age_s > limit_s)
    twice = "in state D in both samples; the kernel does not say for how long"
    concern_if(undated, f"{twice}: {undated}; expected none")
    left_out = known(lambda: node.blocked_left_out, 0)
    if left_out:
        incomplete(f"in state D: {left_out} more that were not identified; expected none")


def _waiting(processes: Iterable[BlockedProcess]) -> str:
    return ", ".join(
        f"{_name(p)} (pid {p.pid}, {p.blocked_s or 0:.0f} s in {p.wait or 'the kernel'})" for p in processes
    )


def _name(process: BlockedProcess) -> str:
    return known(lambda: process.name, "a process")


@mark.hyperpod_node_debugger("I")
@evidence("ps -eo stat | grep -c ^Z")
def test_zombies(node: Node) -> None:
    """Zombie processes.

    Remedy (clean up): Find their parent process (ps -eo ppid,stat,comm | grep ' Z') and restart it.
    """
    limit = node.threshold("processes.zombies_concern")
    if node.zombies > limit:
        concern(f"{node.zombies} zombies; expected at most {limit:.0f}")


@mark.hyperpod_node_debugger("F")
@evidence("lspci -Dnnk")
def test_device_drivers(pci_device: PciDevice) -> None:
    """Device drivers.

    The PCI bus lists a GPU, network adapter or NVMe controller without a driver: initialisation failed, the driver gave
    up, or none is installed. The rest of the system does not see the device. Virtual functions are skipped: they wait
    for their VM or container. An unused port on the board may have no driver, so only EC2's and NVIDIA's devices fail.

    Remedy (fix configuration): Search the kernel log for the device's address. Load or install its driver; replace the
    node if it does not start.
    """
    if not pci_device.kind:
        not_applicable("neither a GPU nor a network adapter nor an NVMe controller")
    if pci_device.driver or pci_device.function_of:
        return
    device = " ".join((pci_device.kind, *(f"({model})" for model in readings(pci_device, "model")[0].values())))
    if pci_device.is_spare_port:
        concern(f"no driver holds {device}; expected one, unless nobody uses it")
    assert pci_device.driver, f"no driver holds {device}; expected one"
