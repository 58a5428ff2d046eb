"""GPUs and RDMA devices on the PCI bus, whatever the drivers think of them: /sys/bus/pci/devices."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Node

FOLDER = "/sys/bus/pci/devices"
NVIDIA, AMAZON, MELLANOX = "0x10de", "0x1d0f", "0x15b3"
TOTALS = {  # of PCIe's advanced error reporting, by the file that tells it
    "correctable": "TOTAL_ERR_COR",
    "nonfatal": "TOTAL_ERR_NONFATAL",
    "fatal": "TOTAL_ERR_FATAL",
}


def read(node: Node) -> object:
    """The NVIDIA, EFA and Mellanox devices, with their PCIe links and the errors of these."""
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
        "numa": _numa(node, f"{at}/numa_node"),
        "errors": {kind: _total(node, f"{at}/aer_dev_{kind}", name) for kind, name in TOTALS.items()},
    }


def _numa(node: Node, path: str) -> object:
    """The device's NUMA node; -1 where the firmware names none."""
    told = node.text(path, absent="-1")
    return int(told) if isinstance(told, str) and told.lstrip("-").isdigit() else told


def _width(node: Node, path: str) -> object:
    told = node.text(path, absent="")
    if isinstance(told, str):
        return int(told) if told.isdigit() else None
    return told


def _total(node: Node, path: str, name: str) -> object:
    """The total that a file of error counters ends with; null where there is no such file."""
    told = node.text(path, absent="")
    if not isinstance(told, str) or not told:
        return told or None
    count = dict(line.rpartition(" ")[::2] for line in told.splitlines()).get(name, "")
    if count.isascii() and count.isdigit() and len(count) < 20:
        return int(count)
    return {"error": "NOT_UNDERSTOOD", "text": f"{path}: no {name}"}
