"""PCIe switches, each with a GPU and its EFA devices below: as on the boards of a p5, which EC2 shows flat."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed import sysfs
from tests.testbed.buses import EFA_BUSES, GPU_BUSES
from tests.testbed.image import NodeImage

LINK = (16, "32.0 GT/s PCIe")
MODEL = ("1000", "c030", "060400")  # of Broadcom


def upper_port(gpu: int) -> str:
    """The address of the port that connects a GPU's switch upwards."""
    return f"0000:{GPU_BUSES[gpu] - 7:02x}:00.0"


def with_switches(image: NodeImage) -> NodeImage:
    """Each GPU of a p5 and its four EFA devices are below a switch, on a host bridge of their own."""
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
