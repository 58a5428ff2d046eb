"""RDMA devices as sysfs reports them (EFA, InfiniBand, RoCE); interfaces, names and addresses."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    NEVER_READ,
    Field,
    Reported,
    boolean,
    integer,
    objects_as,
    optional,
    read,
    readings,
    require,
    table,
    text,
    texts,
    values,
)

AMAZON = "1d0f"
EFA_NAMES = ("rdmap", "efa_")  # names that udev and the EFA driver give to devices
OTHER_NAMES = (
    "ib",
    "roce",
    "iw",
    "opa",
    "mlx",
    "bnxt_re",
    "irdma",
    "hfi1",
)  # those of other devices: `ibp24s0`, `mlx5_0`
IFF_UP = 0x1  # linux/if.h: the interface is switched on
UP, DOWN, OFF = "up", "down", "off"  # states of a link

_RATE = Pattern(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec")
OF_OTHER_MACHINES = ("cdc_", "rndis")  # interfaces to the board's own controller: same addresses on every machine
NO_MAC = "00:00:00:00:00:00"
LINK_LOCAL = "169.254."


ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"  # sysfs's names of a port's link layer


@record
class Port(Reported):
    """One port of an RDMA device; `state` and `physical_state` are in sysfs's words: `4: ACTIVE`."""

    number = Field(integer, "port")
    state = Field(text)
    physical_state = Field(text)
    rate = Field(text)
    link_layer = Field(text)
    link_downed = Field(optional(integer))  # since its driver was loaded; None where it does not count them
    symbol_errors = Field(optional(integer))
    counters = Field(table)  # by sysfs's names, those that it has

    @property
    def label(self) -> str:
        """`port 1`; without the number if that is unknown."""
        reading, _ = readings(self, "number")
        return f"port {reading['number']}" if reading else "a port"

    @property
    def gbps(self) -> float:
        """The rate, from `400 Gb/sec (4X NDR)`. Raises Incomplete."""
        rate = _RATE.match(self.rate)
        if not rate:
            raise Incomplete(f"{self.label} has the rate {self.rate!r}, which is not a number")
        return float(rate[1])

    @property
    def is_active(self) -> bool:
        """Whether the state is `4: ACTIVE`. Raises Incomplete."""
        return self.state.endswith("ACTIVE")

    @property
    def is_linked(self) -> bool:
        """Whether the physical state is `5: LinkUp`. Raises Incomplete."""
        return self.physical_state.endswith("LinkUp")

    @property
    def is_disabled(self) -> bool:
        """Whether the port was switched off by an administrator. Raises Incomplete."""
        return self.physical_state.endswith("Disabled")

    @property
    def is_unaddressed(self) -> bool:
        """Whether it has a link but no IPv4 address, in which case Linux reports an iWARP port as in training.

        An InfiniBand port that waits for a subnet manager is INIT with a link that is up. Raises Incomplete.
        """
        seen, _ = readings(self, "physical_state", "link_layer")
        is_in_training = seen.get("physical_state", "").endswith("PortConfigurationTraining")
        return self.state.endswith("INIT") and (is_in_training or seen.get("link_layer") == ETHERNET)

    @property
    def is_held_down(self) -> bool:
        """Whether it is down on a link that is up, as a virtual function is without a GUID. Raises Incomplete."""
        return self.state.endswith("DOWN") and self.is_linked

    @property
    def is_silent(self) -> bool:
        """Whether its driver reports no state of ports, as Linux 6.2's for Azure's MANA. Raises Incomplete."""
        return self.state.endswith("NOP")


@record
class RdmaDevice(Reported):
    """One entry of /sys/class/infiniband; not every one is an EFA device."""

    name = Field(text)
    vendor = Field(text)  # empty for software devices, such as soft RoCE and soft iWARP
    device = Field(text)
    firmware = Field(text)  # empty where its driver does not report it, as EFA's
    board = Field(optional(text))  # PSID: MT_0000000838; each has firmware of its own
    p2p = Field(optional(text))  # EFA: the provider of GPU memory; None where its driver has no such file
    gdr = Field(optional(text))  # EFA's older drivers: `1` where there is one
    ports = Field(objects_as(Port))
    is_alone = Field(optional(boolean), "alone")  # of a capture in which it was asked for by name

    @property
    def label(self) -> str:
        """The kernel's name of the device."""
        return self.name

    @property
    def model(self) -> str:
        """The PCI vendor and device id: `15b3:1021`. Raises Incomplete."""
        return f"{self.vendor}:{self.device}"

    @property
    def has_peer_memory(self) -> bool:
        """Whether EFA's driver reports that it can reach GPU memory. Raises Incomplete."""
        return bool(self.p2p) or self.gdr == "1"

    @property
    def is_efa(self) -> bool:
        """Whether this is an EFA device, by PCI vendor and device id (reference: EKS node monitoring agent).

        If one of the two could not be read, the other decides; if neither could, the name or a port's link layer does.
        Raises Incomplete.
        """
        ids, unread = readings(self, "vendor", "device")
        if not ids:
            reading, _ = readings(self, "name", "ports")
            name = reading.get("name", "")
            layers = {readings(port, "link_layer")[0].get("link_layer") for port in reading.get("ports", ())}
            if name.startswith(OTHER_NAMES) or not layers.isdisjoint((ETHERNET, INFINIBAND)):
                return False
            if not name.startswith(EFA_NAMES):
                require(unread)
        return bool(ids.get("vendor", AMAZON) == AMAZON and ids.get("device", "efa").startswith("efa"))


@record
class Interface(Reported):
    """A network interface with a device of its own, so not a virtual one."""

    name = Field(text)
    driver = Field(text)
    mtu = Field(integer)
    state = Field(text)
    flags = Field(integer)
    carrier = Field(optional(boolean))  # None while it is administratively down
    speed_mbit_s = Field(optional(integer))  # None where its driver reports none

    @property
    def label(self) -> str:
        """The name; a phrase for an interface whose name is unknown."""
        return str(readings(self, "name")[0].get("name", "an interface without a name"))

    @property
    def link(self) -> str:
        """UP; DOWN if it is switched on but has no link; or OFF. Raises Incomplete."""
        flags = readings(self, "flags")[0].get("flags", IFF_UP)  # an interface that reports a link is switched on
        if not flags & IFF_UP:
            return OFF
        if self.carrier is None:
            raise Incomplete(f"whether {self.label} has a link was not reported", cause="not reported by the node")
        return UP if self.carrier else DOWN


@record
class Counters(Reported):
    """A device's or an interface's counters by name, read at two times; only those that its driver has."""

    name = Field(text)
    counters = Field(table)

    def counted(self, counter: str) -> int | None:
        """How much a counter rose between the two reads; None if the driver does not have it. Raises Incomplete."""
        if counter not in self.counters:
            return None
        first, *rest = (read(value, integer, counter) for value in self._looks(counter))
        if not rest:
            why = self.data.get(NEVER_READ, "")
            raise Incomplete(f"{counter} was read only once ({str(why)[:300]})", cause="counters were read only once")
        if rest[0] < first:
            raise Incomplete(f"{counter} went backwards, from {first} to {rest[0]}: it was reset meanwhile")
        return rest[0] - first

    def total(self, counter: str) -> int:
        """Where a counter stands at the last look that read it. Raises Incomplete."""
        first, last = (looks := self._looks(counter))[0], looks[-1]
        return read(first if isinstance(last, dict) else last, integer, counter)  # a dict is an error in its place

    def _looks(self, counter: str) -> list[object]:
        return read(self.counters.get(counter), _one_or_two, counter)


def _one_or_two(data: object) -> list[object]:
    looks = values(data)
    if len(looks) not in (1, 2):
        raise TypeError
    return looks


@record
class HostsEntry(Reported):
    """An address that /etc/hosts gives the node's own name."""

    address = Field(text)
    is_own = Field(boolean)


@record
class Nameserver(Reported):
    """A name server of the node."""

    address = Field(text)
    answers = Field(boolean)


@record
class InterfaceAddress(Reported):
    """The addresses of an interface; `mac` and `ipv4` are empty if it has none."""

    name = Field(text)
    driver = Field(text)
    mac = Field(text)
    ipv4 = Field(text)

    @property
    def unique(self) -> tuple[str, ...]:
        """The addresses that no other node may have, as far as they are known."""
        known, _ = readings(self, "driver", "mac", "ipv4")
        if known.get("driver", "").startswith(OF_OTHER_MACHINES):
            return ()
        mac, ipv4 = known.get("mac", "").lower(), known.get("ipv4", "")
        own = ("" if mac == NO_MAC else mac, "" if ipv4.startswith(LINK_LOCAL) else ipv4)
        return tuple(address for address in own if address)


@record
class Naming(Reported):
    """A node's own name and addresses; `duplicates` are IPv6 addresses that another host has too."""

    hostname = Field(text)
    hosts = Field(objects_as(HostsEntry))
    nameservers = Field(objects_as(Nameserver))
    addresses = Field(objects_as(InterfaceAddress))
    duplicates = Field(texts)

    @property
    def not_own(self) -> tuple[str, ...]:
        """The addresses that /etc/hosts gives the node's name although another has them. Raises Incomplete.

        What an interface shows is the node's, even if the probe cannot bind to it, as to an address in a VRF.
        """
        interfaces = readings(self, "addresses")[0].get("addresses", ())
        shown = {readings(interface, "ipv4")[0].get("ipv4") for interface in interfaces}
        return tuple(entry.address for entry in self.hosts if not entry.is_own and entry.address not in shown)

    @property
    def unique(self) -> frozenset[str]:
        """The MAC and IPv4 addresses that no other node may have, as far as they are known. Raises Incomplete."""
        return frozenset(own for address in self.addresses for own in address.unique)


def fastest_models(devices: Iterable[RdmaDevice]) -> frozenset[str]:
    """The models of RDMA devices with the fastest active ports; of those that are active at an unknown rate, too."""
    rates: dict[str, float] = {}
    for device in devices:
        reading, _ = readings(device, "model", "ports")
        ports = [readings(port, "is_active", "gbps")[0] for port in reading.get("ports", ())]
        active = [port.get("gbps", inf) for port in ports if port.get("is_active")]
        if active and "model" in reading:
            rates[reading["model"]] = max(*active, rates.get(reading["model"], 0.0))
    fastest = max((rate for rate in rates.values() if rate < inf), default=0.0)
    return frozenset(model for model, rate in rates.items() if rate >= fastest)
