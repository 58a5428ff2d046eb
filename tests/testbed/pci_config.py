"""Configuration space of PCI Express functions, as files of sysfs have it for root."""

from __future__ import annotations

import struct
from dataclasses import replace

from tests.testbed.image import Link, NodeImage


def space(payload: int = 256, request: int = 512, *, relaxed: bool = True, acs: int | None = None) -> bytes:
    """4096 bytes: sizes in bytes; `acs` is the control word of access control services."""
    data = bytearray(4096)
    data[0x34] = 0x40
    data[0x40:0x44] = bytes((0x01, 0x60, 3, 0))  # power management, and behind it PCI Express
    data[0x60:0x62] = bytes((0x10, 0))
    sizes = (payload // 128).bit_length() - 1, (request // 128).bit_length() - 1
    data[0x68:0x6A] = struct.pack("<H", sizes[0] << 5 | sizes[1] << 12 | (0x10 if relaxed else 0))
    data[0x100:0x104] = struct.pack("<HH", 0x0001, 0x148 << 4 | 1)  # advanced error reporting
    if acs is not None:
        data[0x148:0x14C] = struct.pack("<HH", 0x000D, 1)
        data[0x14C:0x150] = struct.pack("<HH", 0x5F, acs)
    return bytes(data)


def with_space(image: NodeImage, address: str, data: bytes, iommu: str = "") -> NodeImage:
    """That function has this configuration space, and is in an IOMMU group of this type."""
    link = image.sys[f"bus/pci/devices/{address}"]
    assert isinstance(link, Link)
    at = link.target.removeprefix("../../../")
    group = {f"{at}/iommu_group/type": f"{iommu}\n"} if iommu else {}
    return replace(image, sys={**image.sys, f"{at}/config": data, **group})
