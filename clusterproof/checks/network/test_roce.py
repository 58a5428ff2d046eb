"""RoCE settings: of all ports of a node, and of the same port on several nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Group, Values, describe, differences, majority_of
from clusterproof.plugins.evidence.network.collect_roce import MAX_GIDS
from clusterproof.plugins.evidence.network.facts import INFINIBAND
from clusterproof.plugins.evidence.network.facts_node import ROCE_V2, Gid, RocePort
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import chosen_adapters

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]


GONE = "ENODEV"
ACTIVE, NO_GID, UNSET, GID = "ACTIVE", "none", "not set", "RoCE v2 GID index"
ANY_CARD = ("", "")  # of a port whose model or rate is unknown
IN_GROUP = "settings of RoCE ports"
_NUMBER = re.compile("0x[0-9a-fA-F]{1,2}|0|[1-9][0-9]{0,2}")
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
    "mlnx_qos -i INTERFACE; grep -rE 'NCCL_IB_(TC|GID_INDEX)' /etc/environment /etc/profile.d /etc/nccl.conf"
)
def test_roce_settings(node: Node) -> None:
    """RoCE settings of ports.

    NCCL uses all rails in the same way: a rail without a routable RoCE v2 GID at the same index as the others makes a
    job fail at start, and one without congestion control or PFC, or in another traffic class, loses packets under load.
    PFC acts by priority, which packets have by their DSCP or by their VLAN tag (PCP). Active ports of the same model
    and speed are compared with each other, unless most nodes of the group have the same deviation, and each port with
    the same port on other nodes. By itself a port is a concern if all RoCE packets have a traffic class by its driver,
    or by NCCL_IB_TC in a file that sets it for jobs, and their priority has no PFC though another has, or neither PFC
    nor ECN; or if NCCL_IB_GID_INDEX is set for jobs and is not the index of an address of it. A node without InfiniBand
    or EFA whose fastest ports have no such GID has no rail, unless all nodes of the group are like that and have
    virtual functions that may hold the addresses. A port whose interface a pod has is not compared.

    Remedy (fix configuration): Give the interface its IP address. Set ECN, PFC, trust and the traffic class as on the
    other ports, also in the script that sets them at boot.
    """
    away = [*each(filter(is_elsewhere, node.roce_ports), lambda port: port.label)]
    with part:
        if away:
            seen = f"no interface of {listed(away)} in the node's network namespace, as where a pod has it"
            incomplete(f"{seen}; expected the settings of each port")
    ports = active_ports(node)
    if not ports:
        not_applicable("no active RoCE port on this node")
    rails = rails_of_jobs(node, ports)
    classes = numbers(variables_of_jobs(node, "NCCL_IB_TC"))
    lossy: dict[str, list[str]] = {}
    for label, ways in each(ports, lambda port: (port.label, unprotected(port, classes if port in rails else {}))):
        for way in ways:
            lossy.setdefault(way, []).append(label)
    for way, labels in lossy.items():
        concern_if(labels, f"{listed(labels)}: {way}")
    for variable, index in numbers(variables_of_jobs(node, "NCCL_IB_GID_INDEX")).items():
        if 0 < index < MAX_GIDS:  # 0: see network.transport_plan
            evaluate_index(variable, index, rails)
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


def variables_of_jobs(node: Node, name: str) -> dict[str, str]:
    """The values that files give to a variable of all jobs, by where: `NCCL_IB_TC=106 (/etc/nccl.conf line 2)`."""
    last: dict[str, tuple[str, str]] = {}
    for variable in readings(node, "environment")[0].get("environment", ()):
        reading, _ = readings(variable, "name", "value", "file", "where", "conditional")
        if reading.get("name") == name and reading.get("conditional") is False and "value" in reading:
            seen = f"{name}={reading['value'][:40]} ({reading.get('where', 'where was not reported')})"
            last[reading.get("file", seen)] = seen, reading["value"]  # a file's last line counts
    return dict(last.values())


def numbers(variables: Mapping[str, str]) -> dict[str, int]:
    """Those of them whose value is a number."""
    return {seen: int(value, 0) for seen, value in variables.items() if _NUMBER.fullmatch(value)}


def rails_of_jobs(node: Node, ports: Sequence[RocePort]) -> list[RocePort]:
    """The ports that jobs use: the fastest of those that NCCL_IB_HCA chooses; none beside EFA or InfiniBand."""
    if is_beside_another_fabric(node):
        return []
    names = {readings(port, "device")[0].get("device", "") for port in ports}
    for value in variables_of_jobs(node, "NCCL_IB_HCA").values():
        names &= set(chosen_adapters(value, names))
    return fastest([port for port in ports if readings(port, "device")[0].get("device", "") in names])


def is_beside_another_fabric(node: Node) -> bool:
    """Whether EFA or active InfiniBand is known to be what NCCL uses here."""
    with suppress(Incomplete, NotApplicable):
        return bool(node.efa_devices) or INFINIBAND in node.active_link_layers
    return False


def unprotected(port: RocePort, classes: Mapping[str, int]) -> list[str]:
    """The settings with which a port loses RoCE packets on a full network, by what sets their class.

    Raises Incomplete.
    """
    own = {f"traffic class {port.traffic_class[:40]}": port.given_class} if port.given_class else classes
    return [loss for by, given in own.items() for loss in _losses(port, port.priority_of(given), by)]


def _losses(port: RocePort, priority: int | None, by: str) -> list[str]:
    pfc = port.pfc or ""
    if priority is None or pfc[priority : priority + 1] != "0":
        return []
    seen = f"RoCE packets have priority {priority}, by {by}, and PFC is {pfc}"
    if "1" in pfc:
        return [f"{seen}; expected PFC for priority {priority}"]
    off = [
        name for name, on in (("notification", port.notifies), ("reaction", port.reacts)) if on[priority:][:1] == "0"
    ]
    return [f"{seen}, without ECN {' and '.join(off)}; expected PFC, or ECN on both sides"] if off else []


def evaluate_index(variable: str, index: int, rails: Sequence[RocePort]) -> None:
    """A concern if jobs are told to use a GID that is not there, or of version 1, on a port with a routable one."""
    elsewhere: dict[str, str] = {}
    for label, own, types in each(rails, lambda port: (port.label, port.gid_v2, dict(map(_of_gid, port.gids)))):
        if own != NO_GID and types.get(index) != ROCE_V2:
            elsewhere[label] = own
    seen = f"{variable} is the index of no RoCE v2 address of {listed(list(elsewhere))}"
    concern_if(elsewhere, f"{seen}; expected {' or '.join(sorted(set(elsewhere.values())))}, or no such variable")


def _of_gid(gid: Gid) -> tuple[int, str]:
    return gid.index, gid.type


def unrouted_rails(node: Node, ports: Sequence[RocePort]) -> list[str]:
    """The fastest RoCE ports if none of them has a routable GID; empty if unknown.

    Also empty next to EFA or active InfiniBand, or if virtual functions have the addresses on all nodes.
    """
    if is_beside_another_fabric(node):
        return []
    rails = fastest(ports)
    indexes = dict(each(rails, lambda port: (port.label, port.gid_v2)))
    is_bare = len(indexes) == len(rails) and set(indexes.values()) == {NO_GID}
    return [] if not is_bare or node.group.once("RoCE of virtual functions", is_of_virtual_functions) else list(indexes)


def fastest(ports: Sequence[RocePort]) -> list[RocePort]:
    """The ports of the highest rate, and those whose rate is unknown."""
    rates = [gbps(readings(port, "rate")[0].get("rate", "")) for port in ports]
    return [port for port, rate in zip(ports, rates, strict=True) if rate in (0, max(rates))]


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
    ports = (port for port in node.roce_ports if not is_elsewhere(port))
    return [port for port in ports if known(lambda: port.state, ACTIVE).endswith(ACTIVE)]  # noqa: B023 - at once


def is_elsewhere(port: RocePort) -> bool:
    """Whether the kernel knew no interface of its name here: no file shows the settings of one that a pod has."""
    pfc = port.data.get("pfc")
    return isinstance(pfc, dict) and pfc.get("error") == GONE


def of_ports(node: Node) -> Values:
    """Each setting of each port; None if it is unknown."""
    return {
        f"{what} of {label}": UNSET if value == "" else value
        for what, read in SETTINGS.items()
        for label, value in each(active_ports(node), lambda port: (port.label, read(port)))  # noqa: B023 - at once
    }
