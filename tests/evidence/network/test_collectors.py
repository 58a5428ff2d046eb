"""Reports of the network's collectors: devices, counters, interfaces; from real files in odd states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.network import collect_efa_counters as efa_counters
from clusterproof.plugins.evidence.network import collect_interfaces as interfaces
from clusterproof.plugins.evidence.network import collect_rdma as rdma
from clusterproof.plugins.evidence.network.facts import Counters, RdmaDevice
from clusterproof.plugins.evidence.node import Node as EvaluatedNode
from tests.builders.probed import PATIENT, SOON, probe, probe_node
from tests.builders.samples import sample
from tests.testbed.needs import needs_hung_mount, needs_nodes
from tests.testbed.node import entered, healthy_p5, with_file, with_hung_mount
from tests.testbed.pci import EFA_NAMES

FAIL, INCOMPLETE = Verdict.FAIL, Verdict.INCOMPLETE


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efa_counters, "BETWEEN_LOOKS_S", 0.0)


def written(root: Path, files: dict[str, str | bytes]) -> Node:
    """A host root with these files."""
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return Node(str(root))


def efa(name: str, **counters: str | bytes) -> dict[str, str | bytes]:
    """An EFA device with these port counters."""
    device = f"/sys/class/infiniband/{name}"
    files: dict[str, str | bytes] = {f"{device}/device/vendor": "0x1d0f\n", f"{device}/device/device": "0xefa2\n"}
    return files | {f"{device}/ports/1/hw_counters/{counter}": text for counter, text in counters.items()}


def rdma_devices(node: Node) -> dict[str, Any]:
    """The devices that the collector reports, by name."""
    report: Any = rdma.read(node)
    return {device["name"]: device for device in report["devices"]}


def test_a_capture_of_many_kinds_of_rdma_devices_is_read_whole(tmp_path: Path) -> None:
    capture = sample("rdma/sysfs-infiniband-node_exporter.txt")
    files = dict(line.split(":", 1) for line in capture.lines if line.startswith("/sys/"))
    devices = rdma_devices(written(tmp_path, dict(files)))
    assert {name: device["firmware"] for name, device in devices.items()} == {
        name: files[f"/sys/class/infiniband/{name}/fw_ver"] for name in devices
    }
    assert devices["i40iw0"]["ports"][0]["link_downed"] is None  # N/A (no PMA)
    assert [port["link_downed"] for port in devices["mlx4_0"]["ports"]] == [0, 0]
    assert {port.gbps for device in devices.values() for port in RdmaDevice(device).ports} == {10.0, 40.0}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("0\n", 0),
        ("18446744073709551615\n", 18446744073709551615),
        ("N/A (no PMA)\n", None),
        ("many\n", "EINVAL"),
        ("-1\n", "EINVAL"),
        (b"\xff\xfe\n", "EINVAL"),
        ("", "EINVAL"),
    ],
)
def test_a_ports_counter_is_a_number_or_none_or_an_error(tmp_path: Path, text: str | bytes, data: object) -> None:
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    (port,) = rdma_devices(written(tmp_path, {path: text}))["mlx5_0"]["ports"]
    assert (port["link_downed"]["error"] if isinstance(port["link_downed"], dict) else port["link_downed"]) == data
    assert port["symbol_errors"] is None


def test_efa_counters_are_read_at_both_looks_and_others_are_not(tmp_path: Path) -> None:
    node = written(tmp_path, efa("rdmap79s0", rx_drops="7\n", tx_bytes="9\n") | {
        "/sys/class/infiniband/mlx5_0/device/vendor": "0x15b3\n",
        "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_drops": "1\n",
        "/sys/class/infiniband/rdmap79s0/hw_counters/no_completion_cmds": "0\n",
    })  # fmt: skip
    report: Any = efa_counters.read(node)
    assert report["devices"] == [{"name": "rdmap79s0", "counters": {"rx_drops": [7, 7], "no_completion_cmds": [0, 0]}}]


ONCE, TWICE = [[{"name": name, "counters": {"drops": looks}} for name in "ab"] for looks in ([7], [7, 7])]


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        (1, {"devices": ONCE[:1], "all_devices": [{"name": "a"}, {"name": "b"}]}),
        (2, {"devices": [], "all_devices": ONCE}),
        (3, {"devices": TWICE[:1], "all_devices": ONCE}),
    ],
)
def test_what_was_seen_before_a_look_that_hangs_is_known(answers: int, value: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import os\nfrom clusterproof.plugins.evidence.network.collect_efa_counters import twice\n"
        f"LOOKS = iter([{{'drops': 7}}] * {answers})\n\n\ndef read(node):\n"
        "    return twice(node, 'devices', ['a', 'b'], lambda _name: next(LOOKS, None) or os._exit(0))\n"
    )
    collector = probe(["odd"], PATIENT, further=[tmp_path / "odd.py"]).collectors["odd"]
    assert (collector.status, {**collector.value, "seconds": 0}) == (Status.BROKE, {**value, "seconds": 0})


def test_a_node_without_efa_has_no_efa_counters(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no EFA device"):
        efa_counters.read(Node(str(tmp_path)))


@pytest.mark.parametrize(
    ("counters", "message"),
    [
        ({"rx_drops": [5, 4]}, "went backwards, from 5 to 4"),
        ({"rx_drops": [5, None]}, "was not reported"),
        ({"rx_drops": [5]}, "read only once"),
        ({"rx_drops": [5, 5, 5]}, "not understood"),
        ({"rx_drops": [5, {"error": "EIO", "text": "x"}]}, "EIO"),
        ([], "not understood"),
    ],
)
def test_a_counter_that_cannot_be_followed_is_incomplete(counters: object, message: str) -> None:
    with pytest.raises(Incomplete, match=message):
        Counters({"name": "rdmap79s0", "counters": counters}).counted("rx_drops")


def test_a_counter_is_what_it_went_on_by_and_none_where_the_driver_lacks_it() -> None:
    device = Counters({"name": "rdmap79s0", "counters": {"rx_drops": [5, 12]}})
    assert (device.counted("rx_drops"), device.counted("retrans_pkts")) == (7, None)


def interface_files(name: str, **files: str) -> dict[str, str | bytes]:
    """An interface in /sys/class/net with its own device."""
    here = f"/sys/class/net/{name}"
    contents = {"mtu": "9001\n", "operstate": "up\n", "flags": "0x1003\n", "carrier": "1\n", "device/x": ""} | files
    return {f"{here}/{file}": text for file, text in contents.items()}


def test_virtual_interfaces_are_names_only_and_what_is_no_interface_is_passed_over(tmp_path: Path) -> None:
    node = written(tmp_path, interface_files("ens32") | {
        "/sys/class/net/lo/mtu": "65536\n",
        "/sys/class/net/bonding_masters": "\n",
    })  # fmt: skip
    report: Any = interfaces.read(node)
    assert report["names"] == ["ens32", "lo"]
    assert [interface["name"] for interface in report["physical"]] == ["ens32"]


@pytest.mark.parametrize(
    ("file", "text", "key", "error"),
    [("mtu", "big\n", "mtu", "EINVAL"), ("flags", "up\n", "flags", "EINVAL"), ("carrier", "2\n", "carrier", "EINVAL")],
)
def test_a_value_of_an_interface_that_makes_no_sense_is_an_error_in_its_place(
    tmp_path: Path, file: str, text: str, key: str, error: str
) -> None:
    report: Any = interfaces.read(written(tmp_path, interface_files("ens32", **{file: text})))
    assert report["physical"][0][key]["error"] == error


@pytest.mark.long
def test_every_one_of_very_many_interfaces_is_reported(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"/sys/class/net/veth{number:04}/mtu": "1500\n" for number in range(600)}
    for number in range(200):
        files |= interface_files(f"ens{number}")
    report: Any = interfaces.read(written(tmp_path, files))
    assert (len(report["names"]), len(report["physical"])) == (800, 200)


def test_a_node_without_network_has_no_interface(tmp_path: Path) -> None:
    assert interfaces.read(Node(str(tmp_path))) == {"names": [], "physical": []}


@needs_nodes
def test_a_node_of_32_devices_with_dots_in_its_name_is_reported_whole() -> None:
    name = "ip-10-1-2-3.us-west-2.compute.internal"
    with entered(healthy_p5(), name) as node:
        collectors = probe_node(node, ["boot", "rdma", "efa_counters"], PATIENT).collectors
    assert collectors["boot"].value["hostname"] == name
    assert [device["name"] for device in collectors["rdma"].value["devices"]] == sorted(EFA_NAMES)
    assert len(collectors["efa_counters"].value["devices"]) == len(collectors["rdma"].value["uverbs"]) == 32


@needs_hung_mount
def test_a_device_that_never_answers_hides_no_port_of_the_others() -> None:
    first, last = sorted(EFA_NAMES)[0], sorted(EFA_NAMES)[-1]
    image = with_file(healthy_p5(), f"/sys/class/infiniband/{first}/ports/1/state", "1: DOWN\n")
    device = f"/sys/devices/pci0000:00/0000:{int(last[5:-2]):02x}:00.0/infiniband/{last}"
    with entered(with_hung_mount(image, f"{device}/ports/1")) as node:
        evidence = probe_node(node, ["rdma"], SOON)
    of = EvaluatedNode(Target("gpu001"), evidence)
    assert [device.name for device in of.efa_devices] == sorted(EFA_NAMES)
    result = evaluate(node_checks()["network.efa_port_active"], of)
    assert (result.verdict, f"{first}: port 1 is 1: DOWN" in result.message, last in result.message) == (
        FAIL,
        True,
        True,
    )
    assert evaluate(node_checks()["network.efa_rate"], of).verdict is INCOMPLETE
