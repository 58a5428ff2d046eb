"""RoCE settings: of all ports of a node, and of the same port on several nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Group, Values, describe, differences, majority_of
from clusterproof.plugins.evidence.network.facts import INFINIBAND
from clusterproof.plugins.evidence.network.facts_node import RocePort
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]


ACTIVE, NO_GID, UNSET, GID = "ACTIVE", "none", "not set", "RoCE v2 GID index"
ANY_CARD = ("", "")  # of a port whose model or rate is unknown
IN_GROUP = "settings of RoCE ports"
SETTINGS: Mapping[str, Callable[[RocePort], str | None]] = {  # empty if not set, None in older recordings
    GID: lambda port: port.gid_v2,
    "ECN notification": lambda port: port.notifies,
    "ECN reaction": lambda port: port.reacts,
    "traffic class": lambda port: port.traffic_class,
    "PFC": lambda port: port.pfc,
    "trust": lambda port: None if port.dscp is None else port.trust,
}


@evidence(
    "show_gids; grep . /sys/class/net/*/ecn/roce_[nr]p/enable/* /sys/class/infiniband/*/tc/*/traffic_class; "
    "mlnx_qos -i INTERFACE"
)
def test_roce_settings(node: Node) -> None:
    """RoCE settings of ports.

    NCCL uses all rails in the same way: a rail without a routable RoCE v2 GID at the same index as the others makes a
    job fail at start, and one without congestion control or PFC, or in another traffic class, loses packets under load.
    PFC acts by priority, which packets have by their DSCP or by their VLAN tag (PCP). Active ports of the same model
    and speed are compared with each other, unless most nodes of the group have the same deviation, and each port with
    the same port on other nodes. By itself a port is a concern if its driver gives all RoCE packets a traffic class,
    and their priority has no PFC though another has, or neither PFC nor ECN. A node without InfiniBand or EFA whose
    fastest ports have no such GID has no rail, unless all nodes of the group are like that and have virtual functions
    that may hold the addresses.

    Remedy (fix configuration): Give the interface its IP address. Set ECN, PFC, trust and the traffic class as on the
    other ports, also in the script that sets them at boot.
    """
    ports = active_ports(node)
    if not ports:
        not_applicable("no active RoCE port on this node")
    lossy: dict[str, list[str]] = {}
    for label, how in each(ports, lambda port: (port.label, unprotected(port))):
        lossy.setdefault(how, []).append(label)
    lossy.pop("", None)
    for how, labels in lossy.items():
        concern_if(labels, f"{listed(labels)}: {how}")
    unrouted = unrouted_rails(node, ports)
    seen = f"none of {len(unrouted)} ports ({', '.join(unrouted[:8])}) has a routable RoCE v2 GID"
    concern_if(unrouted, f"{seen}; expected an address on each rail, so that NCCL starts")
    odd = {name for what in SETTINGS for name in odd_ports(node, ports, what)}
    odd |= {f"{GID} of {label}" for label in unrouted}
    with suppress(NotApplicable):
        deviations = differences(node, IN_GROUP, of_ports, absent=None)
        elsewhere = [deviation for deviation in deviations if deviation.name not in odd]
        concern_if(elsewhere, describe(elsewhere))
    require(why for port in ports for why in readings(port, "port")[1])


def unprotected(port: RocePort) -> str:
    """The settings with which a port loses RoCE packets on a full network; empty if it does not. Raises Incomplete."""
    pfc, priority = port.pfc or "", port.priority
    if priority is None or pfc[priority : priority + 1] != "0":
        return ""
    seen = f"RoCE packets have priority {priority}, by traffic class {port.traffic_class[:40]}, and PFC is {pfc}"
    if "1" in pfc:
        return f"{seen}; expected PFC for priority {priority}"
    off = [
        name for name, on in (("notification", port.notifies), ("reaction", port.reacts)) if on[priority:][:1] == "0"
    ]
    return f"{seen}, without ECN {' and '.join(off)}; expected PFC, or ECN on both sides" if off else ""


def unrouted_rails(node: Node, ports: Sequence[RocePort]) -> list[str]:
    """The fastest RoCE ports if none of them has a routable GID; empty if unknown.

    Also empty next to EFA or active InfiniBand, or if virtual functions have the addresses on all nodes.
    """
    with suppress(Incomplete, NotApplicable):
        if node.efa_devices or INFINIBAND in node.active_link_layers:
            return []
    rates = [gbps(readings(port, "rate")[0].get("rate", "")) for port in ports]
    fastest = [port for port, rate in zip(ports, rates, strict=True) if rate in (0, max(rates))]  # 0: it may be
    indexes = dict(each(fastest, lambda port: (port.label, port.gid_v2)))
    is_bare = len(indexes) == len(fastest) and set(indexes.values()) == {NO_GID}
    return [] if not is_bare or node.group.once("RoCE of virtual functions", is_of_virtual_functions) else list(indexes)


def is_of_virtual_functions(group: Group[Node]) -> bool:
    """Whether all nodes of a group, two or more, have virtual functions of NICs, and the same GIDs."""
    gids = [
        {name: value for name, value in values.items() if name.startswith(GID)}
        for values in group.values(IN_GROUP, of_ports).values()
    ]
    has_same_gids = 1 < len(gids) == len(group.nodes) and all(node_gids == gids[0] for node_gids in gids)
    return has_same_gids and all(map(has_virtual_functions, group.nodes))


def has_virtual_functions(node: Node) -> bool:
    """Whether a NIC here is known to be one."""
    devices = readings(node, "pci_devices")[0].get("pci_devices", ())
    of_each = (readings(device, "is_nic", "function_of")[0] for device in devices)
    return any(device.get("is_nic") and device.get("function_of") for device in of_each)


def gbps(rate: str) -> float:
    """The number in a rate such as `400 Gb/sec (4X NDR)`; 0 if there is none."""
    number = rate.partition(" ")[0]
    return float(number) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", number) else 0.0


def odd_ports(node: Node, ports: Iterable[RocePort], what: str) -> list[str]:
    """Report the ports whose setting differs from most of their kind here: `traffic class of mlx5_0 port 1`."""
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    for port in ports:
        with part:
            value, label = SETTINGS[what](port), port.label
            if value is None:
                continue
            kind = known(lambda: (port.model, port.rate), ANY_CARD)  # noqa: B023 - at once
            kinds.setdefault(kind, {})[f"{what} of {label}"] = value
    odd: list[str] = []
    for kind, values in kinds.items():
        most_common, count = Counter(values.values()).most_common(1)[0]
        if count > len(values) * node.threshold("group.majority"):
            as_most = f"expected {most_common or 'none'}, like {count} of {len(values)} such ports"
            as_most += ", unless it is another card" if kind == ANY_CARD else ""
            unlike = {name: value or UNSET for name, value in values.items() if value != most_common}
            for name, value in unlike.items():
                concern_if(not is_majority_setting(node, name, value), f"{name} is {value}; {as_most}")
            odd += unlike
    return odd


def is_majority_setting(node: Node, name: str, value: str) -> bool:
    """Whether most nodes of the group, including others than this, have this setting on this port."""
    majority = majority_of(node, IN_GROUP, of_ports, name, None)
    return majority is not None and majority.value == value


def active_ports(node: Node) -> list[RocePort]:
    """The RoCE ports that are active, or may be; an unknown state makes that part of a check incomplete."""
    return [port for port in node.roce_ports if known(lambda: port.state, ACTIVE).endswith(ACTIVE)]  # noqa: B023 - at once


def of_ports(node: Node) -> Values:
    """Each setting of each port; None if it is unknown."""
    return {
        f"{what} of {label}": UNSET if value == "" else value
        for what, read in SETTINGS.items()
        for label, value in each(active_ports(node), lambda port: (port.label, read(port)))  # noqa: B023 - at once
    }
