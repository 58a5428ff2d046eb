"""What a node is called, which addresses it has, and its name servers."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, readings, text, texts

OF_OTHER_MACHINES = ("cdc_", "rndis")  # drivers of interfaces to the board's own controller: alike on every machine
NO_MAC = "00:00:00:00:00:00"
LINK_LOCAL = "169.254."


@record
class HostsEntry(Reported):
    """An address that /etc/hosts gives the node's own name."""

    address = Field(text)
    is_own = Field(flag)


@record
class Nameserver(Reported):
    """A server that the node asks for names."""

    address = Field(text)
    answers = Field(flag)


@record
class InterfaceAddress(Reported):
    """What an interface is reached by; `mac` and `ipv4` are empty where it has none."""

    name = Field(text)
    driver = Field(text)
    mac = Field(text)
    ipv4 = Field(text)

    @property
    def unique(self) -> tuple[str, ...]:
        """What no other node may have, as far as it is known."""
        known, _ = readings(self, "driver", "mac", "ipv4")
        if known.get("driver", "").startswith(OF_OTHER_MACHINES):
            return ()
        mac, ipv4 = known.get("mac", "").lower(), known.get("ipv4", "")
        data = ("" if mac == NO_MAC else mac, "" if ipv4.startswith(LINK_LOCAL) else ipv4)
        return tuple(one for one in data if one)


@record
class Naming(Reported):
    """A node's own name and addresses; `duplicates` are IPv6 addresses that another host was found to have."""

    hostname = Field(text)
    hosts = Field(every(HostsEntry))
    nameservers = Field(every(Nameserver))
    addresses = Field(every(InterfaceAddress))
    duplicates = Field(texts)

    @property
    def unique(self) -> frozenset[str]:
        """The MAC and IPv4 addresses that no other node may have, as far as they are known. Raises Incomplete."""
        return frozenset(one for address in self.addresses for one in address.unique)
