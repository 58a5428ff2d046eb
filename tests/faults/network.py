"""EFA and what it needs from the host."""

from __future__ import annotations

from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed.image import NodeImage
from tests.testbed.node import (
    with_file,
    with_memlock,
    with_tool,
    without_driver,
    without_efa,
    without_file,
    without_libfabric_domain,
    without_module,
)


def efa_names(image: NodeImage) -> list[str]:
    """The EFA devices of an image."""
    folder = "class/infiniband/"
    return sorted(path.removeprefix(folder) for path in image.sys if path.startswith(folder))


def undriven(image: NodeImage) -> NodeImage:
    """The driver has released one EFA device, which the bus still lists."""
    name = efa_names(image)[4]
    address = f"0000:{int(name.removeprefix('rdmap').removesuffix('s0')):02x}:00.0"
    image = without_file(image, f"/sys/class/infiniband/{name}")
    return without_driver(image, address)


# What is unknown of absent EFA devices.
UNSEEN = dict.fromkeys(
    ("network.efa_port_active", "network.efa_rate", "network.efa_gdr", "network.efa_counters"), INCOMPLETE
)
GONE = dict.fromkeys(
    ("gpu.gpu_paths", "host.efa_huge_pages", "network.nic_numa"), NA
)  # not applicable without a device on the bus that needs it

FAULTS = (
    Fault(
        "an EFA port at a quarter of its rate",
        lambda image: with_file(
            image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports/1/rate", "25 Gb/sec (1X EDR)\n"
        ),
        {"network.efa_rate": FAIL},
        "port 1 at 25 Gb/sec (1X EDR); expected at least 100 Gb/s",
    ),
    Fault(
        "an EFA device that is missing",
        lambda image: without_efa(image, efa_names(image)[4]),
        {"network.efa_count": FAIL},
        "31 EFA devices, 31 on the PCI bus; expected 32",
    ),
    Fault(
        "an EFA device that no driver holds",
        undriven,
        {"network.efa_count": FAIL, "host.device_drivers": FAIL},
        "31 EFA devices, 32 on the PCI bus; expected 32",
    ),
    Fault(
        "an EFA port of which the driver does not know the rate",
        lambda image: with_file(image, "/sys/module/efa/version", "2.12.1g\n"),
        {"network.efa_rate": NA, "software.version_drift": CONCERN},
        "EFA driver 2.12.1g reports 100 Gb/s for every device",
    ),
    Fault(
        "no EFA device at all",
        lambda image: reduce(without_efa, efa_names(image), image),
        {"network.efa_count": FAIL, "network.libfabric_efa": FAIL} | UNSEEN | GONE,
        "0 EFA devices, 0 on the PCI bus; expected 32",
    ),
    Fault(
        "an EFA port that is down",
        lambda image: with_file(image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports/1/state", "1: DOWN\n"),
        {"network.efa_port_active": FAIL},
        "port 1 is 1: DOWN",
    ),
    Fault(
        "an EFA device without a port",
        lambda image: without_file(image, f"/sys/class/infiniband/{efa_names(image)[4]}/ports"),
        {"network.efa_port_active": FAIL, "network.efa_rate": INCOMPLETE},
        "no port; expected port 1",
    ),
    Fault(
        "EFA devices that libfabric does not see",
        lambda image: without_libfabric_domain(image, *efa_names(image)[:2]),
        {"network.libfabric_efa": FAIL},
        "30 EFA domains; expected 32",
    ),
    Fault(
        "libfabric without its EFA provider",
        lambda image: with_tool(image, "/opt/amazon/efa/bin/fi_info", "#!/bin/sh\necho 'fi_getinfo: -61'\nexit 61\n"),
        {"network.libfabric_efa": FAIL},
        "fi_getinfo: -61",
    ),
    Fault(
        "a kernel module that is not loaded",
        lambda image: without_module(image, "ib_uverbs"),
        {"network.efa_modules": FAIL},
        "not loaded: ib_uverbs",
    ),
    Fault(
        "an EFA device file that is missing",
        lambda image: without_file(image, "/dev/infiniband/uverbs3"),
        {"network.efa_modules": FAIL, "software.container_devices": CONCERN},
        "31 device files",
    ),
    Fault(
        "a daemon that may lock little memory",
        lambda image: with_memlock(image, "8388608", daemon="slurmd"),
        {"network.memlock": FAIL},
        "for slurmd",
    ),
    Fault(
        "no EFA device, for its kernel module is not loaded",
        lambda image: without_module(reduce(without_efa, efa_names(image), image), "efa"),
        {
            "network.efa_modules": FAIL,
            "network.efa_count": FAIL,
            "network.libfabric_efa": FAIL,
            "software.version_drift": CONCERN,
            **UNSEEN,
            **GONE,
        },
        "kernel modules not loaded: efa",
    ),
)
