"""Kernel settings that cost performance: NUMA, huge pages, the kernel's version, its clock."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import SIGNIFICANT, format_pair, listed
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import at_least_one, each, known, readings
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.host.facts import newest_installed
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [mark.host, mark.preflight, mark.ami]

# Read without a call into the kernel. Xen's, HPET and the ACPI timer are many times slower.
FAST_CLOCKSOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
WORDS = {"0": "off", "1": "on"}


@mark.hyperpod_node_debugger("I")
@evidence("numactl --hardware; grep . /sys/bus/pci/devices/*/numa_node")
def test_numa(node: Node) -> None:
    """NUMA layout.

    A socket with less memory than the others has lost a memory channel, and its CPUs use another socket's memory. If
    the firmware does not assign a GPU to a NUMA node, no process can be bound close to it.

    Remedy (investigate): Compare numactl --hardware and nvidia-smi topo -m with a healthy node; if they differ, replace
    the node.
    """
    sockets = known(lambda: at_least_one(list(node.main_memory.sockets), "NUMA node with CPUs"), [])
    near = [*each(known(lambda: node.pci_devices, ()), _place)]
    homeless = [address for address, socket in near if socket is not None and socket < 0]
    is_named = any(socket is not None and socket >= 0 for _, socket in near)
    concern_if(
        homeless and (is_named or len(sockets) > 1),
        f"{listed(homeless)} has no NUMA node; expected one for every GPU and EFA device",
    )
    if len(sockets) < 2:
        not_applicable("all CPUs are in one NUMA node")
    sizes = [*each(sockets, lambda socket: (socket, socket.memory_kib))]
    largest_kib = max((kib for _, kib in sizes), default=0)
    spread = node.threshold("memory.numa_differs_percent")
    least_kib = largest_kib * (1 - spread / 100)
    little = [(known(lambda: f"node {socket.node}", "a node"), kib) for socket, kib in sizes if kib < least_kib]  # noqa: B023 - at once
    short = [f"{node_name} has {kib / 2**20:.0f} GiB" for node_name, kib in little]
    most = f"{largest_kib / 2**20:.0f} GiB like the largest node, within {spread:.0f} %"
    concern_if(short, f"{', '.join(short)}; expected {most}")


def _place(pci: PciDevice) -> tuple[str, int | None]:
    return known(lambda: pci.address, "a device"), _socket_of(pci)


def _socket_of(pci: PciDevice) -> int | None:
    """The firmware's NUMA node of a GPU or an EFA device, -1 for none; None for any other device."""
    return pci.numa if pci.is_efa or pci.is_nvidia_gpu else None


@mark.hyperpod_performance_debugger("A")
@evidence("sysctl kernel.numa_balancing")
def test_numa_balancing(node: Node) -> None:
    """Automatic NUMA balancing.

    With NUMA balancing the kernel unmaps pages to see which CPU uses them, and the next access is a page fault. If
    processes are bound to their NUMA node, as on Grace superchips, it only costs time.

    Remedy (fix configuration): Set kernel.numa_balancing in /etc/sysctl.d as on the other nodes, or to 0 on instance
    types that need it off.
    """
    if known(lambda: len(node.main_memory.sockets), 2) < 2:
        not_applicable("all CPUs are in one NUMA node")
    state = _balancing(node)
    wanted = _wanted_balancing(node)
    if wanted and state != wanted:
        concern(f"NUMA balancing {state}; expected {wanted} on {node.instance_type}")
    deviations = (
        () if wanted else differences(node, "NUMA balancing", lambda other: {"NUMA balancing": _balancing(other)})
    )
    if deviations:
        concern(describe(deviations))


def _balancing(node: Node) -> str:
    setting = node.main_memory.numa_balancing
    if not setting:
        not_applicable("this kernel has no NUMA balancing")
    return WORDS.get(setting, setting)


def _wanted_balancing(node: Node) -> str | None:
    try:
        wanted = node.type.numa_balancing
    except Incomplete:
        return None  # then only the group shows it
    return None if wanted is None else WORDS[str(int(wanted))]


@mark.hyperpod_performance_debugger("A")
@evidence("cat /sys/kernel/mm/transparent_hugepage/enabled")
def test_thp(node: Node) -> None:
    """Transparent huge pages.

    Remedy (fix configuration): Set transparent_hugepage= on the kernel command line to the other nodes' value.
    """
    deviations = differences(node, "transparent huge pages", _transparent)
    if deviations:
        concern(describe(deviations))


def _transparent(node: Node) -> Values:
    mode = node.main_memory.transparent_mode
    if not mode:
        not_applicable("this kernel has no transparent huge pages")
    return {"transparent huge pages": mode}


@mark.hyperpod_node_debugger("N")
@evidence("uname -r; ls /boot/vmlinuz-* /lib/modules")
def test_kernel_running_is_installed(node: Node) -> None:
    """Running kernel.

    Kernel modules are built for the newest installed kernel: the next reboot changes drivers, and until then modules
    may fail to load.

    Remedy (reset or reboot): Reboot the node when no job is running, and rebuild the image with the intended kernel.
    """
    kernel = node.kernel_state
    images, with_modules = known(lambda: kernel.images, ()), known(lambda: kernel.with_modules, ())
    if not (images or with_modules):
        not_applicable("no kernel is installed here, as in a container")
    is_bare = with_modules and kernel.running not in with_modules
    concern_if(is_bare, f"{kernel.running} is running, but its modules are gone; expected them in /lib/modules")
    waiting = newest_installed(kernel.running, images or with_modules)
    concern_if(waiting, f"{kernel.running} is running, but {waiting} is installed; expected the newest to run")


@mark.hyperpod_node_debugger("N")
@evidence("cat /run/reboot-required /run/reboot-required.pkgs")
def test_reboot_required(node: Node) -> None:
    """Pending reboot.

    Remedy (reset or reboot): Reboot the node when no job is running, and turn off unattended upgrades on training
    nodes.
    """
    kernel = node.kernel_state
    if kernel.reboot_required:
        names = ", ".join(known(lambda: kernel.reboot_packages, ())) or "a package that is not named"
        concern(f"a reboot is pending for {names}; expected none")
    if not kernel.leaves_marker:
        not_applicable("this distribution does not mark pending reboots")


@mark.hyperpod_node_debugger("I")
@evidence("chronyc tracking; timedatectl")
def test_clock_sync(node: Node) -> None:
    """Clock synchronization.

    With clocks out of sync, logs cannot be put in order, and munge and TLS reject credentials that seem too old or too
    new.

    Remedy (restore service): Start chrony (systemctl start chronyd; on EC2 with the server 169.254.169.123), then see
    why it has no source (chronyc sources).
    """
    limit_s = node.threshold("clock.error_concern_s")
    apart_s = known(lambda: node.clock_apart_s, 0.0)
    direction = "ahead of" if apart_s > 0 else "behind"
    concern_if(
        abs(apart_s) > limit_s,
        f"the clock is {abs(apart_s):.3g} s {direction} that of the machine which asked; "
        f"expected at most {limit_s:g} s",
    )
    clock = node.kernel_state.clock
    is_kept = known(lambda: clock.synchronised, True)
    if not is_kept and not readings(clock, "max_error_s")[0]:
        concern("the clock is not synchronised; expected chrony or another NTP client to correct it")
    elif clock.max_error_s > limit_s:
        nobody = "" if is_kept else " or more, and nobody corrects it"
        seen, most = format_pair(clock.max_error_s, limit_s, 3, SIGNIFICANT)
        concern(f"the clock may be off by {seen} s{nobody}; expected at most {most} s")


@mark.hyperpod_performance_debugger("A")
@evidence("grep . /sys/devices/system/clocksource/clocksource0/{current,available}_clocksource")
def test_clocksource(node: Node) -> None:
    """Kernel clock source.

    Frameworks read the clock constantly. The kernel switches from the TSC to a slow clock source when it considers the
    TSC unreliable.

    Remedy (fix configuration): Search the kernel log for "clocksource" to see why. On Xen instance types, boot with
    clocksource=tsc.
    """
    kernel = node.kernel_state
    if not kernel.clocksource:
        not_applicable("the kernel does not name its clock source")
    if kernel.clocksource not in FAST_CLOCKSOURCES:
        there = known(lambda: kernel.clocksources, "not reported")
        concern(f"clock source {kernel.clocksource}; expected tsc or kvm-clock (there: {there})")
