"""Which of a node's RDMA ports are used, in what order, and which form one rail on two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.rdma.ports import EFA, INFINIBAND, ROCE, ports, rails
from tests.benchmarks.rdma.nodes import efas, rdma_device, with_address, written
from tests.testbed.sysfs import Tree


def seen(folder: Path, tree: Tree) -> list[tuple[str, str, int | None, str]]:
    """Each port's name, fabric, GID index, and why it cannot be used."""
    return [(port["label"], port["fabric"], port["gid"], port["down"]) for port in ports(Node(written(folder, tree)))]


def test_they_are_in_the_order_of_the_pci_bus_and_not_of_their_names(tmp_path: Path) -> None:
    tree = {**rdma_device("mlx5_9", 0x18), **rdma_device("mlx5_10", 0x2A), **rdma_device("mlx5_1", 0xC0)}
    assert [label for label, *_ in seen(tmp_path, tree)] == ["mlx5_9 port 1", "mlx5_10 port 1", "mlx5_1 port 1"]


def test_no_other_device_is_used_on_a_node_with_efa(tmp_path: Path) -> None:
    assert seen(tmp_path, {**rdma_device("mlx5_0", 0x18), **efas(0x4F)}) == [("rdmap79s0", EFA, None, "")]


def test_a_port_that_somebody_switched_off_is_not_meant_and_one_without_a_link_is(tmp_path: Path) -> None:
    tree = {
        **rdma_device("mlx5_0", 0x18, state="1: DOWN", phys_state="3: Disabled"),
        **rdma_device("mlx5_1", 0x2A, state="1: DOWN", phys_state="2: Polling"),
    }
    down = "mlx5_1 port 1 is 1: DOWN, 2: Polling"
    assert seen(tmp_path, tree) == [("mlx5_1 port 1", INFINIBAND, None, down)]


def test_a_roce_port_has_the_gid_of_an_address_that_is_routed(tmp_path: Path) -> None:
    tree = {
        **rdma_device("mlx5_0", 0x18, "Ethernet"), **with_address("mlx5_0", 0x18, 2, "IB/RoCE v1"),
        **with_address("mlx5_0", 0x18, 3), **rdma_device("mlx5_1", 0x2A, "Ethernet"),
    }  # fmt: skip
    assert seen(tmp_path, tree) == [("mlx5_0 port 1", ROCE, 3, "")]


def test_a_roce_port_without_an_address_is_not_meant(tmp_path: Path) -> None:
    assert seen(tmp_path, rdma_device("mlx5_0", 0x18, "Ethernet")) == []


@pytest.mark.parametrize(
    ("state", "meant"), [("4: ACTIVE", ["mlx5_0 port 1"]), ("1: DOWN", ["mlx5_0 port 1", "mlx5_1 port 1"])]
)
def test_where_infiniband_is_active_no_ethernet_port_is_meant(tmp_path: Path, state: str, meant: list[str]) -> None:
    tree = {**rdma_device("mlx5_0", 0x18, state=state), **rdma_device("mlx5_1", 0x2A, "Ethernet")}
    assert [label for label, *_ in seen(tmp_path, {**tree, **with_address("mlx5_1", 0x2A, 3)})] == meant


def test_software_devices_are_not_meant(tmp_path: Path) -> None:
    tree = {path: "" if path.endswith("/vendor") else content for path, content in rdma_device("rxe0", 0x18).items()}
    del tree["devices/pci0000:00/0000:18:00.0/vendor"]
    assert seen(tmp_path, tree) == []


@pytest.mark.parametrize(
    ("own", "others", "matched"),
    [
        ([0x18, 0x2A], [0x18, 0x2A], [(0, 0x18, 0x18), (1, 0x2A, 0x2A)]),
        ([0x18, 0x2A, 0x40], [0x18, 0x40], [(0, 0x18, 0x18), (1, 0x2A, None), (2, 0x40, 0x40)]),
        ([0x2A], [0x18, 0x2A], [(0, None, 0x18), (1, 0x2A, 0x2A)]),
        ([0x18, 0x2A], [0x19, 0x2B], [(0, 0x18, 0x19), (1, 0x2A, 0x2B)]),
        ([0x18, 0x3C, 0x40], [0x19, 0x3C, 0x41], [(0, 0x18, 0x19), (1, 0x3C, 0x3C), (2, 0x40, 0x41)]),
        ([0x1A, 0x3C, 0x4D], [0x18, 0x20, 0x3C], [(0, 0x1A, 0x18), (1, 0x3C, 0x20), (2, 0x4D, 0x3C)]),
        ([0x18], [0x19, 0x2B], [(0, 0x18, 0x19), (1, None, 0x2B)]),
    ],
)
def test_a_rail_has_what_is_at_the_same_place_on_both_or_else_in_the_same_order(
    tmp_path: Path, own: list[int], others: list[int], matched: list[tuple[int, int | None, int | None]]
) -> None:
    sides = []
    for name, buses in (("a", own), ("b", others)):
        tree = {path: content for bus in buses for path, content in rdma_device(f"ibp{bus}s0", bus).items()}
        sides.append(ports(Node(written(tmp_path / name, tree))))
    names = [(rail, *(port and port["device"] for port in two)) for rail, *two in rails(*sides)]
    assert names == [(rail, *(f"ibp{bus}s0" if bus else None for bus in two)) for rail, *two in matched]
