"""PCIe between GPUs and network devices: what is missing on the way, and its settings on bare metal."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, INCOMPLETE, Fault
from tests.testbed import sysfs
from tests.testbed.image import File, Link, NodeImage
from tests.testbed.node import healthy_p5, with_file, with_nvml
from tests.testbed.pci import EFA_BUSES, GPU_BUSES, space, upper_port, with_space, with_switches


def switched() -> NodeImage:
    """A p5 with visible PCIe switches."""
    return with_switches(healthy_p5())


def with_port(image: NodeImage, gpu: int, **files: str) -> NodeImage:
    """The upstream port above a GPU has these files."""
    at = f"/sys/bus/pci/devices/{upper_port(gpu)}"
    return reduce(lambda made, file: with_file(made, f"{at}/{file[0]}", f"{file[1]}\n"), files.items(), image)


def elsewhere(image: NodeImage, address: str) -> NodeImage:
    """That device is on another bus, in another slot."""
    return replace(image, sys=sysfs.below(image.sys, address, host_bridge="pci0000:f0"))


NO_ACS = 0
REDIRECTS = 0x1D  # SrcValid ReqRedir CmpltRedir UpstreamFwd, as firmware leaves it on for virtual machines
ENDS = tuple(f"0000:{bus:02x}:00.0" for bus in (*GPU_BUSES, *EFA_BUSES))


def lower_port(gpu: int) -> str:
    """The switch port above a GPU."""
    return f"0000:{GPU_BUSES[gpu] - 6:02x}:00.0"


def metal() -> NodeImage:
    """A bare metal p5 with visible PCIe switches: ACS and IOMMU are off."""
    image = switched()
    cpuinfo = image.proc["cpuinfo"]
    assert isinstance(cpuinfo, str)
    image = replace(image, proc={**image.proc, "cpuinfo": cpuinfo.replace(" hypervisor", "")})
    ports = [address for gpu in range(len(GPU_BUSES)) for address in (upper_port(gpu), *_lower_ports(gpu))]
    image = reduce(lambda made, port: with_space(made, port, space(acs=NO_ACS)), ports, image)
    return reduce(lambda made, end: with_space(made, end, space(request=4096)), ENDS, image)


def _lower_ports(gpu: int) -> list[str]:
    return [f"0000:{GPU_BUSES[gpu] - 6:02x}:{slot:02x}.0" for slot in range(5)]


def in_groups(image: NodeImage, kind: str) -> NodeImage:
    """All GPUs and network devices are in IOMMU groups of this type."""
    return reduce(lambda made, end: with_space(made, end, space(request=4096), kind), ENDS, image)


def for_users(image: NodeImage, address: str) -> NodeImage:
    """Only the first 64 bytes of that function can be read, as by an ordinary user."""
    link = image.sys[f"bus/pci/devices/{address}"]
    assert isinstance(link, Link)
    at = link.target.removeprefix("../../../")
    return replace(image, sys={**image.sys, f"{at}/config": File(space()[:64])})


FAULTS = (
    Fault(
        "a PCIe switch above a GPU that lost lanes",
        lambda image: with_port(image, 2, current_link_width="8"),
        {"gpu.pcie_switches": CONCERN},
        "PCIe x8 at 32 GT/s on the switch 0000:6e:00.0, above 0000:75:00.0, 0000:71:00.0",
        base=switched,
    ),
    Fault(
        "a PCIe switch above a GPU that came up for an older generation",
        lambda image: with_port(image, 2, current_link_speed="8.0 GT/s PCIe"),
        {"gpu.pcie_switches": CONCERN},
        "PCIe x16 at 8 GT/s on the switch 0000:6e:00.0",
        base=switched,
    ),
    Fault(
        "a slot that can do less than the slots of other PCIe switches",
        lambda image: with_port(image, 2, current_link_width="8", max_link_width="8"),
        {"gpu.pcie_switches": CONCERN},
        "expected x16 at 32 GT/s, like most such switches here",
        base=switched,
    ),
    Fault(
        "PCIe switches that are all slow, above a busy GPU",
        lambda image: with_nvml(
            reduce(lambda made, gpu: with_port(made, gpu, current_link_speed="16.0 GT/s PCIe"), range(8), image),
            gpu=2,
            utilization_percent=97,
        ),
        {"gpu.pcie_switches": CONCERN, "gpu.no_leftover_processes": CONCERN},
        "PCIe x16 at 16 GT/s on the switch 0000:6e:00.0, above 0000:75:00.0",
        base=switched,
    ),
    Fault(
        "a GPU in a slot without network devices",
        lambda image: elsewhere(image, "0000:75:00.0"),
        {"gpu.gpu_paths": CONCERN},
        "0000:75:00.0 has no network device nearer than NODE; expected PIX, as 7 of 8 GPUs here",
        base=switched,
    ),
    Fault(
        "access control that sends a GPU's traffic with network devices to the CPU",
        lambda image: with_space(image, lower_port(2), space(acs=REDIRECTS)),
        {"gpu.pcie_acs": CONCERN},
        f"{lower_port(2)}, between 0000:75:00.0 and 0000:71:00.0, has ACS SrcValid ReqRedir CmpltRedir UpstreamFwd on",
        base=metal,
    ),
    Fault(
        "an IOMMU that translates for GPUs and network devices",
        lambda image: in_groups(image, "DMA-FQ"),
        {"gpu.pcie_iommu": CONCERN},
        "the IOMMU translates for 40 of 40 devices: 0000:4f:00.0 (DMA-FQ), ",
        base=metal,
    ),
    Fault(
        "a network device with smaller PCIe read requests than its like",
        lambda image: with_space(image, "0000:71:00.0", space(request=512)),
        {"gpu.pcie_settings": CONCERN},
        "MaxReadReq of 0000:71:00.0 is 512; expected 4096, as on most of its model here",
        base=metal,
    ),
    Fault(
        "a GPU without relaxed ordering",
        lambda image: with_space(image, "0000:75:00.0", space(request=4096, relaxed=False)),
        {"gpu.pcie_settings": CONCERN},
        "relaxed ordering of 0000:75:00.0 is off; expected on, as on most of its model here",
        base=metal,
    ),
    Fault(
        "a GPU whose largest payload is not that of its port",
        lambda image: with_space(image, "0000:75:00.0", space(payload=128, request=4096)),
        {"gpu.pcie_settings": CONCERN},
        "MaxPayload of 0000:75:00.0 is 128 bytes, and 256 bytes on the port above it; expected the same",
        base=metal,
    ),
    Fault(
        "network devices with smaller PCIe read requests than those of other nodes",
        lambda image: reduce(lambda made, end: with_space(made, end, space(request=512)), ENDS[8:], image),
        {"gpu.pcie_settings": CONCERN},
        "MaxReadReq of 1d0f:efa2 512; expected 4096 as on 3 of 4 nodes",
        base=metal,
    ),
    Fault(
        "a port whose access control only root may read",
        lambda image: for_users(image, lower_port(2)),
        {"gpu.pcie_acs": INCOMPLETE, "gpu.pcie_settings": INCOMPLETE},
        "PCIe settings could not be read (EPERM)",
        base=metal,
    ),
)
