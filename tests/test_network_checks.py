"""The network's checks where no fault of a fake node leads: expectations, small groups, other instance types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts.network import Port
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.inventory import with_expectations
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.judge import judge
from clusterproof.plugins.result import Result
from clusterproof.plugins.suite import node_checks
from clusterproof.plugins.verdict import Incomplete, Verdict

FAIL, CONCERN, NA, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.PASS


def verdict(check: str, leaves: Mapping[str, Any], **target: Any) -> Result:
    """What a check says of a lone node that told these leaves."""
    told = {name: Leaf(Status.TOLD, value) for name, value in leaves.items()}
    return judge(node_checks()[check], Node(Target("gpu001", **target), NodeEvidence("gpu001", told)))


def port(**values: Any) -> dict[str, Any]:
    """An active port."""
    told = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    return {**told, "link_layer": "InfiniBand", "link_downed": None, "symbol_errors": None, **values}


def mlx5(number: int, *ports: dict[str, Any], device: str = "1021") -> dict[str, Any]:
    """A ConnectX device."""
    told = {"name": f"mlx5_{number}", "vendor": "15b3", "device": device, "firmware": "28.39.1002"}
    return {**told, "p2p": None, "gdr": None, "ports": list(ports)}


def rdma(*devices: dict[str, Any]) -> dict[str, Any]:
    """A node with these RDMA devices, a day after its boot."""
    return {"rdma": {"devices": list(devices)}, "boot": {"uptime_s": 86400.0}}


@pytest.mark.parametrize(("expect", "says"), [(2, PASS), (1, PASS), (3, FAIL)])
def test_infiniband_devices_are_held_against_what_is_expected(expect: int, says: Verdict) -> None:
    assert verdict("network.ib_count", rdma(mlx5(0), mlx5(1)), expect={"ib": expect}).verdict is says


def test_no_infiniband_device_is_no_loss_where_none_is_expected() -> None:
    assert verdict("network.ib_count", rdma(), expect={"ib": 0}).verdict is NA


def test_ib_may_be_expected_on_the_command_line() -> None:
    cluster = with_expectations(Cluster("c", "local", (Target("gpu001"),)), expect="ib=8")
    assert cluster.targets[0].expect == {"ib": 8}


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([mlx5(0, port()), mlx5(1, port(rate="100 Gb/sec (4X EDR)"), device="1017")], PASS),  # another model
        ([mlx5(0, port()), mlx5(1, port(rate="100 Gb/sec (4X EDR)", link_layer="Ethernet"))], PASS),
        ([mlx5(0, port()), mlx5(1, port(rate="200 Gb/sec (4X HDR)"))], PASS),  # of two neither is the usual
        ([mlx5(0, port()), mlx5(1, port()), mlx5(2, port(rate="200 Gb/sec (4X HDR)"))], FAIL),
        ([mlx5(0, port(physical_state="3: Disabled", state="1: DOWN"))], NA),
        ([mlx5(0, port(), port(port=2, physical_state="3: Disabled", state="1: DOWN"))], PASS),
        ([mlx5(0)], FAIL),
    ],
)
def test_ports_are_held_against_their_like(devices: list[dict[str, Any]], says: Verdict) -> None:
    assert verdict("network.ib_ports", rdma(*devices)).verdict is says


@pytest.mark.parametrize(
    ("counters", "uptime_s", "says"),
    [
        ({}, 86400.0, NA),
        ({"link_downed": 4}, 600.0, PASS),
        ({"link_downed": 5}, 600.0, CONCERN),
        ({"link_downed": 5}, 30 * 86400.0, PASS),
        ({"symbol_errors": 120}, 60.0, PASS),
        ({"symbol_errors": 121}, 60.0, CONCERN),
        ({"symbol_errors": 2880}, 86400.0, PASS),
    ],
)
def test_link_errors_are_held_against_the_time_since_boot(
    counters: dict[str, int], uptime_s: float, says: Verdict
) -> None:
    told = rdma(mlx5(0, port(**counters))) | {"boot": {"uptime_s": uptime_s}}
    assert verdict("network.ib_errors", told).verdict is says


@pytest.mark.parametrize(
    ("rate", "gbps"),
    [("400 Gb/sec (4X NDR)", 400.0), ("2.5 Gb/sec (1X SDR)", 2.5), ("fast", None), ("", None), ("٤ Gb/sec", None)],
)
def test_a_ports_rate_is_the_number_before_its_unit(rate: str, gbps: float | None) -> None:
    if gbps is None:
        with pytest.raises(Incomplete, match="no number"):
            assert Port(port(rate=rate)).gbps
    else:
        assert Port(port(rate=rate)).gbps == gbps


def efa(**values: Any) -> dict[str, Any]:
    """An EFA device."""
    told = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2", "firmware": "", "p2p": None, "gdr": None}
    return {**told, "ports": [], **values}


@pytest.mark.parametrize(
    ("instance_type", "device", "says"),
    [
        ("p5.48xlarge", efa(p2p="NVIDIA peermem"), PASS),
        ("p4d.24xlarge", efa(gdr="1"), PASS),
        ("p4d.24xlarge", efa(gdr="0"), FAIL),
        ("p5.4xlarge", efa(), NA),
        ("g6.48xlarge", efa(), NA),
        ("trn1.32xlarge", efa(p2p="NEURON"), NA),
    ],
)
def test_gpudirect_is_asked_of_the_types_that_have_it(
    instance_type: str, device: dict[str, Any], says: Verdict
) -> None:
    told = {"rdma": {"devices": [device], "nvidia_taint": "POE"}}
    assert verdict("network.efa_gdr", told, instance_type=instance_type).verdict is says


def environment(*assigned: tuple[str, str, int]) -> dict[str, Any]:
    """Variables of one file, by line."""
    told = [
        {"name": name, "value": value, "file": "/etc/environment", "line": line, "conditional": False}
        for name, value, line in assigned
    ]
    return {"environment": {"variables": told, "unread": {}}, "rdma": {"devices": []}, "interfaces": {"names": ["e0"]}}


@pytest.mark.parametrize(
    ("instance_type", "assigned", "says"),
    [
        ("p4d.24xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], PASS),  # it has RDMA read
        ("p5.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], PASS),
        ("g4dn.metal", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], FAIL),
        ("g6.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], Verdict.INCOMPLETE),  # nothing tells
        ("p5.48xlarge", [("NCCL_NET_PLUGIN", "none", 1), ("NCCL_NET_PLUGIN", "ofi", 2)], PASS),
        ("p5.48xlarge", [("NCCL_NET_PLUGIN", "ofi", 1), ("NCCL_NET_PLUGIN", "none", 2)], FAIL),
        ("g6.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1), ("FI_PROVIDER", "sockets", 2)], FAIL),
        ("p5.48xlarge", [("NCCL_SOCKET_IFNAME", "$IFACE", 1)], PASS),
        ("p5.48xlarge", [("NCCL_SOCKET_IFNAME", "^e", 1)], CONCERN),
    ],
)
def test_the_transport_is_judged_by_the_instance_type(
    instance_type: str, assigned: list[tuple[str, str, int]], says: Verdict
) -> None:
    assert verdict("network.transport_plan", environment(*assigned), instance_type=instance_type).verdict is says


def interface(name: str, mtu: int, driver: str = "mlx5_core", *, flags: int = 3, carrier: Any = True) -> dict[str, Any]:
    """A physical interface."""
    return {"name": name, "driver": driver, "mtu": mtu, "state": "up", "flags": flags, "carrier": carrier}


@pytest.mark.parametrize(
    ("physical", "says"),
    [
        ([interface("e0", 9001, "ena")], PASS),
        ([interface("e0", 9000, "ena")], CONCERN),
        ([interface("e0", 9001, "ena"), interface("e1", 1500, "ena", flags=2, carrier=None)], PASS),  # not in use
        ([interface("e0", 1500)], PASS),
        ([interface("e0", 1500), interface("e1", 9000)], PASS),  # of two neither is the usual
        ([interface("e0", 1500), interface("e1", 9000), interface("e2", 9000)], CONCERN),
        ([interface("e0", 1500, "igb"), interface("e1", 9000), interface("e2", 9000)], PASS),
        ([], NA),
    ],
)
def test_the_mtu_is_held_against_what_the_interface_is_for(physical: list[dict[str, Any]], says: Verdict) -> None:
    assert verdict("network.mtu", {"interfaces": {"names": [], "physical": physical}}).verdict is says
