"""A node's RDMA devices, RoCE ports and interfaces, and the state of its network software."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import (
    INTERFACES,
    NICS,
    CollectorData,
    collected_as,
    collected_by,
    limited,
    list_collected_as,
)
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    integer,
    number,
    objects,
    objects_as,
    optional,
    readings,
    require,
    table,
    text,
    texts,
)
from clusterproof.plugins.evidence.host.facts import (
    Command,
)
from clusterproof.plugins.evidence.network.facts import Counters, Interface, Naming, RdmaDevice
from clusterproof.plugins.evidence.software.facts import Variable

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


SOFTWARE_NAMES = ("rxe", "siw")
MIN_S = 0.01  # between two looks at a counter: less says nothing of a rate


@collected_by("rdma")
def rdma_devices(_node: Node, rdma: CollectorData) -> tuple[RdmaDevice, ...]:
    """The RDMA devices of hardware: soft RoCE and soft iWARP are not what a cluster is built with."""
    devices = limited(rdma.get("devices", objects), NICS)
    return tuple(RdmaDevice(entry) for entry in devices if not _is_software(entry))


def _is_software(entry: Mapping[str, Any]) -> bool:
    """Whether it has no vendor; if that was not read, whether its name is that of soft RoCE or soft iWARP."""
    is_unread = entry.get("vendor") is None
    return str(entry.get("name")).startswith(SOFTWARE_NAMES) if is_unread else bool(entry["vendor"] == "")


@collected_by()
def efa_devices(node: Node) -> tuple[RdmaDevice, ...]:
    """The EFA devices."""
    return tuple(device for device in node.rdma_devices if device.is_efa)


def has_efa(node: Node) -> bool:
    """Whether EFA devices are there, or should be. Raises Incomplete if that is unknown."""
    return bool(readings(node, "efa_devices")[0].get("efa_devices")) or node.expected("efa") > 0


@collected_by("rdma")
def efa_driver(_node: Node, rdma: CollectorData) -> str:
    """The version of EFA's driver; empty if it reports none (the driver in Linux itself) or was not asked."""
    return rdma.get("efa_version", optional(text)) or ""


@collected_by()
def efa_seen(node: Node) -> int:
    """How many EFA devices the driver or the PCI bus shows, whichever is more; 0 only if the PCI bus was read.

    Raises Incomplete.
    """
    try:
        driven = len(node.efa_devices)
    except (Incomplete, NotApplicable):
        driven = 0
    try:
        return max(driven, sum(device.is_efa for device in node.pci_devices))
    except (Incomplete, NotApplicable):
        if driven:
            return driven
        raise


@collected_by()
def majority_efa(node: Node) -> int | None:
    """How many EFA devices most nodes of the group have; None if no number has a majority."""
    counts = node.group.most("EFA devices", lambda other: [str(other.efa_seen)])
    return int(next(iter(counts))) if counts else None


@collected_by()
def efa_attached(node: Node) -> int:
    """How many EFA devices are attached: as AWS reports; otherwise the number seen, or that of most nodes in the group.

    Raises Incomplete if that is unknown.
    """
    if node.target.efa_attached is not None:
        return node.target.efa_attached
    with suppress(Incomplete):  # the devices seen count even if the place of the node is unknown
        if node.is_outside_ec2:
            return 0
    try:
        return max(node.efa_seen, node.majority_efa or 0)
    except Incomplete:
        if node.type.efa == 0 or node.type.is_made_for_efa:
            return int(node.of_type("efa"))
        raise


@collected_by()
def ib_devices(node: Node) -> tuple[RdmaDevice, ...]:
    """The RDMA devices that are not EFA."""
    return tuple(device for device in node.rdma_devices if not device.is_efa)


@collected_by()
def active_link_layers(node: Node) -> frozenset[str]:
    """The link layers of the active ports of InfiniBand and RoCE devices. Raises Incomplete if no port reports one."""
    layers, unread = set(), []
    for device in node.ib_devices:
        reading, why = readings(device, "ports")
        unread += why
        for port in reading.get("ports", ()):
            of_port, why = readings(port, "is_active", "link_layer")
            layers |= {of_port["link_layer"]} if of_port.get("is_active") and "link_layer" in of_port else set()
            unread += why
    if not layers:
        require(unread)
    return frozenset(layers)


@collected_by("rdma")
def modules(node: Node, rdma: CollectorData) -> tuple[str, ...]:
    """Which of the relevant kernel modules are loaded."""
    return rdma.get("modules", texts)


@collected_by("rdma")
def uverbs(node: Node, rdma: CollectorData) -> tuple[str, ...]:
    """The device files in /dev/infiniband."""
    return rdma.get("uverbs", texts)


@collected_by("rdma")
def nvidia_taint(node: Node, rdma: CollectorData) -> str:
    """How the NVIDIA module taints the kernel: with a P if it is not the open one; empty if no module is loaded."""
    return rdma.get("nvidia_taint", text)


efa_counters = list_collected_as("efa_counters", "devices", Counters, NICS)


@collected_by()
def efa_counters_by_name(node: Node) -> Mapping[str, Counters]:
    """EFA's counters by device name, for the devices that report a name. Raises Incomplete."""
    return {
        reading["name"]: counters
        for counters in reversed(node.efa_counters)
        if (reading := readings(counters, "name")[0])
    }


@collected_by("efa_counters")
def efa_counted_s(node: Node, counters: CollectorData) -> float:
    """The seconds between the two reads of EFA's counters."""
    return _between(counters, "EFA's counters were")


ena_counters = list_collected_as("ena_counters", "interfaces", Counters, INTERFACES)


@collected_by("ena_counters")
def ena_counted_s(node: Node, counters: CollectorData) -> float:
    """The seconds between the two reads of the ENA driver's counters."""
    return _between(counters, "what ENA's driver counts was")


interfaces = list_collected_as("interfaces", "physical", Interface, INTERFACES)


@collected_by("interfaces")
def interface_names(node: Node, interfaces: CollectorData) -> tuple[str, ...]:
    """The names of all network interfaces."""
    return interfaces.get("names", texts)


naming = collected_as("naming", Naming)
environment = list_collected_as("environment", "variables", Variable)


@collected_by("environment")
def environment_unread(node: Node, environment: CollectorData) -> tuple[str, ...]:
    """The files that set variables for jobs but could not be read."""
    return tuple(environment.get("unread", table))


fi_info = collected_as("libfabric", Command)


def _between(counters: CollectorData, what: str) -> float:
    seconds = counters.get("seconds", number)
    if seconds < MIN_S:
        raise Incomplete(f"{what} looked at {seconds:g} s apart; expected at least {MIN_S:g} s")
    return seconds


ROCE_V2 = "RoCE v2"
_TRAFFIC_CLASS = Pattern(r"[0-9]{1,3}$")


@record
class Gid(Reported):
    """A used entry of a port's GID table."""

    index = Field(integer)
    type = Field(text)  # IB/RoCE v1, or RoCE v2
    kind = Field(text)  # kind of address: ipv4, ipv6 or link


@record
class RocePort(Reported):
    """A port whose link layer is Ethernet."""

    device = Field(text)
    model = Field(text)
    port = Field(integer)
    state = Field(text)
    rate = Field(text)
    gids = Field(objects_as(Gid))
    notifies = Field(text)  # ECN as the receiver, a digit for each priority; empty where the driver does not show it
    reacts = Field(text)  # ECN as the sender
    traffic_class = Field(text)
    pfc = Field(optional(text))  # one digit for each priority; empty if the driver has none, None in older recordings
    dscp = Field(optional(text))  # the priority of each DSCP; empty if the VLAN tag (PCP) gives the priority

    @property
    def label(self) -> str:
        """`mlx5_0 port 1`. Raises Incomplete."""
        number = readings(self, "port")[0].get("port")
        return self.device if number is None else f"{self.device} port {number}"

    @property
    def gid_v2(self) -> str:
        """The index of the first RoCE v2 GID with a routable address, IPv4 preferred; or `none`. Raises Incomplete."""
        routed = [gid for gid in self.gids if gid.type == ROCE_V2 and gid.kind != "link"]
        best = sorted(routed, key=lambda gid: (gid.kind != "ipv4", gid.index))
        return str(best[0].index) if best else "none"

    @property
    def given_class(self) -> int:
        """The traffic class that the port gives all RoCE packets: 106, or `Global tclass=106`; 0 if none.

        Raises Incomplete.
        """
        given = _TRAFFIC_CLASS.search(self.traffic_class)
        return int(given[0]) if given else 0

    def priority_of(self, traffic_class: int) -> int | None:
        """The priority of packets in a traffic class with a DSCP; None if VLAN tags choose it, or it is not shown.

        Raises Incomplete.
        """
        dscp = traffic_class >> 2
        priority = (self.dscp or "")[dscp : dscp + 1]
        return int(priority) if dscp and priority.isdecimal() else None

    @property
    def trust(self) -> str:
        """What gives packets their priority: `PCP` or `DSCP`, with the priority of each DSCP if it is not the default.

        Empty if the driver does not show it. Raises Incomplete.
        """
        if not self.dscp:
            return "PCP" if self.pfc else ""
        if all(priority == str(dscp >> 3) for dscp, priority in enumerate(self.dscp)):
            return "DSCP"
        begin, runs = 0, []
        for priority, dscps in groupby(self.dscp):
            end = begin + len(list(dscps)) - 1
            runs.append(f"{begin}-{end}: {priority}" if end > begin else f"{begin}: {priority}")
            begin = end + 1
        return f"DSCP ({', '.join(runs)})"


roce_ports = list_collected_as("roce", "ports", RocePort, NICS)
