"""Who made the machine: /sys/class/dmi/id."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """Vendor, product (EC2's instance type), serial number, board, and the version of the BIOS."""
    return {
        "vendor": node.text("/sys/class/dmi/id/sys_vendor", absent=""),
        "product": node.text("/sys/class/dmi/id/product_name", absent=""),
        "serial": node.text("/sys/class/dmi/id/product_serial"),
        "board": node.text("/sys/class/dmi/id/board_name", absent=""),
        "bios": node.text("/sys/class/dmi/id/bios_version", absent=""),
    }
