"""PCI devices from sysfs, and the distance between them in terms of nvidia-smi topo."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import GPUS, NICS, limited
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    integer,
    object_as,
    optional,
    readings,
    table,
    text,
    texts,
)

NVIDIA, AMAZON, MELLANOX = "10de", "1d0f", "15b3"

NO_ANSWER_LANES = 63  # six bits of ones, as any register of a device that has left the bus (PCIe link status register)
# Linux's states of a device that may be in D3cold: without power it reads all ones too (commits 448bd857d48e and
# 48991e493507; later kernels wake it to read its link). `power_state` does not tell: Linux sets it to D3cold also
# if a device no longer answers (pci_update_current_state).
SUSPENDED = frozenset({"suspended", "suspending", "resuming"})
_SPEED = Pattern(r"(\d{1,3}(?:\.\d{1,2})?) GT/s")
# At most one bridge or switch between them; several; the host bridge; host bridges of one NUMA node; NUMA nodes
# (the legend of `nvidia-smi topo -m`).
NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")


@record
class PciLink:
    """A PCIe link: its lanes, and its speed in GT/s; 0 if unknown."""

    lanes: int
    gts: float

    def __str__(self) -> str:
        known = [f"x{self.lanes}"] if self.lanes else []
        return " at ".join([*known, f"{self.gts:g} GT/s"] if self.gts else known)

    @property
    def is_whole(self) -> bool:
        """Whether both values are known."""
        return bool(self.lanes and self.gts)

    def is_worse_than(self, other: PciLink) -> bool:
        """Whether it is known to have fewer lanes, or to be slower."""
        return 0 < self.lanes < other.lanes or 0 < self.gts < other.gts


MAX_LANES = 32  # lanes of PCIe; a device that has left the bus reads as 63, all ones
NVME, NETWORK = "0108", "02"  # the first digits of the classes of NVMe controllers and of network adapters


@record
class PciErrors(Reported):
    """The counts of PCIe's advanced error reporting since boot; None if the kernel does not report them."""

    correctable = Field(optional(integer))
    nonfatal = Field(optional(integer))
    fatal = Field(optional(integer))


@record
class PciDevice(Reported):
    """A PCI device of a relevant kind, or the upstream port of a switch above one."""

    address = Field(text)
    vendor = Field(text)
    device = Field(text)
    pci_class = Field(text, "class")
    driver = Field(text)
    path = Field(optional(texts))  # its host bridge, and the bridges from there down; None in older recordings
    numa = Field(integer)  # -1: the firmware names none
    width = Field(optional(integer))  # lanes, None where the kernel does not report it
    width_max = Field(optional(integer))
    port_width_max = Field(optional(integer))
    speed = Field(text)
    speed_max = Field(text)
    port_speed_max = Field(optional(text))
    function_of = Field(text)  # the device that a virtual function is one of; empty for a device of its own
    power = Field(optional(text))  # of runtime power management: active, suspended, …; None in older recordings
    errors = Field(object_as(PciErrors))  # of its PCIe link

    @property
    def label(self) -> str:
        """The address: `0000:53:00.0`."""
        return self.address

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU: a 3D controller (0302) or a display controller (0300)."""
        return self.vendor == NVIDIA and self.pci_class[:4] in ("0302", "0300")

    @property
    def is_nvswitch(self) -> bool:
        """Whether it is an NVSwitch: a bridge (0680) of NVIDIA's."""
        return self.vendor == NVIDIA and self.pci_class.startswith("0680")

    @property
    def is_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.vendor == AMAZON and self.device.startswith("efa")

    @property
    def is_nvme(self) -> bool:
        """Whether it is an NVMe controller."""
        return self.pci_class.startswith(NVME)

    @property
    def kind(self) -> str:
        """The kind of device, for those that do nothing without a driver; empty for others."""
        if self.is_nvidia_gpu:
            return "an NVIDIA GPU"
        if self.is_efa:
            return "an EFA device"
        if self.is_nvme:
            return "an NVMe controller"
        return "a network adapter" if self.pci_class.startswith(NETWORK) else ""

    @property
    def is_nic(self) -> bool:
        """Whether it connects nodes: an EFA device, or a network controller (02) of NVIDIA (Mellanox)."""
        return self.is_efa or (self.vendor == MELLANOX and self.pci_class.startswith("02"))

    def connects_nodes(self, fastest_models: Collection[str]) -> bool:
        """The same of any vendor, if its model is among those with the fastest RDMA ports. Raises Incomplete."""
        return self.is_nic or (self.is_spare_port and self.model in fastest_models)

    @property
    def is_spare_port(self) -> bool:
        """Whether it is a network adapter that a cluster node may leave unused: neither a NIC (see above) nor EC2's."""
        return self.pci_class.startswith(NETWORK) and not self.is_nic and self.vendor != AMAZON

    @property
    def model(self) -> str:
        """Its PCI vendor and device id: `15b3:1021`. Raises Incomplete."""
        return f"{self.vendor}:{self.device}"

    @property
    def is_asleep(self) -> bool:
        """Whether it is known to be suspended, or about to be: its link says nothing then."""
        return readings(self, "power")[0].get("power") in SUSPENDED

    @property
    def answers(self) -> bool:
        """Whether its configuration can be read, or need not be as it is suspended. Raises Incomplete.

        True if the kernel does not report its link.
        """
        return self.width != NO_ANSWER_LANES or self.power in SUSPENDED

    @property
    def link(self) -> PciLink | None:
        """Its current link, as far as it is known; None if the kernel reports none, as for a virtual function."""
        reading, _ = readings(self, "width", "speed")
        return _link(reading.get("width"), reading.get("speed", ""))

    @property
    def supported_link(self) -> PciLink | None:
        """The best link that both it and its port support; None if one of them is unknown."""
        own, port = _link(self.width_max, self.speed_max), _link(self.port_width_max, self.port_speed_max or "")
        best = PciLink(min(own.lanes, port.lanes), min(own.gts, port.gts)) if own and port else None
        return best if best and best.is_whole else None


def _link(lanes: int | None, speed: str) -> PciLink | None:
    match = _SPEED.match(speed)
    known = lanes if lanes and lanes <= MAX_LANES else 0
    return PciLink(known, float(match[1]) if match else 0.0) if known or match else None


@record
class Location:
    """A device's host bridge, the bridges above it, and its NUMA node (-1: unknown)."""

    address: str
    within: frozenset[str]
    numa: int


@record
class Paths(Reported):
    """The distance from one GPU to other devices, by name: one of NEAREST_FIRST."""

    gpus = Field(table)
    nics = Field(table)
    others = Field(optional(table))  # devices of unread kind; None in captures

    @property
    def nearest_nics(self) -> tuple[str, frozenset[str]]:
        """The shortest distance to a network device, and the devices at that distance.

        Empty if none is known, or a device of unread kind is nearer.
        """
        return _nearest(self.nics, self.others or {})

    @property
    def nearest_gpus(self) -> tuple[str, frozenset[str]]:
        """The same for other GPUs."""
        return _nearest(self.gpus, self.others or {})


@record
class PciSwitch:
    """A switch: its upstream port, and the addresses of GPUs and network devices below it."""

    port: PciDevice
    gpus: tuple[str, ...]
    nics: tuple[str, ...]

    @property
    def is_placed(self) -> bool:
        """Whether its address is known, and so what is below."""
        return bool(readings(self.port, "address")[0])


def unread_kind(device: PciDevice) -> list[Incomplete | NotApplicable]:
    """Why it is unknown whether it is a GPU or a network device, and which; empty if that is known."""
    reading, unread = readings(device, "address", "is_nvidia_gpu", "is_nic", "is_spare_port")
    return unread or (readings(device, "model")[1] if reading["is_spare_port"] else [])


def switches_of(
    ports: Iterable[PciDevice], devices: Iterable[PciDevice], models: Collection[str]
) -> tuple[PciSwitch, ...]:
    """The switches among these ports that have a device below that is known to be a GPU or a network device.

    Also those whose address, and so what is below, is unread.
    """
    gpus, nics, _ = _placed(devices, models)
    switches = (PciSwitch(port, _below(port, gpus), _below(port, nics)) for port in ports)
    return tuple(switch for switch in switches if switch.gpus or switch.nics or not switch.is_placed)


def paths_of(devices: Iterable[PciDevice], models: Collection[str]) -> Mapping[str, Paths]:
    """The paths of each GPU, ordered by address; none for a GPU whose place on the bus is unknown."""
    gpus, nics, others = _placed(devices, models)
    kinds = {"gpus": gpus, "nics": nics, "others": others}
    return {gpu.address: Paths({kind: _from(gpu, of_kind) for kind, of_kind in kinds.items()}) for gpu in gpus}


def path_between(location: Location, other: Location) -> str | None:
    """What lies between two devices; None if they have no host bridge in common, and one has no NUMA node."""
    shared = len(location.within & other.within)
    if not shared:
        return None if min(location.numa, other.numa) < 0 else "NODE" if location.numa == other.numa else "SYS"
    if shared == 1:
        return "PHB"
    return "PIX" if max(len(location.within), len(other.within)) - shared <= 1 else "PXB"


def _placed(
    devices: Iterable[PciDevice], models: Collection[str]
) -> tuple[list[Location], list[Location], list[Location]]:
    """The location of GPUs, network devices and devices of unread kind, as far as it is known, ordered by address."""
    gpus: list[Location] = []
    nics: list[Location] = []
    others: list[Location] = []
    for device in devices:
        reading, _ = readings(device, "path", "numa", "function_of")
        if not reading.get("path") or reading.get("function_of"):  # virtual functions come and go
            continue
        within, numa = frozenset(reading["path"]), reading.get("numa", -1)
        if unread_kind(device):
            others.append(Location(f"device {len(others)} of unread kind", within, numa))
            continue
        location = Location(device.address, within, numa)
        gpus += [location] if device.is_nvidia_gpu else []
        nics += [location] if device.connects_nodes(models) else []
    return (
        sorted(limited(gpus, GPUS), key=lambda location: location.address),
        sorted(limited(nics, NICS), key=lambda location: location.address),
        others,
    )


def _below(port: PciDevice, locations: Iterable[Location]) -> tuple[str, ...]:
    address = readings(port, "address")[0].get("address")
    return tuple(location.address for location in locations if address in location.within)


def _from(gpu: Location, others: Iterable[Location]) -> Mapping[str, str]:
    paths = {other.address: path_between(gpu, other) for other in others if other is not gpu}
    return {address: path for address, path in paths.items() if path}


def _nearest(paths: Mapping[str, object], others: Mapping[str, object]) -> tuple[str, frozenset[str]]:
    path = next((path for path in NEAREST_FIRST if path in paths.values()), "")
    if path and not {*NEAREST_FIRST[: NEAREST_FIRST.index(path)]}.isdisjoint(others.values()):
        return "", frozenset()
    return path, frozenset(name for name, own in paths.items() if own == path)
