"""InfiniBand and RoCE."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, PASS, Fault
from tests.testbed import efa, sysfs
from tests.testbed.image import Link, NodeImage
from tests.testbed.node import healthy_cpu, with_file, with_memlock, without_file, without_pci
from tests.testbed.sysfs import Tree

BUSES = (0x17, 0x18, 0x3A, 0x3B)
RATE = "400 Gb/sec (4X NDR)\n"


def connectx(number: int, bus: int) -> Tree:
    """A ConnectX-7 with one active port and an Ethernet interface beside it."""
    address, name = f"0000:{bus:02x}:00.0", f"mlx5_{number}"
    here = f"devices/pci0000:00/{address}/infiniband/{name}"
    return {
        **sysfs.pci_function(address, "15b3", "1021", "020700", "mlx5_core", link=(16, "32.0 GT/s PCIe")),
        **efa.interface(f"ens{number + 1}np0", address, mtu=4200),
        f"class/infiniband/{name}": Link(f"../../{here}"),
        f"{here}/device": Link(f"../../../{address}"),
        f"{here}/fw_ver": "28.39.1002\n",
        f"{here}/board_id": "MT_0000000838\n",
        f"{here}/ports/1/state": "4: ACTIVE\n",
        f"{here}/ports/1/phys_state": "5: LinkUp\n",
        f"{here}/ports/1/rate": RATE,
        f"{here}/ports/1/link_layer": "InfiniBand\n",
        f"{here}/ports/1/counters/link_downed": "1\n",
        f"{here}/ports/1/counters/symbol_error": "0\n",
        f"{here}/ports/1/counters/port_rcv_errors": "14\n",
        f"{here}/ports/1/counters/port_xmit_discards": "0\n",
        f"{here}/ports/1/hw_counters/packet_seq_err": "0\n",
        f"{here}/ports/1/hw_counters/roce_adp_retrans": "3\n",
    }


def infiniband() -> NodeImage:
    """A node with four ConnectX ports and no GPU."""
    image = healthy_cpu()
    tree: Tree = {}
    for number, bus in enumerate(BUSES):
        tree |= behind_a_port(connectx(number, bus), bus)
    return replace(image, sys=image.sys | tree)


def behind_a_port(tree: Tree, bus: int) -> Tree:
    """The device on that bus is behind a port as capable as itself."""
    folder, port = "pci0000:00", f"0000:{bus - 1:02x}:01.0"

    def moved(path: str) -> str:
        return path.replace(f"{folder}/0000:{bus:02x}:00.0", f"{folder}/{port}/0000:{bus:02x}:00.0")

    limits: Tree = {
        f"devices/{folder}/{port}/max_link_width": "16\n",
        f"devices/{folder}/{port}/max_link_speed": "32.0 GT/s PCIe\n",
    }
    entries = (
        (moved(path), Link(moved(entry.target)) if isinstance(entry, Link) else entry) for path, entry in tree.items()
    )
    return limits | dict(entries)


def with_slot(image: NodeImage, bus: int, **files: str) -> NodeImage:
    """The device on that bus has these sysfs files."""
    for name, text in files.items():
        image = with_file(image, f"/sys/bus/pci/devices/0000:{bus:02x}:00.0/{name}", f"{text}\n")
    return image


def port(number: int) -> str:
    """The sysfs path of a device's port."""
    return f"/sys/class/infiniband/mlx5_{number}/ports/1"


def with_rates(image: NodeImage, rate: str) -> NodeImage:
    """Every port has that rate."""
    return reduce(lambda image, number: with_file(image, f"{port(number)}/rate", rate), range(len(BUSES)), image)


FAULTS = (
    Fault(
        "a daemon that may lock little memory beside InfiniBand",
        lambda image: with_memlock(image, "65536", daemon="slurmd"),
        {"network.memlock": FAIL},
        "memlock is 64 KiB for slurmd",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port that is down",
        lambda image: with_file(
            with_file(image, f"{port(0)}/state", "1: DOWN\n"), f"{port(0)}/phys_state", "2: Polling\n"
        ),
        {"network.ib_ports": FAIL},
        "port 1 is 1: DOWN; expected 4: ACTIVE",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port that is active over a link that is not",
        lambda image: with_file(image, f"{port(1)}/phys_state", "4: PortConfigurationTraining\n"),
        {"network.ib_ports": FAIL},
        "expected 5: LinkUp",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device without a port",
        lambda image: without_file(image, "/sys/class/infiniband/mlx5_1/ports"),
        {"network.ib_ports": FAIL},
        "mlx5_1: no port; expected at least one",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port at half the rate of its peers",
        lambda image: with_file(image, f"{port(2)}/rate", "200 Gb/sec (2X NDR)\n"),
        {"network.ib_ports": FAIL},
        "mlx5_2: port 1 at 200 Gb/sec (2X NDR); expected 400 Gb/s",
        base=infiniband,
    ),
    Fault(
        "InfiniBand ports that are all slower than those of other nodes",
        lambda image: with_rates(image, "200 Gb/sec (4X HDR)\n"),
        {"network.ib_ports": FAIL},
        "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port that was turned to Ethernet",
        lambda image: with_file(image, f"{port(2)}/link_layer", "Ethernet\n"),
        {"network.ib_link_layer": FAIL, "network.roce_settings": PASS},
        "mlx5_2 port 1 is Ethernet; expected InfiniBand as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device that lost half of its lanes",
        lambda image: with_slot(image, BUSES[1], current_link_width="8"),
        {"network.nic_link": FAIL},
        "PCIe x8 at 32 GT/s on 0000:18:00.0; expected x16 at 32 GT/s, like most of its model here",
        base=infiniband,
    ),
    Fault(
        "InfiniBand devices that all lost half of their lanes",
        lambda image: reduce(lambda image, bus: with_slot(image, bus, current_link_width="8"), BUSES, image),
        {"network.nic_link": CONCERN},
        "PCIe x8 at 32 GT/s on 0000:17:00.0; expected x16 at 32 GT/s, which both ends support",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port that is switched off while other nodes use theirs",
        lambda image: with_file(
            with_file(image, f"{port(1)}/state", "1: DOWN\n"), f"{port(1)}/phys_state", "3: Disabled\n"
        ),
        {"network.ib_ports": CONCERN},
        "mlx5_1 port 1 Disabled; expected ACTIVE as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device whose PCIe link the kernel does not know",
        lambda image: with_slot(image, BUSES[1], current_link_width="0", current_link_speed="Unknown"),
        {"network.nic_link": INCOMPLETE},
        "the kernel reports no PCIe link for 0000:18:00.0; expected one, as for others of its model",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device a generation slower than its peers",
        lambda image: with_slot(image, BUSES[1], current_link_speed="16.0 GT/s PCIe"),
        {"network.nic_link": FAIL},
        "PCIe x16 at 16 GT/s on 0000:18:00.0",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device in a narrower slot than on other nodes",
        lambda image: with_file(
            with_slot(image, BUSES[1], current_link_width="8"),
            f"/sys/bus/pci/devices/0000:{BUSES[1]:02x}:00.0/../max_link_width",
            "8\n",
        ),
        {"network.nic_link": CONCERN},
        "PCIe link of 0000:18:00.0 x8 at 32 GT/s; expected x16 at 32 GT/s as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device near other CPUs than on other nodes",
        lambda image: with_slot(image, BUSES[3], numa_node="1"),
        {"network.nic_numa": CONCERN},
        "NUMA node of 0000:3b:00.0 1; expected 0 as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device whose NUMA node the firmware does not name",
        lambda image: with_slot(image, BUSES[3], numa_node="-1"),
        {"network.nic_numa": CONCERN},
        "no NUMA node is reported for 0000:3b:00.0",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand port whose rate is no number",
        lambda image: with_file(image, f"{port(2)}/rate", "fast\n"),
        {"network.ib_ports": INCOMPLETE},
        "the rate 'fast', which is not a number",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand device that is missing",
        lambda image: without_pci(image, "0000:3b:00.0"),
        {"network.ib_count": FAIL, "network.nic_uniform": CONCERN},
        "number of InfiniBand or RoCE devices 3; expected 4 as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand link that is lost again and again",
        lambda image: with_file(image, f"{port(3)}/counters/link_downed", "12\n"),
        {"network.ib_errors": CONCERN},
        "mlx5_3: port 1 lost its link 12 times since boot",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand cable that garbles symbols",
        lambda image: with_file(image, f"{port(3)}/counters/symbol_error", "40000\n"),
        {"network.ib_errors": CONCERN},
        "40000 symbol errors since boot",
        base=infiniband,
    ),
    Fault(
        "a port that receives packets with errors",
        lambda image: with_file(image, f"{port(3)}/counters/port_rcv_errors", "4000000000\n"),
        {"network.ib_errors": CONCERN},
        "mlx5_3: port 1 counted 4000000000 packets with errors (port_rcv_errors) since boot; expected at most 36000",
        base=infiniband,
    ),
    Fault(
        "a port whose packets are lost on their way",
        lambda image: with_file(image, f"{port(2)}/hw_counters/packet_seq_err", "90000000\n"),
        {"network.ib_lost_packets": CONCERN},
        "mlx5_2: port 1 counted 90000000 reports of lost packets (packet_seq_err) since boot; expected at most 3600",
        base=infiniband,
    ),
    Fault(
        "a port that ignores congestion notifications",
        lambda image: with_file(image, f"{port(2)}/hw_counters/rp_cnp_ignored", "90000000\n"),
        {"network.ib_lost_packets": CONCERN},
        "90000000 congestion notifications that it ignored (rp_cnp_ignored) since boot; expected at most 3600",
        base=infiniband,
    ),
    Fault(
        "an InfiniBand error counter that is no number",
        lambda image: with_file(image, f"{port(3)}/counters/symbol_error", "many\n"),
        {"network.ib_errors": INCOMPLETE},
        "symbol_errors could not be read",
        base=infiniband,
    ),
    Fault(
        "a network card of another firmware than its group's",
        lambda image: with_file(image, "/sys/class/infiniband/mlx5_0/fw_ver", "28.37.1014\n"),
        {"network.nic_uniform": CONCERN},
        "RDMA firmware is 1021 28.37.1014, 1021 28.39.1002; expected 1021 28.39.1002 as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "a network card of another board than its group's",
        lambda image: with_file(image, "/sys/class/infiniband/mlx5_0/board_id", "DEL0000000031\n"),
        {"network.nic_uniform": CONCERN},
        "RDMA boards (PSID) are 1021 DEL0000000031, 1021 MT_0000000838; expected 1021 MT_0000000838 as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "a network interface that the other nodes have",
        lambda image: without_file(image, "/sys/class/net/ens3np0"),
        {"network.nic_uniform": CONCERN},
        "interfaces are of ena, mlx5_core (3); expected ena, mlx5_core (4) as on 3 of 4 nodes",
        base=infiniband,
    ),
    Fault(
        "a network card with a smaller MTU than its peers",
        lambda image: with_file(image, "/sys/class/net/ens3np0/mtu", "1500\n"),
        {"network.mtu": CONCERN},
        "the MTU of ens3np0 is 1500; expected 4200, like most mlx5_core interfaces here",
        base=infiniband,
    ),
    Fault(
        "network cards with a smaller MTU than those of other nodes",
        lambda image: reduce(
            lambda image, number: with_file(image, f"/sys/class/net/ens{number}np0/mtu", "1500\n"), (1, 2, 3, 4), image
        ),
        {"network.mtu": CONCERN},
        "MTU of ens1np0 1500",
        base=infiniband,
    ),
    Fault(
        "a network card that is switched off while other nodes use theirs",
        lambda image: with_file(image, "/sys/class/net/ens2np0/flags", f"{efa.OFF}\n"),
        {"network.interfaces_up": CONCERN},
        "ens2np0 is down; expected up as on 3 of 4 nodes",
        base=infiniband,
    ),
)
