"""A node's Neuron devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import Absent, CollectorData, collected_as, collected_by
from clusterproof.plugins.evidence.host.facts import (
    Command,
)
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.neuron.facts import HardwareError, Neuron, NeuronDevice, hardware_errors

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


neuron = collected_as("neuron", Neuron)


@collected_by()
def neuron_devices_due(node: Node) -> int:
    """How many Neuron devices its type has; where the type is not known, how many the PCI bus shows."""
    try:
        return node.type.neuron_devices or 0
    except Incomplete:
        return _neuron_devices_on_bus(node)


def _neuron_devices_on_bus(node: Node) -> int:
    try:
        return node.neuron.on_bus
    except Absent:
        return 0


@collected_by()
def neuron_devices(node: Node) -> tuple[NeuronDevice, ...]:
    """The Neuron devices that the driver runs, at least one. Raises NotApplicable where there should be none."""
    due = node.neuron_devices_due
    try:
        devices = node.neuron.devices
    except Absent:
        devices = ()
    if not devices and not due:
        raise NotApplicable(f"{node.type_name or 'this node'} has no Neuron device")
    if not devices:
        raise Incomplete(f"the driver runs no Neuron device of {due}", cause="no Neuron device answers")
    return devices


neuron_ls = collected_as("neuron_ls", Command)


@collected_by()
def neuron_ls_hangs(node: Node) -> str:
    """What neuron-ls was doing when it did not answer by its deadline, else empty. Raises Incomplete."""
    collector = node.collector("neuron_ls")
    return collector.detail or "neuron-ls" if collector.status in (Status.TIMED_OUT, Status.STUCK) else ""


@collected_by("kernel_log")
def neuron_hardware_errors(node: Node, log: CollectorData) -> tuple[HardwareError, ...]:
    """The hardware errors of Neuron devices since boot: what broke then is broken still."""
    return hardware_errors(line[1] for line in node.counting(log.get("lines", kernel_log.lines)))
