"""InfiniBand and RoCE: fabrics other than EFA, their ports, errors and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, fail_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.network.facts import Port, RdmaDevice
from clusterproof.plugins.evidence.network.facts_node import RocePort
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]


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
    used = [port for port in ib_device.ports if not _is_disabled(port)]
    if not used:
        not_applicable("every port is disabled")
    for port in used:
        with part:
            assert port.is_active, f"{port.label} is {port.state}; expected 4: ACTIVE"
        with part:
            assert port.is_linked, f"{port.label} is {port.physical_state}; expected 5: LinkUp"
        with part:
            gbps, usual = port.gbps, max(_usual_on(node, ib_device, port), _usual_in_group(node, ib_device, port))
            is_slow = gbps < usual and port.is_active
            assert not is_slow, f"{port.label} at {port.rate}; expected {usual:g} Gb/s, as most ports of its model"


def _is_disabled(port: Port) -> bool:
    return known(lambda: port.is_disabled, False)


def _usual_on(node: Node, device: RdmaDevice, port: Port) -> float:
    """The rate of most active ports of this model and link layer on the node; 0 where no rate has a majority."""
    rates = Counter(
        rate
        for like, other in _ports(node)
        if like.model == device.model and other.link_layer == port.link_layer and (rate := _rate(other))
    )
    rate, alike = rates.most_common(1)[0] if rates else ("0", 0)
    return float(rate) if alike > rates.total() * node.threshold("group.majority") else 0.0


def _usual_in_group(node: Node, device: RdmaDevice, port: Port) -> float:
    """The rate that this port has on most nodes of the group; 0 where it is unknown."""
    try:
        deviations = differences(node, "rates of InfiniBand ports", _rates)
    except NotApplicable:
        return 0.0
    usual = [deviation.usual for deviation in deviations if deviation.name == f"{device.name} {port.label}"]
    return float(usual[0]) if usual and usual[0].replace(".", "", 1).isdecimal() else 0.0


def _rates(node: Node) -> Mapping[str, str | None]:
    return {f"{device.name} {port.label}": _rate(port) for device, port in _ports(node)}


def _ports(node: Node) -> Iterator[tuple[RdmaDevice, Port]]:
    """The ports of the devices that report theirs."""
    for device in node.ib_devices:
        reading, _ = readings(device, "ports")
        yield from ((device, port) for port in reading.get("ports", ()))


def _rate(port: Port) -> str | None:
    """Its rate while it is active; None where one of them is unknown."""
    reading, _ = readings(port, "gbps", "is_active")
    return f"{reading['gbps']:g}" if reading.get("is_active") and "gbps" in reading else None


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
    deviations = differences(node, "link layers", _link_layers)
    turned = [deviation for deviation in deviations if deviation.own == ETHERNET and deviation.usual == INFINIBAND]
    fail_if(turned, in_words(turned))
    require(why for device in node.ib_devices for port in device.ports for why in readings(port, "link_layer")[1])


def _link_layers(node: Node) -> Mapping[str, str | None]:
    """What each port is; None where that is unknown."""
    return {
        f"{device.name} {port.label} is": readings(port, "link_layer")[0].get("link_layer")
        for device, port in _ports(node)
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
    if not ib_device.ports:
        not_applicable("this device has no port")
    most_lost, most_garbled = map(
        node.threshold, ("infiniband.link_downed_per_day", "infiniband.symbol_errors_per_hour")
    )
    days, hours = (max(1.0, node.boot.uptime_s / one_s) for one_s in (DAY_S, HOUR_S))  # at least one of a young node
    for port in ib_device.ports:
        with part:
            lost = counted(port.link_downed)
            seen = f"{port.label} lost its link {lost} times since boot"
            concern_if(lost >= most_lost * days, f"{seen}; expected less than {most_lost:.0f} a day")
        with part:
            garbled = counted(port.symbol_errors)
            seen = f"{port.label} had {garbled} symbol errors since boot"
            concern_if(garbled > most_garbled * hours, f"{seen}; expected at most {most_garbled:.0f} an hour")


def counted(errors: int | None) -> int:
    """What a device counts. Raises NotApplicable where it does not."""
    if errors is None:
        not_applicable("this device counts neither lost links nor symbol errors")
    return errors


ACTIVE = "ACTIVE"
SETTINGS: Mapping[str, Callable[[RocePort], str]] = {
    "RoCE v2 GID index": lambda port: port.gid_v2,
    "ECN notification": lambda port: port.notifies,
    "ECN reaction": lambda port: port.reacts,
    "traffic class": lambda port: port.traffic_class,
}


@evidence("show_gids; grep . /sys/class/net/*/ecn/roce_[nr]p/enable/* /sys/class/infiniband/*/tc/*/traffic_class")
def test_roce_settings(node: Node) -> None:
    """RoCE settings of ports.

    NCCL uses all rails alike: one without a routable RoCE v2 address at the same index as the others ends a job as it
    starts, and one without congestion control or in another traffic class loses packets under load. Active ports of one
    model and speed are compared with each other, and each with the same port on other nodes.

    Remedy (fix configuration): Give the interface its address; set ECN and the traffic class as on the other ports, and
    in what sets them after a boot.
    """
    ports = active_ports(node)
    if not ports:
        not_applicable("no active RoCE port on this node")
    odd = {name for what in SETTINGS for name in odd_ports(node, ports, what)}
    with suppress(NotApplicable):
        deviations = differences(node, "settings of RoCE ports", of_ports, absent=None)
        elsewhere = [deviation for deviation in deviations if deviation.name not in odd]
        concern_if(elsewhere, in_words(elsewhere))


def odd_ports(node: Node, ports: Iterable[RocePort], what: str) -> list[str]:
    """Say which ports have another setting than most of their kind here: `traffic class of mlx5_0 port 1`."""
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    for port in ports:
        with part:
            value, label, kind = SETTINGS[what](port), port.label, (port.model, port.rate)
            kinds.setdefault(kind, {})[f"{what} of {label}"] = value
    odd = []
    for values in kinds.values():
        usual, alike = Counter(values.values()).most_common(1)[0]
        if alike > len(values) * node.threshold("group.majority"):
            as_most = f"expected {usual or 'none'} as {alike} of {len(values)} ports of its kind"
            for name, value in values.items():
                concern_if(value != usual, f"{name} is {value or 'not set'}; {as_most}")
            odd += [name for name, value in values.items() if value != usual]
    return odd


def active_ports(node: Node) -> list[RocePort]:
    """The RoCE ports that are active, or may be: of one whose state is unknown that part of a check is incomplete."""
    return [port for port in node.roce_ports if known(lambda: port.state, ACTIVE).endswith(ACTIVE)]  # noqa: B023 - at once


def of_ports(node: Node) -> Values:
    """Each setting of each port; None where it is unknown."""
    return {
        f"{what} of {label}": value or "not set"
        for what, read in SETTINGS.items()
        for label, value in each(active_ports(node), lambda port: (port.label, read(port)))  # noqa: B023 - at once
    }
