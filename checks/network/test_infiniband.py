"""InfiniBand and RoCE: fabrics other than EFA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, not_applicable
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.group import differences, in_words
from clusterproof.plugins.evidence.network.facts import Port, RdmaDevice
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.network,
    mark.preflight,
    mark.hyperpod_node_debugger("A"),
]

HOUR_S = 3600
DAY_S = 86400
ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"  # as sysfs calls the link layer


@mark.prolog
@evidence("ls /sys/class/infiniband")
def test_ib_count(node: Node) -> None:
    """InfiniBand or RoCE device count.

    RDMA devices other than EFA are counted, and compared with --expect ib=N, otherwise with most nodes of the group.

    Remedy (investigate): Look for the device with lspci and in the kernel log; reseat it, or replace the node.
    """
    count, due = len(node.ib_devices), node.target.expect.get("ib")
    if due is not None:
        assert count >= due, f"{count} InfiniBand or RoCE devices; expected {due}"
    if due == 0 or node.efa_devices:
        not_applicable("this node's fabric is EFA" if node.efa_devices else "none is expected here")
    if due is None:
        fewer = [other for other in differences(node, "InfiniBand devices", _count) if int(other.usual or 0) > count]
        assert not fewer, in_words(fewer)
        if not count:
            not_applicable("no InfiniBand or RoCE device on this node, nor on most of its kind")


def _count(node: Node) -> Mapping[str, str]:
    return {"number of InfiniBand or RoCE devices": str(len(node.ib_devices))}


@mark.prolog
@evidence("ibstat; cat /sys/class/infiniband/*/ports/*/state /sys/class/infiniband/*/ports/*/rate")
def test_ib_ports(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand or RoCE port state and speed.

    Every port with a cable must be active, at the rate of most ports of its model on this node, and of the same port on
    most nodes of the group; one slow rail slows every collective. A port whose physical state is Disabled was switched
    off by somebody and is ignored.

    Remedy (investigate): Reseat or replace the cable; look at the switch port. ibdiagnet shows more.
    """
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    assert ib_device.ports, "no port; expected at least one"
    used = [port for port in ib_device.ports if not port.physical_state.endswith("Disabled")]
    if not used:
        not_applicable("every port is disabled")
    for port in used:
        assert port.is_active, f"port {port.number} is {port.state} ({port.physical_state}); expected 4: ACTIVE"
        assert port.physical_state.endswith("LinkUp"), (
            f"port {port.number} is {port.physical_state}; expected 5: LinkUp"
        )
    for port in used:
        usual = max(_usual_on(node, ib_device, port), _usual_in_group(node, ib_device, port))
        assert port.gbps >= usual, (
            f"port {port.number} at {port.rate}; expected {usual:g} Gb/s, as most ports of its model"
        )


def _usual_on(node: Node, device: RdmaDevice, port: Port) -> float:
    """The rate of most active ports of this model and link layer on the node; 0 where no rate has a majority."""
    ports = (other for like in node.ib_devices if like.model == device.model for other in like.ports)
    rates = Counter(other.gbps for other in ports if other.is_active and other.link_layer == port.link_layer)
    rate, alike = rates.most_common(1)[0]
    return rate if alike > sum(rates.values()) * node.threshold("group.majority") else 0.0


def _usual_in_group(node: Node, device: RdmaDevice, port: Port) -> float:
    """The rate that this port has on most nodes of the group; 0 where it is unknown."""
    try:
        found = differences(node, "rates of InfiniBand ports", _rates)
    except NotApplicable:
        return 0.0
    usual = [other.usual for other in found if other.name == f"{device.name} port {port.number}"]
    return float(usual[0]) if usual and usual[0].replace(".", "", 1).isdecimal() else 0.0


def _rates(node: Node) -> Mapping[str, str | None]:
    return {f"{device.name} port {port.number}": _rate(port) for device in node.ib_devices for port in device.ports}


def _rate(port: Port) -> str | None:
    try:
        return f"{port.gbps:g}" if port.is_active else None
    except Incomplete:
        return None


@evidence("cat /sys/class/infiniband/*/ports/*/link_layer; mlxconfig -d DEVICE query LINK_TYPE_P1")
def test_ib_link_layer(node: Node) -> None:
    """InfiniBand port link layer.

    A port can be either (LINK_TYPE in the device's firmware); one with the wrong setting is up and carries no traffic
    of the fabric. It is compared with the same port on most nodes of the group: one that is Ethernet everywhere is
    meant to be, usually for storage.

    Remedy (fix configuration): Set LINK_TYPE_P1 (or P2) to IB with mlxconfig, and reset the device or reboot the node.
    """
    if node.efa_devices or not node.ib_devices:
        not_applicable("this node's fabric is EFA" if node.efa_devices else "no InfiniBand or RoCE device on this node")
    found = differences(node, "link layers", _link_layers)
    turned = [other for other in found if other.own == ETHERNET and other.usual == INFINIBAND]
    assert not turned, in_words(turned)


def _link_layers(node: Node) -> Mapping[str, str | None]:
    return {
        f"{device.name} port {port.number} is": port.link_layer for device in node.ib_devices for port in device.ports
    }


@evidence("cat /sys/class/infiniband/*/ports/*/counters/{link_downed,symbol_error}")
def test_ib_errors(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand error counters.

    The counters run since the driver was loaded; they are compared with the time since boot, so that a link that came
    up once or twice is no fault.

    Remedy (investigate): Clean or replace the cable and its transceivers; look at the switch port's own counters.
    """
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    seen: list[str] = []
    unread: list[Incomplete | NotApplicable] = []
    counted = 0
    for port in ib_device.ports:
        data, missing = readings(port, "link_downed", "symbol_errors")
        unread += missing
        counted += sum(count is not None for count in data.values())
        seen += _too_many(port, data, node)
    if seen:
        lost, garbled = map(node.threshold, ("infiniband.link_downed_per_day", "infiniband.symbol_errors_per_hour"))
        concern(
            f"{', '.join(seen)}; expected less than {lost:.0f} lost links a day "
            f"and at most {garbled:.0f} symbol errors an hour"
        )
    require(unread)
    if not counted:
        not_applicable("this device counts neither lost links nor symbol errors")


def _too_many(port: Port, data: Mapping[str, int | None], node: Node) -> list[str]:
    """What is above its threshold, in words; of a young node at least a day's, or an hour's, worth."""
    uptime_s = node.boot.uptime_s
    lost, garbled = data.get("link_downed") or 0, data.get("symbol_errors") or 0
    seen = []
    if lost >= node.threshold("infiniband.link_downed_per_day") * max(1.0, uptime_s / DAY_S):
        seen.append(f"port {port.number} lost its link {lost} times since boot")
    if garbled > node.threshold("infiniband.symbol_errors_per_hour") * max(1.0, uptime_s / HOUR_S):
        seen.append(f"port {port.number} had {garbled} symbol errors since boot")
    return seen
