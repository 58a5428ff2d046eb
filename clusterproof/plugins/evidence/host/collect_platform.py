"""Who made the machine: /sys/class/dmi/id."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """Vendor, product (EC2's instance type) and serial number."""
    return {
        "vendor": node.text("/sys/class/dmi/id/sys_vendor", absent=""),
        "product": node.text("/sys/class/dmi/id/product_name", absent=""),
        "serial": node.text("/sys/class/dmi/id/product_serial"),
    }
