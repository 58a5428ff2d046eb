"""ioctl answers of a fake node's drivers: counters of network interfaces and EBS volumes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content, Device, text_of

SONAME = "libtestbed-ioctls.so"
PRELOAD = "/etc/ld.so.preload"
COUNTERS, PAGES = "/run/fake-ethtool", "/run/fake-nvme"
OF_ENA = (
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded",
    "conntrack_allowance_available",
    "total_resets",
)
MAGIC = 0x3C23B510
PAGE_BYTES = 4096


def ena_counters(name: str) -> dict[str, Content]:
    """An ENA interface that has exceeded no allowance."""
    counts = dict.fromkeys(OF_ENA, 0) | {"conntrack_allowance_available": 51286}
    return {f"{COUNTERS}/{name}/{counter}": f"{count}\n" for counter, count in counts.items()}


def ebs_volume(name: str, page: bytes = b"") -> dict[str, Content]:
    """An EBS volume with this log page; by default no limit has ever throttled it."""
    return {f"/dev/{name}": Device(1, 3, 0o600), f"{PAGES}/{name}": page or ebs_page()}


def ebs_page(*exceeded_us: int, magic: int = MAGIC) -> bytes:
    """Amazon's log page: reads and writes, and the µs over IOPS and throughput limits of volume and instance."""
    moved = (70_311, 812_040, 2_884_763_648, 31_005_343_744, 41_203_117, 977_240_512)
    return struct.pack("<I4x11Q", magic, *moved, *(exceeded_us or (0, 0, 0, 0)), 1).ljust(PAGE_BYTES, b"\0")


def ioctl_files(files: Mapping[str, Content]) -> dict[str, Content]:
    """Files that make every program see what these files say, if there are any."""
    if not any(path.startswith((f"{COUNTERS}/", f"{PAGES}/")) for path in files):
        return {}
    library = shared_library(Path(__file__).with_name("fake_ioctls.c"), SONAME)
    return {f"{LIBRARIES}/{SONAME}": library, PRELOAD: f"{text_of(files[PRELOAD])}{LIBRARIES}/{SONAME}\n"}
