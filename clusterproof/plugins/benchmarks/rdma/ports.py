"""The RDMA ports of a node in the order of the PCI bus, and which are those of one rail on two nodes. Travels."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network.collect_rdma import FOLDER
from clusterproof.plugins.evidence.network.collect_rdma import read as read_devices
from clusterproof.plugins.evidence.network.collect_roce import read as read_roce

EFA, INFINIBAND, ROCE = "EFA", "InfiniBand", "RoCE"
AMAZON = "0x1d0f"
MAX_PORTS = 64  # of a node: an instance has 32 at most
ROUTED = ("ipv4", "ipv6")  # kinds of a GID's address, the better one first


def ports(node: Node) -> list[dict[str, Any]]:
    """The ports that are meant to be used: of EFA devices where there are any; none that somebody switched off.

    `place` is where the device is on the PCI bus, and the port's number; `down` why it cannot be used, if that is seen.
    """
    gids = {(one["device"], one["port"]): one["gids"] for one in read_roce(node)["ports"]}  # type: ignore[index]
    found = [
        _port(node, device, port, gids, len(device["ports"]))
        for device in read_devices(node)["devices"]  # type: ignore[index]
        if device["vendor"] != ""  # of software, as soft RoCE
        for port in device["ports"]
        if not str(port["physical_state"]).endswith("Disabled")
    ]
    fabric = [port for port in found if port["fabric"] == EFA] or found
    return sorted(fabric, key=lambda port: (len(port["place"]), port["place"]))[:MAX_PORTS]


def _port(node: Node, device: dict[str, Any], port: dict[str, Any], gids: dict[Any, Any], count: int) -> dict[str, Any]:
    name, number = device["name"], port["port"]
    is_efa = node.text(f"{FOLDER}/{name}/device/vendor", absent="") == AMAZON
    is_ethernet = port["link_layer"] == "Ethernet"
    label = name if is_efa and count == 1 else f"{name} port {number}"
    gid = _gid(gids.get((name, number), ()))
    down = "" if str(port["state"]).endswith("ACTIVE") else f"{label} is {port['state']}, {port['physical_state']}"
    if is_ethernet and gid is None:
        down = down or f"{label} has no RoCE v2 GID of an address that is routed"
    return {
        "label": label,
        "device": name,
        "port": number,
        "fabric": EFA if is_efa else ROCE if is_ethernet else INFINIBAND,
        "place": f"{node.linked(f'{FOLDER}/{name}/device')}/{number}",
        "gid": gid,
        "down": down,
    }


def _gid(gids: Any) -> int | None:
    """The index by which a RoCE port is addressed: RoCE v2, IPv4 first."""
    usable = [gid for gid in gids if gid["type"] == "RoCE v2" and gid["kind"] in ROUTED]
    best = sorted(usable, key=lambda gid: (ROUTED.index(gid["kind"]), gid["index"]))
    return best[0]["index"] if best else None


def rails(
    own: list[dict[str, Any]], others: list[dict[str, Any]]
) -> list[tuple[int, dict[str, Any] | None, dict[str, Any] | None]]:
    """The ports of two nodes by rail: those at the same place of the PCI bus, or by their order where none is.

    A node that lacks a device so has none on that rail, and the rails behind it are still the same.
    """
    here, there = ({port["place"]: (number, port) for number, port in enumerate(side)} for side in (own, others))
    if not here.keys() & there.keys():
        return [(number, _at(own, number), _at(others, number)) for number in range(max(len(own), len(others)))]
    matched = []
    for place in sorted(here.keys() | there.keys(), key=lambda place: (len(place), place)):
        ours, theirs = here.get(place), there.get(place)
        number = max(found[0] for found in (ours, theirs) if found)
        matched.append((number, ours and ours[1], theirs and theirs[1]))
    return matched


def _at(side: list[dict[str, Any]], number: int) -> dict[str, Any] | None:
    return side[number] if number < len(side) else None
