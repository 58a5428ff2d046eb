"""NVMe disks of an instance: the root EBS volume, and local ones in a striped volume."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed.image import Folder, Link, NodeImage
from tests.testbed.sysfs import Tree

EBS, LOCAL = "Amazon Elastic Block Store", "Amazon EC2 NVMe Instance Storage"
SCRATCH = "/opt/dlami/nvme"
VOLUME, VOLUME_DEVICE = "dm-0", "252:0"
LOCAL_SECTORS = 7_421_875_000  # 3.8 TB
MOUNT = f"911 1 {VOLUME_DEVICE} / {SCRATCH} rw,relatime - ext4 /dev/mapper/vg.01-lv_ephemeral rw,stripe=128"


def root_disk() -> Tree:
    """The root EBS volume."""
    return _controller(0, EBS, "vol0546d3c3b0af0bf6d", 1_048_576_000) | {
        "class/block/nvme0n1/nvme0n1p1/partition": "1\n",
        "class/block/nvme0n1p1/dev": "259:1\n",
        "class/block/nvme0n1p1/size": "1048340447\n",
    }


def local_disks(count: int) -> Tree:
    """Instance disks in one striped volume."""
    tree: Tree = {f"class/block/{VOLUME}/dev": f"{VOLUME_DEVICE}\n", f"class/block/{VOLUME}/size": "1\n"}
    for number in range(1, count + 1):
        tree |= _controller(number, LOCAL, f"AWS24BBF51AF550970{number:02}", LOCAL_SECTORS)
        tree[f"class/block/nvme{number}n1/holders/{VOLUME}"] = Link(f"../../{VOLUME}")
    return tree


def with_scratch(image: NodeImage, disks: int) -> NodeImage:
    """This many local disks, in one file system."""
    return replace(image, sys=image.sys | local_disks(disks), mounted=(*image.mounted, MOUNT))


def _controller(number: int, model: str, serial: str, sectors: int) -> Tree:
    here, disk = f"class/nvme/nvme{number}", f"nvme{number}n1"
    return {
        f"{here}/model": f"{model:<40}\n",
        f"{here}/serial": f"{serial:<20}\n",
        f"{here}/firmware_rev": "0\n",
        f"{here}/transport": "pcie\n",
        f"{here}/state": "live\n",
        f"{here}/{disk}": Folder(),
        f"class/block/{disk}/size": f"{sectors}\n",
        f"class/block/{disk}/dev": f"259:{10 * number}\n",
        f"class/block/{disk}/holders": Folder(),
    }
