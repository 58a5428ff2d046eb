"""How RoCE is set on the ports of network cards, as sysfs has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network.collect_roce import read
from clusterproof.plugins.evidence.network.facts_node import RocePort

ZERO = "0000:" * 7 + "0000"
LINK = "fe80:" + "0000:" * 6 + "0001"
IPV4 = "0000:" * 5 + "ffff:0a01:0001"
IPV6 = "2001:" + "0000:" * 6 + "0001"


def device(root: Path, gids: list[tuple[str, str]], layer: str = "Ethernet", vendor: str = "0x15b3", **ecn: str) -> Any:
    """What the collector returns of one device with this table of GIDs."""
    at, net = root / "sys/class/infiniband/mlx5_0", root / "sys/class/net/ens1/ecn"
    files = {"ports/1/link_layer": layer, "ports/1/state": "4: ACTIVE", "ports/1/rate": "400 Gb/sec (4X NDR)"}
    files |= {f"device/{name}": word for name, word in (("vendor", vendor), ("device", "0x1021")) if vendor}
    for index, (address, kind) in enumerate(gids):
        files |= {f"ports/1/gids/{index}": address, f"ports/1/gid_attrs/types/{index}": kind}
        files[f"ports/1/gid_attrs/ndevs/{index}"] = "ens1"
    for name, word in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(f"{word}\n")
    for side, words in ecn.items():
        (net / side / "enable").mkdir(parents=True)
        for priority, word in enumerate(words):
            (net / side / "enable" / str(priority)).write_text(f"{word}\n")
    value: Any = read(Node(str(root)))
    return value["ports"]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        ([(LINK, "IB/RoCE v1"), (LINK, "RoCE v2"), (IPV4, "IB/RoCE v1"), (IPV4, "RoCE v2")], "3"),
        ([(IPV6, "RoCE v2"), (IPV4, "RoCE v2")], "1"),
        ([(IPV6, "RoCE v2")], "0"),
        ([(LINK, "RoCE v2"), (ZERO, "RoCE v2")], "none"),
        ([], "none"),
    ],
)
def test_the_gid_of_a_port_is_of_version_2_and_routed(tmp_path: Path, gids: list[tuple[str, str]], index: str) -> None:
    (port,) = device(tmp_path, gids)
    assert RocePort(port).gid_v2 == index
    assert RocePort(port).label == "mlx5_0 port 1"


def test_no_address_leaves_the_node(tmp_path: Path) -> None:
    (port,) = device(tmp_path, [(IPV4, "RoCE v2"), (ZERO, "RoCE v2")])
    assert port["gids"] == [{"index": 0, "type": "RoCE v2", "kind": "ipv4"}]


def test_congestion_control_is_a_digit_for_each_priority(tmp_path: Path) -> None:
    (port,) = device(tmp_path, [(IPV4, "RoCE v2")], roce_np="11111111", roce_rp="00010000")
    assert (port["notifies"], port["reacts"], port["traffic_class"]) == ("11111111", "00010000", "")


def test_a_driver_without_congestion_control_shows_none(tmp_path: Path) -> None:
    (port,) = device(tmp_path, [(IPV4, "RoCE v2")])
    assert (port["notifies"], port["reacts"]) == ("", "")


@pytest.mark.parametrize(("layer", "vendor"), [("InfiniBand", "0x15b3"), ("Ethernet", "")])
def test_infiniband_and_what_is_made_of_software_have_none(tmp_path: Path, layer: str, vendor: str) -> None:
    assert device(tmp_path, [(IPV4, "RoCE v2")], layer, vendor) == []
