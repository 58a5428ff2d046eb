"""A node's RDMA ports in the order of the PCI bus, and their rails on two nodes. Travels."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network.collect_rdma import FOLDER
from clusterproof.plugins.evidence.network.collect_rdma import read as read_devices
from clusterproof.plugins.evidence.network.collect_roce import read as read_roce

EFA, INFINIBAND, ROCE = "EFA", "InfiniBand", "RoCE"
AMAZON = "0x1d0f"
MAX_PORTS = 64  # of a node: an instance has at most 32
ROUTED = ("ipv4", "ipv6")  # address kinds of a GID, the preferred one first


def ports(node: Node) -> list[dict[str, Any]]:
    """The ports intended for use: those of EFA devices if there are any; none that is disabled.

    Ethernet ports count if they have an address and no InfiniBand port is active: others are for storage or management.
    `place` is the device's position on the PCI bus and the port's number; `down` is why it cannot be used, if known.
    """
    gids = {(entry["device"], entry["port"]): entry["gids"] for entry in read_roce(node)["ports"]}  # type: ignore[index]
    ports_of_node = [
        _port(node, device, port, gids, len(device["ports"]))
        for device in devices(node)
        for port in device["ports"]
        if not str(port["physical_state"]).endswith("Disabled")
    ]
    meant = [port for port in ports_of_node if port["fabric"] == EFA] or _with_addresses(ports_of_node)
    return sorted(meant, key=lambda port: (len(port["place"]), port["place"]))[:MAX_PORTS]


def devices(node: Node) -> list[dict[str, Any]]:
    """The hardware RDMA devices of a node, whatever their ports' state."""
    devices_of_node = read_devices(node)["devices"]  # type: ignore[index]
    return [
        device for device in devices_of_node if device["vendor"] != ""
    ]  # software devices, such as soft RoCE, have none


def _with_addresses(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    is_infiniband = any(port["fabric"] == INFINIBAND and not port["down"] for port in candidates)
    kept = (INFINIBAND,) if is_infiniband else (INFINIBAND, ROCE)
    return [
        port for port in candidates if port["fabric"] in kept and (port["fabric"] != ROCE or port["gid"] is not None)
    ]


def _port(node: Node, device: dict[str, Any], port: dict[str, Any], gids: dict[Any, Any], count: int) -> dict[str, Any]:
    name, number = device["name"], port["port"]
    is_efa = node.text(f"{FOLDER}/{name}/device/vendor", absent="") == AMAZON
    is_ethernet = port["link_layer"] == "Ethernet"
    label = name if is_efa and count == 1 else f"{name} port {number}"
    down = "" if str(port["state"]).endswith("ACTIVE") else f"{label} is {port['state']}, {port['physical_state']}"
    return {
        "label": label,
        "device": name,
        "port": number,
        "fabric": EFA if is_efa else ROCE if is_ethernet else INFINIBAND,
        "place": f"{node.linked(f'{FOLDER}/{name}/device')}/{number}",
        "gid": _gid(gids.get((name, number), ())),
        "down": down,
    }


def _gid(gids: Any) -> int | None:
    """The GID index of a RoCE port: RoCE v2, preferably IPv4."""
    usable = [gid for gid in gids if gid["type"] == "RoCE v2" and gid["kind"] in ROUTED]
    best = sorted(usable, key=lambda gid: (ROUTED.index(gid["kind"]), gid["index"]))
    return best[0]["index"] if best else None


def rails(
    own: list[dict[str, Any]], others: list[dict[str, Any]]
) -> list[tuple[int, dict[str, Any] | None, dict[str, Any] | None]]:
    """The ports of two nodes by rail: those at the same position on the PCI bus; by order if most positions differ.

    The numbers are for these two nodes. A node that lacks a device has none on that rail, and later rails still match.
    """
    own_by_position, other_by_position = (
        {port["place"]: (number, port) for number, port in enumerate(side)} for side in (own, others)
    )
    if not 2 * len(own_by_position.keys() & other_by_position.keys()) > min(
        len(own_by_position), len(other_by_position)
    ):
        return [(number, ours, theirs) for number, (ours, theirs) in enumerate(zip_longest(own, others))]
    matched = []
    for position in sorted(
        own_by_position.keys() | other_by_position.keys(), key=lambda position: (len(position), position)
    ):
        ours, theirs = own_by_position.get(position), other_by_position.get(position)
        number = max(ports[0] for ports in (ours, theirs) if ports)
        matched.append((number, ours and ours[1], theirs and theirs[1]))
    return matched
