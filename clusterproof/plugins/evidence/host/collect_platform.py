"""Who made the machine, and the firmware of its board: /sys/class/dmi/id, /sys/devices/platform/ipmi_bmc.0."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """Vendor, product (EC2's instance type), serial number and board; the versions of the BIOS and of the BMC.

    The driver ipmi_si asks the BMC for the latter, and waits for one that does not answer.
    """
    board = {
        "vendor": node.text("/sys/class/dmi/id/sys_vendor", absent=""),
        "product": node.text("/sys/class/dmi/id/product_name", absent=""),
        "serial": node.text("/sys/class/dmi/id/product_serial"),
        "board": node.text("/sys/class/dmi/id/board_name", absent=""),
        "bios": node.text("/sys/class/dmi/id/bios_version", absent=""),
    }
    node.so_far({**board})
    return {**board, "bmc": node.text("/sys/devices/platform/ipmi_bmc.0/firmware_revision", absent="")}
