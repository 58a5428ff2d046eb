"""NVMe disks, local and EBS, and where they are mounted: /sys/class/nvme, /sys/class/block, mountinfo."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.storage.collect_mounts import mounted

CONTROLLERS = "/sys/class/nvme"
BLOCKS = "/sys/class/block"
DISK = re.compile(r"nvme\d{1,5}(c\d{1,5})?n\d{1,5}")
SECTORS_IN_KIB = 2
MAX_PARTS = 64
DEEPEST = 4  # partition, RAID, encryption, logical volume


def read(node: Node) -> object:
    """Every NVMe controller with its disks; a disk shows what is built on it and where any of that is mounted."""
    names = [name for name in node.names(CONTROLLERS) if name.startswith("nvme")]
    mount_points: dict[str, list[str]] = {}
    for mount in mounted(node):
        for key in (mount["device"], mount["source"]):
            mount_points.setdefault(key, []).append(mount["path"])
    return node.each("controllers", names, lambda name: _controller(node, name, mount_points))


def _controller(node: Node, name: str, mount_points: dict[str, list[str]]) -> dict[str, object]:
    node.at(name)
    controller = f"{CONTROLLERS}/{name}"
    disks = [entry for entry in node.names(controller) if DISK.fullmatch(entry)]
    return {
        "name": name,
        "model": node.text(f"{controller}/model"),
        "serial": node.text(f"{controller}/serial"),
        "firmware": node.text(f"{controller}/firmware_rev", absent=""),
        "transport": node.text(f"{controller}/transport", absent=""),
        "state": node.text(f"{controller}/state"),
        "disks": [_disk(node, re.sub(r"c\d+n", "n", disk), mount_points) for disk in disks],
    }


def _disk(node: Node, name: str, mount_points: dict[str, list[str]]) -> dict[str, object]:
    parts = _parts(node, name, DEEPEST)
    keys = [key for part in parts for key in (f"/dev/{part}", str(node.text(f"{BLOCKS}/{part}/dev", absent="")))]
    sectors = node.text(f"{BLOCKS}/{name}/size")
    is_number = isinstance(sectors, str) and sectors.isdecimal()
    return {
        "name": name,
        "kib": int(str(sectors)) // SECTORS_IN_KIB if is_number else sectors,
        "used_by": parts[1:],
        "mounted": sorted({mount_point for key in keys for mount_point in mount_points.get(key, ())})[:MAX_PARTS],
    }


def _parts(node: Node, name: str, deepest: int) -> list[str]:
    """A block device, its partitions, and the devices built on them: RAID arrays, logical volumes."""
    above = [entry for entry in node.names(f"{BLOCKS}/{name}") if node.exists(f"{BLOCKS}/{name}/{entry}/partition")]
    above += node.names(f"{BLOCKS}/{name}/holders")
    deeper = [part for entry in above[:MAX_PARTS] for part in (_parts(node, entry, deepest - 1) if deepest else ())]
    return list(dict.fromkeys([name, *deeper]))[:MAX_PARTS]
