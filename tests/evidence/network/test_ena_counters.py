"""What ENA's driver counts: statistics as the real ethtool shows them, of interfaces that the kernel really has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.evidence.network import collect_ena_counters as ena_counters
from tests.builders.probed import PATIENT, probe_node
from tests.testbed import ioctls
from tests.testbed.needs import needs_ethtool, needs_nodes
from tests.testbed.node import entered, healthy_p5, with_file, with_whole_machine

NOBODY = 65534
PAIR = "ip link add end1 type veth peer name end2"
ASKED = f"""
import json, os, sys
from clusterproof.plugins.evidence.network.collect_ena_counters import statistics
os.setgid({NOBODY})
os.setuid({NOBODY})
print(json.dumps(statistics(sys.argv[1])))
"""


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ena_counters, "BETWEEN_LOOKS_S", 0.0)


def in_namespace(script: str, *argv: str) -> str:
    """What a shell script prints that has a network namespace of its own."""
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-ec", script, "sh", *argv], capture_output=True, text=True, check=True
    )
    return ran.stdout


def shown(output: str) -> dict[str, int]:
    """What `ethtool -S` shows, by name."""
    rows = (line.rpartition(":") for line in output.splitlines()[1:])
    return {name.strip(): int(value) for name, _, value in rows}


def ena(root: Path, *names: str) -> Node:
    """A host root of this machine's own network namespace with these interfaces of ENA."""
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
    out = in_namespace(f'{PAIR}; "$1" -c "$2" end1; ethtool -S end1', sys.executable, ASKED)
    counters, _, ethtool = out.partition("\n")
    assert json.loads(counters) == shown(ethtool)
    assert json.loads(counters)["peer_ifindex"] > 0


@needs_ethtool
def test_an_interface_without_statistics_has_none() -> None:
    assert in_namespace('"$1" -c "$2" lo', sys.executable, ASKED) == "{}\n"


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
    data: Any = ena_counters.read(node)
    (interface,) = data["interfaces"]
    assert interface["name"] == "ens32"
    assert {look["error"] for looks in interface["counters"].values() for look in looks} == {"ENODEV"}


def test_every_one_of_very_many_interfaces_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ena_counters, "statistics", lambda _name: {"pps_allowance_exceeded": 7})
    data: Any = ena_counters.read(ena(tmp_path, *(f"ens{number:03}" for number in range(200))))
    assert len(data["interfaces"]) == 200
    assert data["interfaces"][0] == {"name": "ens000", "counters": {"pps_allowance_exceeded": [7, 7]}}


def test_a_node_without_ena_has_no_counters(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no interface of ENA"):
        ena_counters.read(Node(str(tmp_path)))


def test_counters_of_another_network_namespace_are_not_reported(tmp_path: Path) -> None:
    node = ena(tmp_path, "ens32")
    (tmp_path / "proc/1/ns/net").unlink()
    (tmp_path / "proc/1/ns/net").symlink_to("net:[1]")
    with pytest.raises(Denied, match="network namespace"):
        ena_counters.read(node)
