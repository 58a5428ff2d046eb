"""How many GPUs there are to load."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.reading import Node

BUS = "/sys/bus/pci/devices"
DEVICE = re.compile(r"nvidia\d{1,3}")
NVIDIA, CLASSES = "0x10de", ("0x0302", "0x0300")
NONE = {"none": "no NVIDIA GPU"}


def gpu_count(node: Node) -> int:
    """The GPUs that were given to this process, by their device files; without those all that the bus has."""
    given = sum(1 for name in node.names("/dev") if DEVICE.fullmatch(name))
    return given or sum(1 for address in node.names(BUS) if _is_gpu(node, f"{BUS}/{address}"))


def _is_gpu(node: Node, path: str) -> bool:
    if node.text(f"{path}/vendor", absent="") != NVIDIA:
        return False
    return str(node.text(f"{path}/class", absent="")).startswith(CLASSES)
