"""Network interfaces, and whether a node's network hardware is that of its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import NotApplicable, concern, not_applicable
from clusterproof.plugins.evidence.group import ABSENT, Difference, Values, differences, in_words
from clusterproof.plugins.evidence.network.facts import Interface, RdmaDevice
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.network, mark.preflight]

ENA = "ena"


@mark.hyperpod_node_debugger("A")
@evidence("ip -br link; cat /sys/class/net/*/carrier")
def test_interfaces_up(node: Node) -> None:
    """Network interface state.

    An interface that is switched on must have a link; one that is up on most nodes of the group must be up here.

    Remedy (investigate): Look at the cable and the switch port; on EC2 compare with the interfaces attached to the
    instance.
    """
    physical = _physical(node)
    dead = [interface.name for interface in physical if interface.is_on and not interface.is_up]
    if dead:
        concern(f"no link on {', '.join(dead)}, which is switched on; expected one")
    if not any(interface.is_up for interface in physical):
        concern("every network interface is switched off; expected one that is up")
    down = [found for found in _differing(node, "interfaces", _states) if found.own == "down" and found.usual == "up"]
    if down:
        concern(in_words(down))


@mark.hyperpod_performance_debugger("A")
@evidence("ip -br link show; cat /sys/class/net/*/mtu")
def test_mtu(node: Node) -> None:
    """Network interface MTU.

    Compared with the jumbo frames of EC2's network (ENA), most interfaces of the same driver on this node, and the same
    interface on most nodes of the group. Different sizes at the two ends silently lose large packets.

    Remedy (fix configuration): Set the MTU in netplan or systemd-networkd as on the other nodes; DHCP on EC2 offers
    9001.
    """
    used = [interface for interface in _physical(node) if interface.is_up]
    if not used:
        not_applicable("no network interface is up")
    jumbo = int(node.threshold("interface.jumbo_mtu"))
    small = [interface for interface in used if interface.driver == ENA and interface.mtu < jumbo]
    if small:
        concern(f"{_sizes(small)}; expected {jumbo}")
    odd = [one for one in used if _usual_mtu(node, one.driver) not in (0, one.mtu)]
    if odd:
        usual = _usual_mtu(node, odd[0].driver)
        concern(f"{_sizes(odd)}; expected {usual} as most interfaces of {odd[0].driver} here")
    elsewhere = _differing(node, "MTUs", _mtus)
    if elsewhere:
        concern(in_words(elsewhere))


@mark.hyperpod_node_debugger("E")
@evidence("cat /sys/class/infiniband/*/fw_ver; lspci -n -d 1d0f:; lspci -n -d 15b3:")
def test_nic_uniform(node: Node) -> None:
    """Network devices compared with the group.

    Remedy (investigate): Update the firmware to that of the other nodes; replace the node if its devices differ.
    """
    found = differences(node, "network hardware", _hardware)
    if found:
        concern(in_words(found))
    if not node.rdma_devices and not node.interfaces:
        not_applicable("no RDMA device and no physical interface on this node")


def _physical(node: Node) -> tuple[Interface, ...]:
    if not node.interfaces:
        not_applicable("no network interface has a device of its own")
    return node.interfaces


def _differing(node: Node, what: str, read: Callable[[Node], Values]) -> tuple[Difference, ...]:
    """Where a node differs from its group; nothing in a group too small to compare, since more is evaluated."""
    try:
        found = differences(node, what, read)
    except NotApplicable:
        return ()
    return tuple(one for one in found if one.usual and ABSENT not in (one.own, one.usual))


def _states(node: Node) -> Values:
    return {f"{interface.name} is": "up" if interface.is_up else "down" for interface in node.interfaces}


def _mtus(node: Node) -> Values:
    return {f"MTU of {interface.name}": str(interface.mtu) for interface in node.interfaces if interface.is_up}


def _hardware(node: Node) -> Mapping[str, str | None]:
    """What the node's network is made of; None where it has nothing of that kind, which other checks count."""
    efa, others = node.efa_devices, node.ib_devices
    firmware = {f"{device.device} {device.firmware}" for device in node.rdma_devices if device.firmware}
    return {
        "EFA devices are": _models(efa),
        "RDMA devices are": _models(others),
        "RDMA firmware is": ", ".join(sorted(firmware)) or None,
        "interfaces are of": ", ".join(sorted({interface.driver for interface in node.interfaces})) or None,
    }


def _models(devices: Iterable[RdmaDevice]) -> str | None:
    return ", ".join(sorted({device.model for device in devices})) or None


def _usual_mtu(node: Node, driver: str) -> int:
    """The MTU of most interfaces of a driver that are up; 0 where no MTU has a majority."""
    sizes = Counter(interface.mtu for interface in node.interfaces if interface.is_up and interface.driver == driver)
    size, alike = sizes.most_common(1)[0]
    return size if alike > sum(sizes.values()) * node.threshold("group.majority") else 0


def _sizes(interfaces: list[Interface]) -> str:
    return ", ".join(f"the MTU of {interface.name} is {interface.mtu}" for interface in interfaces)
