"""Neuron devices as the driver shows them: /sys/devices/virtual/neuron_device, /sys/module/neuron, the PCI bus."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Absent, Node

FOLDER = "/sys/devices/virtual/neuron_device"
MODULE = "/sys/module/neuron"
BUS = "/sys/bus/pci/devices"
AMAZON, ON_BUS = "0x1d0f", Pattern(r"0x7[0-9]6[0-9]")  # Inferentia 7064, Trainium 7164, Inferentia2 7264, …
NAME = Pattern(r"neuron(\d{1,4})")
COUNTERS = ("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected")
MAX_CONNECTED = 128


def read(node: Node) -> object:
    """The driver's version, every device with its counters, and the number of devices on the bus. Raises Absent."""
    names = {int(match[1]): name for name in node.names(FOLDER) for match in [NAME.fullmatch(name)] if match}
    on_bus = sum(1 for address in node.names(BUS) if _is_neuron(node, f"{BUS}/{address}"))
    if not (names or on_bus or node.exists(MODULE)):
        raise Absent("no Neuron device on the PCI bus, and no module neuron is loaded")
    others = {"driver": node.text(f"{MODULE}/version", absent=""), "on_bus": on_bus}
    rows = {index: {"index": index} for index in sorted(names)}
    return node.each("devices", rows, lambda index: _device(node, index, names[index]), others)


def _is_neuron(node: Node, path: str) -> bool:
    if node.text(f"{path}/vendor", absent="") != AMAZON:
        return False
    return bool(ON_BUS.fullmatch(str(node.text(f"{path}/device", absent=""))))


def _device(node: Node, index: int, name: str) -> dict[str, object]:
    node.at(name)
    folder = f"{FOLDER}/{name}"
    device: dict[str, object] = {
        "index": index,
        "model": node.text(f"{folder}/info/architecture/device_name", absent=""),
        "serial": node.text(f"{folder}/info/serial_number", absent=""),
        "cores": _number(node, f"{folder}/core_count"),
        "connected": _numbers(node, f"{folder}/connected_devices"),
    }
    for counter in COUNTERS:
        device[counter] = _counter(node, f"{folder}/stats/hardware/{counter}")
    return device


def _counter(node: Node, path: str) -> object:
    """A counter's value: it is a file, or a folder with a total."""
    return _number(node, path) if not node.exists(f"{path}/total") else _number(node, f"{path}/total")


def _number(node: Node, path: str) -> object:
    text = node.text(path)
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 20 else text


def _numbers(node: Node, path: str) -> object:
    """`12, 3, 4, 1` as a list."""
    text = node.text(path)
    if not isinstance(text, str):
        return text
    parts = [word for word in re.split(r"[\s,]+", text) if word]
    return [int(word) for word in parts[:MAX_CONNECTED] if word.isdecimal() and len(word) < 6]
