"""How far PCI devices are from each other, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, readings, table
from clusterproof.plugins.evidence.pci.facts import PciDevice

# At most one bridge or switch between, several of them, the host bridge, host bridges of one NUMA node, NUMA nodes
# (the legend of `nvidia-smi topo -m`).
NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")


@record
class Place:
    """Where a device is: its host bridge and the bridges above it, and its NUMA node, -1 where that is unknown."""

    address: str
    within: frozenset[str]
    numa: int


@record
class Paths(Reported):
    """What one GPU has between itself and other devices: one of NEAREST_FIRST, by their names."""

    gpus = Field(table)
    nics = Field(table)

    @property
    def nearest_nics(self) -> tuple[str, frozenset[str]]:
        """The shortest way to a network device, and those that it leads to; empty where none is known."""
        return _nearest(self.nics)

    @property
    def nearest_gpus(self) -> tuple[str, frozenset[str]]:
        """The same of other GPUs."""
        return _nearest(self.gpus)


@record
class PciSwitch:
    """A switch: the port that connects it upwards, and the addresses of the GPUs and network devices below it."""

    port: PciDevice
    gpus: tuple[str, ...]
    nics: tuple[str, ...]


def switches_of(ports: Iterable[PciDevice], devices: Iterable[PciDevice]) -> tuple[PciSwitch, ...]:
    """Those of these ports' switches that have a GPU or a network device below."""
    gpus, nics = _placed(devices)
    found = (PciSwitch(port, _below(port, gpus), _below(port, nics)) for port in ports)
    return tuple(switch for switch in found if switch.gpus or switch.nics)


def paths_of(devices: Iterable[PciDevice]) -> Mapping[str, Paths]:
    """Those of each GPU, in the order of their addresses; a GPU whose place on the bus is unknown has none."""
    gpus, nics = _placed(devices)
    return {gpu.address: Paths({"gpus": _from(gpu, gpus), "nics": _from(gpu, nics)}) for gpu in gpus}


def path_between(one: Place, other: Place) -> str | None:
    """What lies between two devices; None where they have no host bridge in common, and one no NUMA node."""
    shared = len(one.within & other.within)
    if not shared:
        return None if min(one.numa, other.numa) < 0 else "NODE" if one.numa == other.numa else "SYS"
    if shared == 1:
        return "PHB"
    return "PIX" if max(len(one.within), len(other.within)) - shared <= 1 else "PXB"


def _placed(devices: Iterable[PciDevice]) -> tuple[list[Place], list[Place]]:
    """Where GPUs and network devices are, as far as it is known, in the order of their addresses."""
    gpus, nics = [], []
    for device in devices:
        data, _ = readings(device, "path", "numa", "function_of")
        if data.get("path") and not data.get("function_of"):  # virtual functions come and go
            place = Place(device.address, frozenset(data["path"]), data.get("numa", -1))
            gpus += [place] if device.is_nvidia_gpu else []
            nics += [place] if device.is_nic else []
    return sorted(gpus, key=lambda place: place.address), sorted(nics, key=lambda place: place.address)


def _below(port: PciDevice, places: Iterable[Place]) -> tuple[str, ...]:
    return tuple(place.address for place in places if port.address in place.within)


def _from(gpu: Place, others: Iterable[Place]) -> Mapping[str, str]:
    ways = {other.address: path_between(gpu, other) for other in others if other is not gpu}
    return {address: way for address, way in ways.items() if way}


def _nearest(ways: Mapping[str, object]) -> tuple[str, frozenset[str]]:
    way = next((way for way in NEAREST_FIRST if way in ways.values()), "")
    return way, frozenset(name for name, own in ways.items() if own == way)
