"""GPUs, network adapters and NVMe controllers on the PCI bus, independent of drivers: /sys/bus/pci/devices."""

from __future__ import annotations

import os

from clusterproof.plugins.agent.reading import Node

FOLDER = "/sys/bus/pci/devices"
NVIDIA, MELLANOX = "0x10de", "0x15b3"
CLASSES = ("0x0108", "0x02")  # classes of NVMe controllers and of network adapters, of any vendor
TOTALS = {  # files of PCIe's advanced error reporting, and the total in each
    "correctable": "TOTAL_ERR_COR",
    "nonfatal": "TOTAL_ERR_NONFATAL",
    "fatal": "TOTAL_ERR_FATAL",
}


def read(node: Node) -> object:
    """These devices and all others of NVIDIA and Mellanox, with their PCIe links, and the switches above them."""
    rows: dict[str, dict[str, object]] = {}
    above: set[str] = set()
    for address in node.names(FOLDER):
        kind = [str(node.text(f"{FOLDER}/{address}/{name}", absent="")) for name in ("vendor", "device", "class")]
        if kind[0] in (NVIDIA, MELLANOX) or kind[2].startswith(CLASSES):
            path = path_of(node, address)
            rows[address] = {
                "address": address,
                **dict(zip(("vendor", "device", "class"), (word[2:] for word in kind))),
                "path": path,
                "driver": node.linked(f"{FOLDER}/{address}/driver"),
                "function_of": node.linked(f"{FOLDER}/{address}/physfn"),
                "numa": _numa(node, f"{FOLDER}/{address}/numa_node"),
            }
            above.update(path[-2:0:-2])  # the upstream ports of switches
    switches = {"switches": [], "all_switches": [{"address": address} for address in sorted(above)]}
    devices = node.each("devices", rows, lambda address: _device(node, address, rows[address]), switches)["devices"]
    return {"devices": devices, "switches": [_switch(node, address) for address in sorted(above)]}


def _device(node: Node, address: str, row: dict[str, object]) -> dict[str, object]:
    node.at(address)
    at = f"{FOLDER}/{address}"
    return {
        **row,
        **_link(node, at),
        "errors": {kind: _total(node, f"{at}/aer_dev_{kind}", name) for kind, name in TOTALS.items()},
    }


def _switch(node: Node, address: str) -> dict[str, object]:
    node.at(address)
    at = f"{FOLDER}/{address}"
    ids = {name: str(node.text(f"{at}/{name}", absent=""))[2:] for name in ("vendor", "device")}
    return {"address": address, **ids, "path": path_of(node, address), **_link(node, at)}


def path_of(node: Node, address: str) -> list[str]:
    """The path to a device: its host bridge, then the bridges from the top down."""
    try:
        folders = os.readlink(f"{node.root}{FOLDER}/{address}").split("/")[:-1]
    except OSError:
        return []
    tops = [index for index, name in enumerate(folders) if name.startswith("pci")]  # pci0000:44; two below a VMD
    return folders[tops[-1] :] if tops else []


def _link(node: Node, at: str) -> dict[str, object]:
    return {
        "width": _width(node, f"{at}/current_link_width"),
        "width_max": _width(node, f"{at}/max_link_width"),
        "speed": node.text(f"{at}/current_link_speed", absent=""),
        "speed_max": node.text(f"{at}/max_link_speed", absent=""),
        "port_width_max": _width(node, f"{at}/../max_link_width"),  # of the port that the device is attached to
        "port_speed_max": node.text(f"{at}/../max_link_speed", absent=""),
        "power": node.text(f"{at}/power/runtime_status", absent=""),
    }


def _numa(node: Node, path: str) -> object:
    """The device's NUMA node; -1 if the firmware names none."""
    text = node.text(path, absent="-1")
    return int(text) if isinstance(text, str) and text.lstrip("-").isdecimal() else text


def _width(node: Node, path: str) -> object:
    text = node.text(path, absent="")
    if isinstance(text, str):
        return int(text) if text.isdecimal() else None
    return text


def _total(node: Node, path: str, name: str) -> object:
    """The total at the end of a file of error counters; null if there is no such file."""
    text = node.text(path, absent="")
    if not isinstance(text, str) or not text:
        return text or None
    count = dict(line.rpartition(" ")[::2] for line in text.splitlines()).get(name, "")
    if count.isascii() and count.isdecimal() and len(count) < 20:
        return int(count)
    return {"error": "NOT_UNDERSTOOD", "text": f"{path}: no {name}"}
