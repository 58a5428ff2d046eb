"""PCIe between GPUs and network devices."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, Fault
from tests.testbed import sysfs
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5, with_file, with_nvml
from tests.testbed.switches import upper_port, with_switches


def switched() -> NodeImage:
    """A p5 whose PCIe switches are to be seen."""
    return with_switches(healthy_p5())


def with_port(image: NodeImage, gpu: int, **files: str) -> NodeImage:
    """The port that connects a GPU's switch upwards has these files."""
    at = f"/sys/bus/pci/devices/{upper_port(gpu)}"
    return reduce(lambda made, file: with_file(made, f"{at}/{file[0]}", f"{file[1]}\n"), files.items(), image)


def elsewhere(image: NodeImage, address: str) -> NodeImage:
    """That device is on a bus of its own, in another slot."""
    return replace(image, sys=sysfs.below(image.sys, address, host_bridge="pci0000:f0"))


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
)
