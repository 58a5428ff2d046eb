"""RoCE: GIDs, ECN, traffic class, PFC and trust of ports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, Fault
from tests.faults.infiniband import BUSES, infiniband, port
from tests.testbed.dcb import BY_DEFAULT, BY_DSCP, priorities
from tests.testbed.image import Content, Link, NodeImage
from tests.testbed.node import with_file
from tests.testbed.sysfs import Tree

ROCE = "network.roce_settings"
PORTS = range(len(BUSES))
PFC = "00010000"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a01:{:04x}\n"


def roce() -> NodeImage:
    """A node without GPUs and with four RoCE ports: addresses, ECN on, one traffic class, PFC for its priority."""
    image = infiniband()
    tree: Tree = {}
    files: dict[str, Content] = {}
    for number in PORTS:
        link = image.sys[f"class/infiniband/mlx5_{number}"]
        assert isinstance(link, Link)
        here = link.target.removeprefix("../../")
        net = image.sys[f"class/net/ens{number + 1}np0"]
        assert isinstance(net, Link)
        interface = net.target.removeprefix("../../")
        tree |= {f"{here}/ports/1/link_layer": "Ethernet\n", f"{here}/tc/1/traffic_class": "106\n"}
        for index, (address, kind) in enumerate((("fe80:", "IB/RoCE v1"), ("fe80:", "RoCE v2"), ("", "RoCE v2"))):
            gid = f"{address}{'0000:' * 6}0001\n" if address else MAPPED.format(number + 1)
            tree |= {
                f"{here}/ports/1/gids/{index}": gid,
                f"{here}/ports/1/gid_attrs/types/{index}": f"{kind}\n",
                f"{here}/ports/1/gid_attrs/ndevs/{index}": f"ens{number + 1}np0\n",
            }
        files |= priorities(f"ens{number + 1}np0", PFC)
        for side in ("np", "rp"):
            tree |= {f"{interface}/ecn/roce_{side}/enable/{priority}": "1\n" for priority in range(8)}
    return replace(image, sys=image.sys | tree, files=image.files | files)


def with_priorities(
    image: NodeImage, ports: Iterable[int], pfc: str = PFC, entries: tuple[tuple[int, int, int], ...] = BY_DEFAULT
) -> NodeImage:
    """These ports have PFC for other priorities, or give other priorities to a DSCP."""
    answers = [priorities(f"ens{number + 1}np0", pfc, entries) for number in ports]
    return replace(image, files=reduce(lambda files, answer: files | answer, answers, image.files))


def on_all(image: NodeImage, file: str, text: str) -> NodeImage:
    """Every port's device has this content in that sysfs file."""
    return reduce(
        lambda made, number: with_file(made, f"/sys/class/infiniband/mlx5_{number}/{file}", text), PORTS, image
    )


FAULTS = (
    Fault(
        "a RoCE port without the address that NCCL needs",
        lambda image: with_file(image, f"{port(2)}/gids/2", f"{'0000:' * 7}0000\n"),
        {ROCE: CONCERN},
        "RoCE v2 GID index of mlx5_2 port 1 is none; expected 2, like 3 of 4 such ports",
        base=roce,
    ),
    Fault(
        "RoCE ports of which none has the address that NCCL needs",
        lambda image: reduce(
            lambda made, number: with_file(made, f"{port(number)}/gids/2", f"{'0000:' * 7}0000\n"), PORTS, image
        ),
        {ROCE: CONCERN},
        "none of 4 ports (mlx5_0 port 1, mlx5_1 port 1, mlx5_2 port 1, mlx5_3 port 1) has a routable RoCE v2 GID",
        base=roce,
    ),
    Fault(
        "a RoCE port whose GID is of version 1",
        lambda image: with_file(image, f"{port(2)}/gid_attrs/types/2", "IB/RoCE v1\n"),
        {ROCE: CONCERN},
        "RoCE v2 GID index of mlx5_2 port 1 is none",
        base=roce,
    ),
    Fault(
        "a RoCE port that does not slow down when the network is full",
        lambda image: with_file(image, "/sys/class/net/ens3np0/ecn/roce_rp/enable/3", "0\n"),
        {ROCE: CONCERN},
        "ECN reaction of mlx5_2 port 1 is 11101111; expected 11111111, like 3 of 4 such ports",
        base=roce,
    ),
    Fault(
        "RoCE ports in another traffic class than on other nodes",
        lambda image: on_all(image, "tc/1/traffic_class", "0\n"),
        {ROCE: CONCERN},
        "traffic class of mlx5_0 port 1 0",
        base=roce,
    ),
    Fault(
        "a RoCE port without PFC",
        lambda image: with_priorities(image, [2], pfc="00000000"),
        {ROCE: CONCERN},
        "PFC of mlx5_2 port 1 is 00000000; expected 00010000, like 3 of 4 such ports",
        base=roce,
    ),
    Fault(
        "RoCE ports with PFC for another priority than that of their packets",
        lambda image: with_priorities(image, PORTS, pfc="00000100"),
        {ROCE: CONCERN},
        "RoCE packets have priority 3, by traffic class 106, and PFC is 00000100; expected PFC for priority 3",
        base=roce,
    ),
    Fault(
        "a RoCE port that takes the priority of packets from their VLAN tags",
        lambda image: with_priorities(image, [1], entries=()),
        {ROCE: CONCERN},
        "trust of mlx5_1 port 1 is PCP; expected DSCP, like 3 of 4 such ports",
        base=roce,
    ),
    Fault(
        "a RoCE port with another priority for a DSCP than the others",
        lambda image: with_priorities(image, [1], entries=((BY_DSCP, 0, 26), *BY_DEFAULT[:26], *BY_DEFAULT[27:])),
        {ROCE: CONCERN},
        "mlx5_1 port 1: RoCE packets have priority 0, by traffic class 106, and PFC is 00010000; expected PFC for",
        base=roce,
    ),
    Fault(
        "NCCL told to use a traffic class whose priority has no PFC",
        lambda image: with_file(on_all(image, "tc/1/traffic_class", "0\n"), "/etc/nccl.conf", "NCCL_IB_TC=184\n"),
        {ROCE: CONCERN, "network.transport_plan": CONCERN},
        "RoCE packets have priority 5, by NCCL_IB_TC=184 (/etc/nccl.conf line 1), and PFC is 00010000; expected PFC",
        base=roce,
    ),
    Fault(
        "NCCL told to use an address of RoCE that is not there",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_IB_GID_INDEX=3\n"),
        {ROCE: CONCERN, "network.transport_plan": CONCERN},
        "NCCL_IB_GID_INDEX=3 (/etc/nccl.conf line 1) is the index of no RoCE v2 address of mlx5_0 port 1, mlx5_1 port",
        base=roce,
    ),
)
