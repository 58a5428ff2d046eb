"""How RoCE is set on the ports of network cards."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.fact import list_collected_as
from clusterproof.plugins.evidence.field import Field, Reported, every, readings, text, whole

ROCE_V2 = "RoCE v2"


@record
class Gid(Reported):
    """An entry of a port's table of GIDs that is in use."""

    index = Field(whole)
    type = Field(text)  # IB/RoCE v1, or RoCE v2
    kind = Field(text)  # of address: ipv4, ipv6 or link


@record
class RocePort(Reported):
    """A port whose link layer is Ethernet."""

    device = Field(text)
    model = Field(text)
    port = Field(whole)
    state = Field(text)
    rate = Field(text)
    gids = Field(every(Gid))
    notifies = Field(text)  # ECN as the receiver, a digit for each priority; empty where the driver does not show it
    reacts = Field(text)  # ECN as the sender
    traffic_class = Field(text)

    @property
    def label(self) -> str:
        """`mlx5_0 port 1`. Raises Incomplete."""
        number = readings(self, "port")[0].get("port")
        return self.device if number is None else f"{self.device} port {number}"

    @property
    def gid_v2(self) -> str:
        """The index of its first RoCE v2 GID of an address that is routed, IPv4 first; `none`. Raises Incomplete."""
        found = [gid for gid in self.gids if gid.type == ROCE_V2 and gid.kind != "link"]
        best = sorted(found, key=lambda gid: (gid.kind != "ipv4", gid.index))
        return str(best[0].index) if best else "none"


roce_ports = list_collected_as("roce", "ports", RocePort)
