"""Network interfaces, their speed, and whether a node's network hardware is that of its group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Values, describe, differences, differing, majority_of
from clusterproof.plugins.evidence.network.facts import DOWN, OFF, UP, Interface, RdmaDevice
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight]


ENA, MTUS = "ena", "MTUs"


@mark.hyperpod_node_debugger("A")
@evidence("ip -br link; grep . /sys/class/net/*/carrier")
def test_interfaces_up(node: Node) -> None:
    """Network interface state.

    An interface that is switched on must have a link, and one that is up on most nodes of the group must be up here.

    Remedy (investigate): Check the cable and the switch port. On EC2, compare with the interfaces attached to the
    instance (aws ec2 describe-instances).
    """
    physical = _physical(node)
    links = [(interface.label, _link(interface)) for interface in physical]
    dead = [name for name, link in links if link == DOWN]
    concern_if(dead, f"switched on without a link: {', '.join(dead)}; expected a link")
    is_off = all(link == OFF for _, link in links)
    concern_if(is_off, "every network interface is switched off; expected at least one up")
    down = [
        deviation
        for deviation in differing(node, "interfaces", _states)
        if deviation.own == DOWN and deviation.majority in (UP, "")
    ]
    concern_if(down, describe(down))


@mark.hyperpod_performance_debugger("A")
@evidence("ip -br link show; grep . /sys/class/net/*/mtu")
def test_mtu(node: Node) -> None:
    """Network interface MTU.

    The MTU is compared with EC2's jumbo frames (ENA), with the same interface on most nodes of the group, and with most
    interfaces of the same driver on this node (IPoIB with IPoIB), unless most nodes of the group have the same
    deviation. If the two ends of a path have different MTUs, large packets are lost silently.

    Remedy (fix configuration): Set the other nodes' MTU in netplan or systemd-networkd. On EC2, DHCP offers 9001.
    """
    used = [interface for interface in _physical(node) if _link(interface) in (UP, "")]
    if not used:
        not_applicable("no network interface is up")
    jumbo = int(node.threshold("interface.jumbo_mtu"))
    majority_mtus = _majority_mtus(node)
    for interface in used:
        with part:
            seen = f"the MTU of {interface.label} is {interface.mtu}"
            kind = _kind(interface.label, interface.driver)
            majority_mtu = majority_mtus.get(kind, 0)
            concern_if(interface.driver == ENA and interface.mtu < jumbo, f"{seen}; expected {jumbo}")
            is_odd = majority_mtu not in (0, interface.mtu) and not _has_majority_mtu(node, interface)
            concern_if(is_odd, f"{seen}; expected {majority_mtu}, like most {kind} interfaces here")
    elsewhere = differing(node, MTUS, _mtus)
    concern_if(elsewhere, describe(elsewhere))


@mark.hyperpod_node_debugger("E")
@evidence("grep . /sys/class/infiniband/*/{fw_ver,board_id}; lspci -n -d 1d0f:; lspci -n -d 15b3:")
def test_nic_uniform(node: Node) -> None:
    """Network devices compared with the group.

    Compares the models, boards and firmware of RDMA devices, and the drivers of interfaces. The number of interfaces is
    compared too, except on EC2, where they come and go with pods.

    Remedy (investigate): Install the other nodes' firmware version; replace the node if its devices differ.
    """
    for name, read in HARDWARE.items():
        with part:
            values = [*each(read(node), lambda value: value())]
            odd = _unusual(node, name, values)
            concern_if(odd, odd)
    deviations = differences(node, HARDWARE_OF_GROUP, _hardware)
    concern_if(deviations, describe(deviations))
    if not any(_hardware(node).values()):
        not_applicable("no RDMA device and no physical interface on this node")


def _physical(node: Node) -> tuple[Interface, ...]:
    if not node.interfaces:
        not_applicable("no physical network interface")
    return node.interfaces


def _link(interface: Interface) -> str:
    """UP, DOWN or OFF; empty if that is unknown, which is reported separately."""
    return known(lambda: interface.link, "")


def _states(node: Node) -> Values:
    links = [(interface.label, readings(interface, "link")[0].get("link")) for interface in node.interfaces]
    return {f"{name} is": DOWN if link == OFF else link for name, link in links}


def _mtu_of(name: str) -> str:
    return f"MTU of {name}"


def _mtus(node: Node) -> Values:
    """The MTU of each interface that is up, or may be; None if it is unknown."""
    reported = [(interface.label, readings(interface, "mtu", "link")[0]) for interface in node.interfaces]
    return {
        _mtu_of(name): str(read["mtu"]) if "mtu" in read else None
        for name, read in reported
        if read.get("link", UP) == UP
    }


def _hardware(node: Node) -> Mapping[str, str | None]:
    """The node's network hardware; None if it is unknown, or there is none of a kind."""
    hardware: dict[str, str | None] = dict.fromkeys(HARDWARE)
    for name, read in HARDWARE.items():
        with suppress(Incomplete, NotApplicable):
            hardware[name] = ", ".join(sorted({value() for value in read(node)} - {""})) or None
    return hardware


def _unusual(node: Node, name: str, values: Iterable[str]) -> str:
    """Those of a node's values that most nodes have nothing like, if others here are unread; empty if none."""
    majority = majority_of(node, HARDWARE_OF_GROUP, _hardware, name, None)
    if majority is None or _hardware(node)[name]:
        return ""
    odd = sorted({*values} - {"", *majority.value.split(", ")})
    return f"{name} {', '.join(odd)}; expected {majority.value} {majority.how_many}" if odd else ""


def _drivers(node: Node) -> list[Callable[[], str]]:
    """`ena`, `mlx5_core (4)`: EKS attaches interfaces of EC2's network to a node as its pods need addresses."""
    counts = Counter(interface.driver for interface in node.interfaces)
    drivers = [driver if driver == ENA else f"{driver} ({count})" for driver, count in counts.items() if driver]
    return [partial(str, driver) for driver in drivers]


def _firmware(device: RdmaDevice) -> str:
    return f"{device.device} {device.firmware}" if device.firmware else ""


def _board(device: RdmaDevice) -> str:
    return f"{device.device} {device.board}" if device.board else ""


HARDWARE_OF_GROUP = "network hardware"
HARDWARE: Mapping[str, Callable[[Node], list[Callable[[], str]]]] = {  # by device, as one may be unread
    "EFA devices are": lambda node: [partial(getattr, device, "model") for device in node.efa_devices],
    "RDMA devices are": lambda node: [partial(getattr, device, "model") for device in node.ib_devices],
    "RDMA firmware is": lambda node: [partial(_firmware, device) for device in node.rdma_devices],
    "RDMA boards (PSID) are": lambda node: [partial(_board, device) for device in node.rdma_devices],
    "interfaces are of": _drivers,
}


def _kind(name: str, driver: str) -> str:
    """The driver, and of one that has Ethernet too, whether it is IPoIB (`ib0`, `ibp24s0`), whose MTU is smaller."""
    return f"{driver} IPoIB" if name.startswith("ib") else driver


def _majority_mtus(node: Node) -> Mapping[str, int]:
    """The MTU of most interfaces of each kind that are up; none if no MTU has a majority."""
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for interface in node.interfaces:
        reading, _ = readings(interface, "mtu", "link", "driver")
        if {"mtu", "driver"} <= reading.keys() and reading.get("link", UP) == UP:
            sizes[_kind(interface.label, reading["driver"])][reading["mtu"]] += 1
    most = {kind: (*counts.most_common(1)[0], counts.total()) for kind, counts in sizes.items()}
    majority = node.threshold("group.majority")
    return {kind: mtu for kind, (mtu, count, of) in most.items() if count > of * majority}


def _has_majority_mtu(node: Node, interface: Interface) -> bool:
    """Whether most nodes of the group, including others than this, have this interface at this MTU, as for storage."""
    majority = majority_of(node, MTUS, _mtus, _mtu_of(interface.label), None)
    return majority is not None and majority.value == str(interface.mtu)


GBIT = 1000


@mark.hyperpod_node_debugger("A")
@evidence("grep . /sys/class/net/*/speed; ethtool INTERFACE")
def test_link_speed(node: Node) -> None:
    """Network link speed.

    With a damaged cable or port, an interface may negotiate a fraction of its speed with the switch: storage and
    everything else that does not use RDMA then crawls. Each interface is compared with the same one on the other nodes.

    Remedy (investigate): Check ethtool INTERFACE, the cable and the switch port.
    """
    with part:
        require(why for interface in node.interfaces for why in readings(interface, "name", "speed_mbit_s")[1])
    if not any(_speeds(node).values()):
        not_applicable("no interface reports a speed")
    deviations = differences(node, "link speeds", _speeds, absent=None)
    concern_if(deviations, describe(deviations))


def _speeds(node: Node) -> Values:
    return {f"speed of {interface.label}": _speed(interface) for interface in node.interfaces}


def _speed(interface: Interface) -> str | None:
    """`100 Gbit/s`; None if the driver reports no speed."""
    mbit_s = readings(interface, "speed_mbit_s")[0].get("speed_mbit_s")
    return f"{mbit_s / GBIT:g} Gbit/s" if mbit_s else None
