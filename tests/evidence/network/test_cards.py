"""ENA driver counters as the real ethtool shows them, and RoCE settings of network card ports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.evidence.network import collect_efa_counters as efa_counters
from clusterproof.plugins.evidence.network import collect_ena_counters as ena_counters
from clusterproof.plugins.evidence.network.collect_roce import read
from clusterproof.plugins.evidence.network.facts_node import RocePort
from tests.builders.probed import PATIENT, probe_node
from tests.testbed import ioctls
from tests.testbed.needs import needs_ethtool, needs_nodes
from tests.testbed.node import entered, healthy_p5, with_file, with_whole_machine

NOBODY = 65534
PAIR = "ip link add end1 type veth peer name end2"
STATISTICS = f"""
import json, os, sys
from clusterproof.plugins.evidence.network.collect_ena_counters import statistics
os.setgid({NOBODY})
os.setuid({NOBODY})
print(json.dumps(statistics(sys.argv[1])))
"""


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efa_counters, "BETWEEN_LOOKS_S", 0.0)


def in_namespace(script: str, *argv: str) -> str:
    """The output of a shell script in a separate network namespace."""
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-ec", script, "sh", *argv], capture_output=True, text=True, check=True
    )
    return ran.stdout


def shown(output: str) -> dict[str, int]:
    """What `ethtool -S` shows, by name."""
    rows = (line.rpartition(":") for line in output.splitlines()[1:])
    return {name.strip(): int(value) for name, _, value in rows}


def ena(root: Path, *names: str) -> Node:
    """A host root with these ENA interfaces and a separate network namespace."""
    for name in names:
        driver = root / f"sys/class/net/{name}/device/driver"
        driver.parent.mkdir(parents=True)
        driver.symlink_to("../../../bus/pci/drivers/ena")
    own = root / "proc/1/ns/net"
    own.parent.mkdir(parents=True)
    own.symlink_to(Path("/proc/self/ns/net").readlink())
    return Node(str(root))


@needs_ethtool
def test_an_unprivileged_user_reads_what_the_real_ethtool_shows_root() -> None:
    out = in_namespace(f'{PAIR}; "$1" -c "$2" end1; ethtool -S end1', sys.executable, STATISTICS)
    counters, _, ethtool = out.partition("\n")
    assert json.loads(counters) == shown(ethtool)
    assert json.loads(counters)["peer_ifindex"] > 0


@needs_ethtool
def test_an_interface_without_statistics_has_none() -> None:
    assert in_namespace('"$1" -c "$2" lo', sys.executable, STATISTICS) == "{}\n"


def test_an_interface_that_is_not_there_raises_what_the_kernel_says() -> None:
    with pytest.raises(OSError, match="No such device"):
        ena_counters.statistics("nosuchinterface")


@needs_ethtool
@needs_nodes
def test_the_real_ethtool_sees_on_a_fake_node_what_the_collector_reports() -> None:
    counter = f"{ioctls.COUNTERS}/ens32/pps_allowance_exceeded"
    with entered(with_file(with_whole_machine(healthy_p5()), counter, "18446744073709551615\n")) as node:
        ethtool = shown(node.run(["ethtool", "-S", "ens32"]).stdout.decode())
        reported = probe_node(node, ["ena_counters"], PATIENT).collectors["ena_counters"].value
    assert ethtool["pps_allowance_exceeded"] == 2**64 - 1
    assert reported["interfaces"] == [
        {"name": "ens32", "counters": {name: [ethtool[name]] * 2 for name in ena_counters.ALLOWANCES}}
    ]


def test_only_interfaces_of_ena_are_asked(tmp_path: Path) -> None:
    node = ena(tmp_path, "ens32")
    (tmp_path / "sys/class/net/docker0").mkdir()
    report: Any = ena_counters.read(node)
    (interface,) = report["interfaces"]
    assert interface["name"] == "ens32"
    assert {look["error"] for looks in interface["counters"].values() for look in looks} == {"ENODEV"}


def test_every_one_of_very_many_interfaces_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ena_counters, "statistics", lambda _name: {"pps_allowance_exceeded": 7})
    report: Any = ena_counters.read(ena(tmp_path, *(f"ens{number:03}" for number in range(200))))
    assert len(report["interfaces"]) == 200
    assert report["interfaces"][0] == {"name": "ens000", "counters": {"pps_allowance_exceeded": [7, 7]}}


def test_a_node_without_ena_has_no_counters(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no interface of ENA"):
        ena_counters.read(Node(str(tmp_path)))


def test_counters_of_another_network_namespace_are_not_reported(tmp_path: Path) -> None:
    node = ena(tmp_path, "ens32")
    (tmp_path / "proc/1/ns/net").unlink()
    (tmp_path / "proc/1/ns/net").symlink_to("net:[1]")
    with pytest.raises(Denied, match="network namespace"):
        ena_counters.read(node)


ZERO = "0000:" * 7 + "0000"
LINK = "fe80:" + "0000:" * 6 + "0001"
IPV4 = "0000:" * 5 + "ffff:0a01:0001"
IPV6 = "2001:" + "0000:" * 6 + "0001"


def device(root: Path, gids: list[tuple[str, str]], layer: str = "Ethernet", vendor: str = "0x15b3", **ecn: str) -> Any:
    """The collector's report on one device with this GID table."""
    at, net = root / "sys/class/infiniband/mlx5_0", root / "sys/class/net/ens1/ecn"
    files = {"ports/1/link_layer": layer, "ports/1/state": "4: ACTIVE", "ports/1/rate": "400 Gb/sec (4X NDR)"}
    files |= {f"device/{name}": word for name, word in (("vendor", vendor), ("device", "0x1021")) if vendor}
    for index, (address, kind) in enumerate(gids):
        files |= {f"ports/1/gids/{index}": address, f"ports/1/gid_attrs/types/{index}": kind}
        files[f"ports/1/gid_attrs/ndevs/{index}"] = "ens1"
    for name, word in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(f"{word}\n")
    for side, values in ecn.items():
        (net / side / "enable").mkdir(parents=True)
        for priority, word in enumerate(values):
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
