"""PCI Express of a p5.48xlarge: bus numbers, its boards' switches, configuration space as root sees it in sysfs."""

from __future__ import annotations

import struct
from dataclasses import replace

from tests.testbed import sysfs
from tests.testbed.image import Link, NodeImage

LINK = (16, "32.0 GT/s PCIe")
MODEL = ("1000", "c030", "060400")  # of Broadcom


def upper_port(gpu: int) -> str:
    """The address of the upstream port above a GPU."""
    return f"0000:{GPU_BUSES[gpu] - 7:02x}:00.0"


def with_switches(image: NodeImage) -> NodeImage:
    """Each GPU of a p5 and its four EFA devices are below a switch with its own host bridge."""
    tree = image.sys
    for gpu, bus in enumerate(GPU_BUSES):
        host_bridge, root = f"pci0000:{bus - 8:02x}", f"0000:{bus - 8:02x}:01.0"
        devices = [f"0000:{number:02x}:00.0" for number in (bus, *EFA_BUSES[4 * gpu : 4 * gpu + 4])]
        ports = [f"0000:{bus - 6:02x}:{slot:02x}.0" for slot in range(len(devices))]
        bridges = {root: (), upper_port(gpu): (root,), **dict.fromkeys(ports, (root, upper_port(gpu)))}
        for address in bridges:
            tree = tree | sysfs.pci_function(address, *MODEL, link=LINK)
        below = {device: (root, upper_port(gpu), port) for device, port in zip(devices, ports, strict=True)}
        for address, above in (bridges | below).items():
            tree = sysfs.below(tree, address, *above, host_bridge=host_bridge)
    return replace(image, sys=tree)


GPU_BUSES = tuple(0x53 + 0x11 * gpu for gpu in range(8))
EFA_BUSES = tuple(bus - 4 + slot for bus in GPU_BUSES for slot in range(4))  # four in front of each GPU
EFA_NAMES = tuple(f"rdmap{bus}s0" for bus in EFA_BUSES)
NVSWITCH_BUSES = (0xDB, 0xDC, 0xDD, 0xDE)


def space(payload: int = 256, request: int = 512, *, relaxed: bool = True, acs: int | None = None) -> bytes:
    """4096 bytes; sizes are in bytes, `acs` is the control word of access control services."""
    data = bytearray(4096)
    data[0x34] = 0x40
    data[0x40:0x44] = bytes((0x01, 0x60, 3, 0))  # power management, followed by PCI Express
    data[0x60:0x62] = bytes((0x10, 0))
    sizes = (payload // 128).bit_length() - 1, (request // 128).bit_length() - 1
    data[0x68:0x6A] = struct.pack("<H", sizes[0] << 5 | sizes[1] << 12 | (0x10 if relaxed else 0))
    data[0x100:0x104] = struct.pack("<HH", 0x0001, 0x148 << 4 | 1)  # advanced error reporting
    if acs is not None:
        data[0x148:0x14C] = struct.pack("<HH", 0x000D, 1)
        data[0x14C:0x150] = struct.pack("<HH", 0x5F, acs)
    return bytes(data)


def with_space(image: NodeImage, address: str, space: bytes, iommu: str = "") -> NodeImage:
    """Give that function this configuration space, in an IOMMU group of this type."""
    link = image.sys[f"bus/pci/devices/{address}"]
    assert isinstance(link, Link)
    at = link.target.removeprefix("../../../")
    group = {f"{at}/iommu_group/type": f"{iommu}\n"} if iommu else {}
    return replace(image, sys={**image.sys, f"{at}/config": space, **group})
