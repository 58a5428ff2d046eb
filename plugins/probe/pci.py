"""GPUs and RDMA devices on the PCI bus, whatever the drivers think of them: /sys/bus/pci/devices."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Node

FOLDER = "/sys/bus/pci/devices"
NVIDIA, AMAZON, MELLANOX = "0x10de", "0x1d0f", "0x15b3"


def read(node: Node) -> object:
    """The NVIDIA, EFA and Mellanox devices, with their PCIe links."""
    found = []
    for address in node.names(FOLDER):
        vendor = node.text(f"{FOLDER}/{address}/vendor", absent="")
        if vendor not in (NVIDIA, AMAZON, MELLANOX):
            continue
        node.at(address)
        told = _device(node, address, str(vendor))
        if vendor != AMAZON or str(told["device"]).startswith("efa"):
            found.append(told)
    return {"devices": found}


def _device(node: Node, address: str, vendor: str) -> dict[str, object]:
    at = f"{FOLDER}/{address}"
    return {
        "address": address,
        "vendor": vendor[2:],
        "device": str(node.text(f"{at}/device", absent=""))[2:],
        "class": str(node.text(f"{at}/class", absent=""))[2:],
        "width": _width(node, f"{at}/current_link_width"),
        "width_max": _width(node, f"{at}/max_link_width"),
        "speed": node.text(f"{at}/current_link_speed", absent=""),
        "speed_max": node.text(f"{at}/max_link_speed", absent=""),
        "driver": node.linked(f"{at}/driver"),
    }


def _width(node: Node, path: str) -> object:
    told = node.text(path, absent="")
    if isinstance(told, str):
        return int(told) if told.isdigit() else None
    return told
