"""EFA: whether all devices are there, and libfabric can use them."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from clusterproof.plugins.catalog.compatibility import port_rate
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import known, readings
from clusterproof.plugins.evidence.network import facts_fabric
from clusterproof.plugins.evidence.network.facts import RdmaDevice
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.version import parse, rules

pytestmark = [
    mark.network,
    mark.preflight,
    mark.prolog,
    mark.ami,
]

DRIVERS = 64  # versions of EFA's driver whose age is cached: it is looked up for every device


@mark.hyperpod_node_debugger("A")
@evidence("lspci -n -d 1d0f: | grep -c efa; ls /sys/class/infiniband")
def test_efa_count(node: Node) -> None:
    """EFA device count.

    Counts EFA devices and compares them with the number attached: from the inventory or --expect efa=N, otherwise from
    the PCI bus or most nodes of the group. An instance may have fewer than its type allows; that is a concern if other
    nodes of the group have more, or if there are none to compare with.

    Remedy (investigate): If lspci shows all devices, reload the driver (modprobe -r efa; modprobe efa). Otherwise
    compare with the interfaces attached to the instance (aws ec2 describe-instances), and replace the node if they
    differ.
    """
    due, count = node.expected("efa"), len(node.efa_devices)
    settled_s = node.threshold("settle.window_s")
    if count < due and (uptime_s := known(lambda: node.boot.uptime_s, settled_s)) < settled_s:
        incomplete(f"{count} EFA devices, {uptime_s:.0f} s after boot; expected {due}")
    on_bus = known(lambda: sum(device.is_efa for device in node.pci_devices), None)
    there = "an unknown number" if on_bus is None else on_bus
    message = f"{count} EFA devices, {there} on the PCI bus; expected {due}{_as_others(node, on_bus)}"
    fail_if(count < due, message)
    if count < due:
        return
    most = _most(node)
    concern_if(count < most, f"{count} EFA devices attached; expected {most}, as many as a {node.type_name} can have")
    if count == 0:
        not_applicable(f"no EFA device is attached to this {node.type_name or 'node'}")


def _as_others(node: Node, on_bus: int | None) -> str:
    """Where the expected number comes from, if neither from the inventory nor from the bus."""
    if "efa" in node.target.expect or node.efa_attached == on_bus:
        return ""
    return ", as AWS says" if node.target.efa_attached is not None else " as on most nodes of the group"


def _most(node: Node) -> int:
    """How many EFA devices it might have beyond those expected: its type's maximum, or none.

    Raises Incomplete if it is unknown whether it has all.
    """
    if "efa" in node.target.expect or node.is_outside_ec2:
        return 0
    others = _seen_on_others(node)
    if node.majority_efa is None and not others:
        is_due = node.efa_attached > 0 or node.type.is_made_for_efa
        return node.of_type("efa") if is_due else 0
    try:
        most: int = node.of_type("efa")
    except Incomplete:
        return 0  # most of its group have as many
    return most if str(most) in others else 0


def _seen_on_others(node: Node) -> Counter[str]:
    """How many of the other nodes show each number of EFA devices; nodes with an unknown number do not count."""
    seen = node.group.counts("EFA devices", _seen).get("EFA devices", Counter())
    try:
        return seen - Counter(_seen(node).values())
    except (Incomplete, NotApplicable):
        return Counter(seen)


def _seen(node: Node) -> dict[str, str]:
    return {"EFA devices": str(node.efa_seen)}


@mark.hyperpod_node_debugger("A")
@evidence("grep . /sys/class/infiniband/*/ports/1/state /sys/class/infiniband/*/ports/1/phys_state")
def test_efa_port_active(efa_device: RdmaDevice) -> None:
    """EFA port state.

    The EFA driver reports ACTIVE for every port it has brought up, whatever the network does. This check finds a device
    that the driver could not start, but not whether packets flow: the pairwise test (-m perf -k pairwise) does.

    Remedy (reset or reboot): Search the kernel log (journalctl -k | grep efa); reload the driver (modprobe -r efa;
    modprobe efa) or reboot the node.
    """
    ports = efa_device.ports
    assert ports, "no port; expected port 1"
    for port in ports:
        with part:
            assert port.is_active, f"{port.label} is {port.state}; expected 4: ACTIVE"
        with part:
            assert port.is_linked, f"{port.label} is {port.physical_state}; expected 5: LinkUp"


@mark.hyperpod_node_debugger("A")
@evidence("grep . /sys/class/infiniband/*/ports/1/rate")
def test_efa_rate(efa_device: RdmaDevice, node: Node) -> None:
    """EFA port speed.

    The driver rounds the rate down to one that InfiniBand defines (35 becomes 30 Gb/s). It reports 100 Gb/s for a
    device whose rate it does not know; before version 2.13, that was every device. Such a rate is compared only with
    the group's other nodes.

    Remedy (investigate): Compare with other nodes of the type; replace the node if only this one is slow.
    """
    due, driver = node.of_type("efa_gbps"), port_rate()
    least = driver.reported_gbps(due)
    if not efa_device.ports:
        incomplete(f"no port reports its rate; expected at least {due} Gb/s")
    for port in efa_device.ports:
        with part:
            slow, gbps = f"{port.label} at {port.rate}; expected at least {due} Gb/s", port.gbps
            if gbps != driver.unknown_gbps:
                assert gbps >= least, slow
                continue
            assert not _others_report(node, least), slow
            if _is_older(node.efa_driver, driver.since):
                not_applicable(f"EFA driver {node.efa_driver} reports {gbps:g} Gb/s for every device")
            if least > gbps:
                incomplete(f"{slow}; but the driver also reports this when it does not know the rate")


@lru_cache(DRIVERS)
def _is_older(version: str, since: str) -> bool:
    """Whether a driver is known to be older than a version."""
    try:
        return all(rule.holds(parse(version)) for rule in rules(f"< {since}"))
    except ValueError:
        return False


def _others_report(node: Node, least: int) -> bool:
    """Whether most nodes of the group report an expected rate that is above the one reported for unknown rates."""
    rates = node.group.most(
        "EFA rates", lambda other: [f"{port.gbps:g}" for device in other.efa_devices for port in device.ports]
    )
    return any(float(gbps) >= least > port_rate().unknown_gbps for gbps in rates)


@mark.job
@mark.hyperpod_nccl("13")
@evidence("fi_info -p efa -t FI_EP_RDM | grep domain | sort -u")
def test_libfabric_efa(node: Node) -> None:
    """EFA devices in libfabric.

    NCCL uses EFA through libfabric's reliable datagram endpoint (FI_EP_RDM). Newer versions list each device twice, so
    distinct domains are counted. Without the EFA provider, NCCL falls back to TCP.

    Remedy (fix configuration): Reinstall EFA's software. If only some devices are missing, see network.efa_count.
    """
    devices = efa_due(node)
    if devices == 0:
        not_applicable("no EFA device on this node")
    try:
        fi_info = node.fi_info
    except Absent:
        assert node.occasion != "ami", "fi_info is not installed; expected EFA's software in the image"
        not_applicable("fi_info is not installed here; the EFA software may live in the container")
    problem = facts_fabric.error(fi_info.output)
    assert not problem, f"fi_info says {problem}; expected {devices} EFA domains"
    domains = facts_fabric.domains(fi_info.output)
    if not domains and fi_info.exit != 0:
        incomplete(f"fi_info ended with {fi_info.exit}: {fi_info.output.strip()[-100:]}")
    assert len(domains) >= devices, f"{len(domains)} EFA domains; expected {devices}, one for each device"


def efa_due(node: Node) -> int:
    """How many EFA devices software should see: those present, otherwise those attached. Raises Incomplete."""
    return len(readings(node, "efa_devices")[0].get("efa_devices", ())) or node.expected("efa")


@mark.hyperpod_node_debugger("A")
@evidence("lsmod | grep -E '^(efa|ib_uverbs|ib_core) '; ls /dev/infiniband")
def test_efa_modules(node: Node) -> None:
    """EFA kernel modules and device files.

    Remedy (fix configuration): Load the efa module (modprobe efa). If that fails, reinstall EFA's software for the
    running kernel.
    """
    devices = efa_due(node)
    if devices == 0:
        not_applicable("no EFA device on this node")
    with part:
        missing = [name for name in ("efa", "ib_uverbs", "ib_core") if name not in node.modules]
        assert not missing, f"kernel modules not loaded: {', '.join(missing)}; expected efa, ib_uverbs and ib_core"
    uverbs = [name for name in node.uverbs if re.fullmatch(r"uverbs\d+", name)]
    assert len(uverbs) >= devices, f"{len(uverbs)} device files in /dev/infiniband; expected {devices} uverbs"
