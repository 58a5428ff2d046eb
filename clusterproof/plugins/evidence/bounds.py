"""How many devices of a kind a node is believed to have: it is not trusted, and checks compare them with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from clusterproof.plugins.core.typed import Any, TypeVar
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import every

T = TypeVar("T")
Devices = TypeVar("Devices", bound=Sized)

GPUS = "GPUs"
PCI_DEVICES = "PCI devices"
SWITCHES = "PCIe switches"
NICS = "network devices"
INTERFACES = "network interfaces"
DISKS = "NVMe controllers"
MEMORY_CONTROLLERS = "memory controllers"
NEURON_DEVICES = "Neuron devices"
MOST: Mapping[str, int] = {
    GPUS: 64,  # NVIDIA's driver knows 32 in a machine (NV_MAX_DEVICES in its nvlimits.h)
    NEURON_DEVICES: 64,  # the largest machine has 16
    SWITCHES: 256,  # as many as there are numbers of buses in a segment
    NICS: 1024,  # a port has up to some hundreds of virtual functions
    INTERFACES: 1024,
    DISKS: 1024,
    MEMORY_CONTROLLERS: 1024,  # some dozens to a socket
    PCI_DEVICES: 4096,  # all of these, with their functions
}


def believed(devices: Devices, kind: str) -> Devices:
    """The devices of one kind of MOST. Raises Incomplete where there are more than any machine has."""
    if len(devices) > MOST[kind]:
        seen = f"{len(devices):,} {kind} were reported; expected at most {MOST[kind]:,}"
        raise Incomplete(seen, cause=f"more {kind} were reported than a machine has")
    return devices


def believed_each(kind: Callable[[dict[str, Any]], T], of: str) -> Callable[[object], tuple[T, ...]]:
    """A decoder of records that are a list of JSON objects, of one kind of MOST."""
    decode = every(kind)
    return lambda data: believed(decode(data), of)
