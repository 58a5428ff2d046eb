"""EFA, InfiniBand and what they need of the host."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import FAIL, INCOMPLETE, Fault
from tests.testbed import sysfs
from tests.testbed.image import Link, NodeImage
from tests.testbed.node import (
    healthy_cpu,
    with_file,
    with_memlock,
    with_tool,
    without_efa,
    without_file,
    without_libfabric_domain,
    without_module,
)


def infiniband() -> NodeImage:
    """A GPU-less node with one ConnectX port."""
    image = healthy_cpu()
    address, name = "0000:17:00.0", "mlx5_0"
    here = f"devices/pci0000:00/{address}/infiniband/{name}"
    tree = sysfs.pci_function(address, "15b3", "1021", "020700", "mlx5_core") | {
        f"class/infiniband/{name}": Link(f"../../{here}"),
        f"{here}/device": Link(f"../../../{address}"),
        f"{here}/ports/1/state": "4: ACTIVE\n",
        f"{here}/ports/1/phys_state": "5: LinkUp\n",
        f"{here}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        f"{here}/ports/1/link_layer": "InfiniBand\n",
    }
    return replace(image, sys=image.sys | tree)


IB_PORT = "/sys/class/infiniband/mlx5_0/ports/1"


def efa_names(image: NodeImage) -> list[str]:
    """The EFA devices of an image."""
    folder = "class/infiniband/"
    return sorted(path.removeprefix(folder) for path in image.sys if path.startswith(folder))


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
        "no EFA device at all",
        lambda image: reduce(without_efa, efa_names(image), image),
        {
            "network.efa_count": FAIL,
            "network.efa_port_active": INCOMPLETE,
            "network.efa_rate": INCOMPLETE,
            "network.libfabric_efa": FAIL,
        },
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
        {"network.efa_modules": FAIL},
        "31 device files",
    ),
    Fault(
        "a daemon that may lock little memory",
        lambda image: with_memlock(image, "8388608", daemon="slurmd"),
        {"network.memlock": FAIL},
        "for slurmd",
    ),
    Fault(
        "an InfiniBand port that is down",
        lambda image: with_file(
            with_file(image, f"{IB_PORT}/state", "1: DOWN\n"), f"{IB_PORT}/phys_state", "2: Polling\n"
        ),
        {"network.ib_ports": FAIL},
        "port 1 is 1: DOWN (2: Polling)",
        base=infiniband,
    ),
)
