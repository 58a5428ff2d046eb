"""A node's network interfaces and EFA devices in sysfs, and the modules that give EFA access to GPU memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.testbed import sysfs
from tests.testbed.image import OPENS, Content, Link, NodeImage
from tests.testbed.pci import EFA_BUSES
from tests.testbed.sysfs import Tree

INSTALLED_PAGES = 5128  # huge pages of 2 MiB that EFA's installer reserves
TOOL = Path(__file__).with_name("tools") / "fi_info"
FI_INFO = "/opt/amazon/efa/bin/fi_info"

# Of driver 2.17, after a day and a job: nothing lost, some packets retransmitted.
OF_A_PORT = {
    "tx_bytes": 918_273_645_000,
    "rx_bytes": 918_273_640_000,
    "rx_drops": 0,
    "rdma_read_wr_err": 0,
    "rdma_write_wr_err": 0,
    "retrans_pkts": 1203,
    "retrans_timeout_events": 2,
    "impaired_remote_conn_events": 0,
    "unresponsive_remote_events": 0,
}
OF_A_DEVICE = {"submitted_cmds": 2048, "completed_cmds": 2048, "no_completion_cmds": 0, "cmds_err": 0}


def with_efa(image: NodeImage, count: int, rate: str, lender: str = "NVIDIA") -> NodeImage:
    """Give the node EFA devices with ports of that rate, and their software."""
    tree: Tree = {}
    for name in ("efa", "ib_uverbs", "ib_core") if count else ():
        tree |= sysfs.module(name)
    for number, bus in enumerate(EFA_BUSES[:count]):
        tree |= sysfs.efa_device(number, bus, "efa2") | workings(bus, lender)
        tree[f"devices/pci0000:00/0000:{bus:02x}:00.0/infiniband/rdmap{bus}s0/ports/1/rate"] = f"{rate}\n"
    verbs: dict[str, Content] = {f"/dev/infiniband/uverbs{number}": OPENS for number in range(count)}
    tools = {FI_INFO: TOOL.read_text()} if count else {}
    return replace(image, sys=image.sys | tree, files=image.files | verbs, tools=image.tools | tools)


def workings(bus: int, lender: str = "NVIDIA") -> Tree:
    """The EFA device's further files on that PCI bus."""
    address = f"devices/pci0000:00/0000:{bus:02x}:00.0"
    here = f"{address}/infiniband/rdmap{bus}s0"
    return {
        f"{address}/p2p": f"{lender}\n",
        f"{here}/fw_ver": "\n",
        **{f"{here}/ports/1/hw_counters/{name}": f"{count}\n" for name, count in OF_A_PORT.items()},
        **{f"{here}/hw_counters/{name}": f"{count}\n" for name, count in OF_A_DEVICE.items()},
    }


UP = "0x1003"  # up, broadcast, multicast
OFF = "0x1002"


def ec2_interfaces() -> Tree:
    """An instance's interfaces: its primary network card, loopback, docker's bridge."""
    return interface("ens32", "0000:00:05.0") | virtual("lo", 65536, "0x9") | virtual("docker0", 1500, "0x1003")


def interface(name: str, address: str, mtu: int = 9001) -> Tree:
    """The interface of the PCI function at that address, which also names the driver."""
    here = f"devices/pci0000:00/{address}/net/{name}"
    return {f"{here}/device": Link(f"../../../{address}"), **_common(name, here, mtu, UP, "up")}


def virtual(name: str, mtu: int, flags: str) -> Tree:
    """An interface without a device."""
    return _common(name, f"devices/virtual/net/{name}", mtu, flags, "unknown")


def _common(name: str, here: str, mtu: int, flags: str, state: str) -> Tree:
    return {
        f"class/net/{name}": Link(f"../../{here}"),
        f"{here}/mtu": f"{mtu}\n",
        f"{here}/operstate": f"{state}\n",
        f"{here}/flags": f"{flags}\n",
        f"{here}/carrier": "1\n",
    }
