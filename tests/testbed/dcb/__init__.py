"""The kernel's answers about PFC and the priorities of a fake node's interfaces, as dcb and mlnx_qos ask for them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content, text_of

SONAME = "libtestbed-dcb.so"
PRELOAD = "/etc/ld.so.preload"
ANSWERS = "/run/fake-dcb"
IEEE, PFC, APPS, APP, BY_DSCP = 13, 2, 3, 1, 5  # of linux/dcbnl.h: attributes, and the selector of a DSCP
BY_DEFAULT = tuple((BY_DSCP, dscp >> 3, dscp) for dscp in range(64))


def priorities(interface: str, pfc: str, entries: tuple[tuple[int, int, int], ...] = BY_DEFAULT) -> dict[str, Content]:
    """An interface with PFC on where its priority has a 1, and entries of selector, priority and DSCP; none: VLAN tags.

    By default each DSCP has the priority in its three upper bits.
    """
    switches = sum(1 << priority for priority, digit in enumerate(pfc) if digit == "1")
    apps = b"".join(_attribute(APP, struct.pack("=BBH", *entry)) for entry in entries)
    settings = _attribute(PFC, bytes((8, switches)).ljust(136, b"\0")) + _attribute(APPS, apps)
    return {f"{ANSWERS}/{interface}": _attribute(1, interface.encode() + b"\0") + _attribute(IEEE, settings)}


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def dcb_files(files: Mapping[str, Content]) -> dict[str, Content]:
    """Files that make every program get these answers, if there are any."""
    if not any(path.startswith(f"{ANSWERS}/") for path in files):
        return {}
    library = shared_library(Path(__file__).with_name("fake_dcb.c"), SONAME)
    return {f"{LIBRARIES}/{SONAME}": library, PRELOAD: f"{text_of(files[PRELOAD])}{LIBRARIES}/{SONAME}\n"}
