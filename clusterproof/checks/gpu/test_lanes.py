"""How many PCIe lanes the bus shows of GPUs, whatever their driver says."""

from __future__ import annotations

from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, fail_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import collected_by
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.kernel_log.facts import pci_address
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import MAX_LANES, PciDevice

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


@evidence("lspci -vv -d 10de: | grep -E 'LnkCap|LnkSta'; grep . /sys/bus/pci/devices/*/{current,max}_link_width")
def test_pcie_lanes(pci_device: PciDevice, node: Node) -> None:
    """GPU PCIe lanes on the bus.

    Reads PCIe lanes from the bus for GPUs whose driver does not report them: GPUs that did not start, or that a capture
    shows only in lspci. Otherwise gpu.pcie_link evaluates what the driver reports. Too few lanes are only a concern if
    the port's own limit is unknown, as in lspci, or no GPU here has more: the slot may be narrower.

    Remedy (reset or reboot): Reboot the node. If the link stays narrow, replace the node.
    """
    if not pci_device.is_nvidia_gpu or readings(pci_device, "function_of")[0].get("function_of"):
        not_applicable("not a physical NVIDIA GPU")
    width = pci_device.width
    if not width or width > MAX_LANES or pci_device.is_asleep:
        not_applicable("the PCI bus does not show its lanes")
    others = _most_lanes.of(node)
    reading, unread = readings(pci_device, "width_max", "port_width_max")
    most, port = reading.get("width_max") or others, reading.get("port_width_max")
    due = min(most or width, port or MAX_LANES, _wired(node) or MAX_LANES)
    if width < due and pci_device.address in _named_by_the_driver.of(node):
        not_applicable("its driver reports its lanes: see gpu.pcie_link")
    is_sure = bool(port) and width < others and bool(reading.get("width_max"))
    fail_if(is_sure and width < due, f"PCIe x{width}; expected x{due}")
    concern_if(not is_sure and width < due, f"PCIe x{width}; expected x{due}, unless its slot is narrower")
    if "width_max" not in reading:
        require(unread)
    if not most:
        not_applicable("the PCI bus does not show its lanes")


def _wired(node: Node) -> int | None:
    """How many lanes the instance type wires to each GPU, where that is known to be fewer than the GPU has."""
    try:
        return node.type.pcie_lanes
    except (Incomplete, NotApplicable):
        return None


@collected_by()
def _most_lanes(node: Node) -> int:
    """How many lanes the GPU on the bus has that has most; 0 where it shows none."""
    widths = [readings(gpu, "width")[0].get("width") or 0 for gpu in node.gpus_on_bus]
    return max((width for width in widths if width <= MAX_LANES), default=0)


@collected_by()
def _named_by_the_driver(node: Node) -> set[str]:
    """The addresses of the GPUs whose driver reports how many lanes they have."""
    with suppress(Incomplete, NotApplicable):
        named = [readings(gpu, "pci", "pcie_width")[0] for gpu in node.gpus]
        return {pci_address(reading["pci"]) for reading in named if {"pci", "pcie_width"} <= reading.keys()}
    return set()
