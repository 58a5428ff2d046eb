"""A node's network interfaces, as /sys/class/net shows them."""

from __future__ import annotations

from tests.testbed.image import Link
from tests.testbed.sysfs import Tree

UP = "0x1003"  # up, broadcast, multicast
OFF = "0x1002"


def ec2_interfaces() -> Tree:
    """What an instance has: the interface of its primary network card, loopback, docker's bridge."""
    return interface("ens32", "0000:00:05.0") | virtual("lo", 65536, "0x9") | virtual("docker0", 1500, "0x1003")


def interface(name: str, address: str, mtu: int = 9001) -> Tree:
    """An interface of the PCI function at that address, whose driver the function itself names."""
    here = f"devices/pci0000:00/{address}/net/{name}"
    return {f"{here}/device": Link(f"../../../{address}"), **_common(name, here, mtu, UP, "up")}


def virtual(name: str, mtu: int, flags: str) -> Tree:
    """An interface without a device."""
    return _common(name, f"devices/virtual/net/{name}", mtu, flags, "unknown")


def _common(name: str, here: str, mtu: int, flags: str, state: str) -> Tree:
    return {
        f"class/net/{name}": Link(f"../../{here}"),
        f"{here}/mtu": f"{mtu}\n",
        f"{here}/operstate": f"{state}\n",
        f"{here}/flags": f"{flags}\n",
        f"{here}/carrier": "1\n",
    }
