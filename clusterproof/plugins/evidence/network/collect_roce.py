"""How RoCE is set on the ports of network cards: GIDs, ECN, traffic class; /sys/class/infiniband and net."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node

FOLDER = "/sys/class/infiniband"
MAX_GIDS = 16  # of a port: what NCCL and perftest choose from are among the first
PRIORITIES = range(8)


def read(node: Node) -> object:
    """Every port of hardware whose link layer is Ethernet."""
    ports = []
    for name in node.names(FOLDER):
        node.at(name)
        vendor, device = (str(node.text(f"{FOLDER}/{name}/device/{file}", absent="")) for file in ("vendor", "device"))
        for port in node.names(f"{FOLDER}/{name}/ports") if vendor else ():
            if node.text(f"{FOLDER}/{name}/ports/{port}/link_layer", absent="") == "Ethernet":
                ports.append({"device": name, "model": f"{vendor[2:]}:{device[2:]}", **_port(node, name, port)})
    return {"ports": ports}


def _port(node: Node, name: str, port: str) -> dict[str, object]:
    at = f"{FOLDER}/{name}/ports/{port}"
    interface = str(node.text(f"{at}/gid_attrs/ndevs/0", absent=""))
    ecn = f"/sys/class/net/{interface}/ecn"
    return {
        "port": int(port),
        "state": node.text(f"{at}/state", absent=""),
        "rate": node.text(f"{at}/rate", absent=""),
        "gids": [gid for index in range(MAX_GIDS) if (gid := _gid(node, at, index))],
        "notifies": _switches(node, f"{ecn}/roce_np/enable"),
        "reacts": _switches(node, f"{ecn}/roce_rp/enable"),
        "traffic_class": node.text(f"{FOLDER}/{name}/tc/{port}/traffic_class", absent=""),
    }


def _gid(node: Node, at: str, index: int) -> dict[str, object] | None:
    """An entry of the table that is in use: its index and type, and of which kind its address is."""
    address = node.text(f"{at}/gids/{index}", absent="")
    if not isinstance(address, str) or not address.replace(":", "").strip("0"):
        return None
    mapped = address.startswith("0000:0000:0000:0000:0000:ffff:")
    kind = "ipv4" if mapped else "link" if address.startswith("fe80") else "ipv6"
    return {"index": index, "type": node.text(f"{at}/gid_attrs/types/{index}", absent=""), "kind": kind}


def _switches(node: Node, folder: str) -> str:
    """One digit for each priority: whether congestion control is on; empty where the driver has no such files."""
    bits = [str(node.text(f"{folder}/{priority}", absent="")) for priority in PRIORITIES]
    return "".join(bits) if all(word in ("0", "1") for word in bits) else ""
