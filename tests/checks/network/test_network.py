"""GPUDirect, interfaces and counters in cases that no fault of a fake node produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import node
from tests.checks.network.given import efa, interface, mlx5, port, rdma, verdict

FAIL, CONCERN, NA, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.PASS
INCOMPLETE, UNREAD = Verdict.INCOMPLETE, {"error": "EIO", "text": ""}


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
    reports = {"rdma": {"devices": [device], "nvidia_taint": "POE"}}
    assert verdict("network.efa_gdr", reports, instance_type=instance_type).verdict is says


@pytest.mark.parametrize(("instance_type", "says"), [("trn1.32xlarge", CONCERN), ("trn9.32xlarge", INCOMPLETE)])
def test_an_efa_device_that_lends_no_memory_beside_others_that_do_is_a_concern(
    instance_type: str, says: Verdict
) -> None:
    devices = [efa(p2p="NEURON"), efa(p2p=""), efa(p2p="NEURON")]
    result = verdict("network.efa_gdr", {"rdma": {"devices": devices}}, instance_type=instance_type)
    assert (result.verdict, "memory; expected NEURON" in result.message) == (says, True), result.message


@pytest.mark.parametrize(
    ("physical", "says"),
    [
        ([interface("e0", 9001, "ena")], PASS),
        ([interface("e0", 9000, "ena")], CONCERN),
        ([interface("e0", 9001, "ena"), interface("e1", 1500, "ena", flags=2, carrier=None)], PASS),  # not in use
        ([interface("e0", 1500)], PASS),
        ([interface("e0", 1500), interface("e1", 9000)], PASS),  # of two, neither is the usual
        ([interface("e0", 1500), interface("e1", 9000), interface("e2", 9000)], CONCERN),
        ([interface("e0", 1500, "igb"), interface("e1", 9000), interface("e2", 9000)], PASS),
        (
            [interface("ens1", 9000), *(interface(f"ibp{at}s0", 4092) for at in (24, 41, 59))],
            PASS,
        ),  # IPoIB's is smaller
        ([interface("ibp24s0", 2044), interface("ib1", 4092), interface("ib2", 4092)], CONCERN),
        ([], NA),
    ],
)
def test_the_mtu_is_held_against_what_the_interface_is_for(physical: list[dict[str, Any]], says: Verdict) -> None:
    assert verdict("network.mtu", {"interfaces": {"names": [], "physical": physical}}).verdict is says


IN_A_VRF = {"address": "10.1.2.3", "is_own": False}  # to which only what runs in the VRF can bind


@pytest.mark.parametrize(
    ("hosts", "addresses", "says"),
    [
        ([IN_A_VRF], [{"name": "eth0", "driver": "mlx5_core", "mac": "", "ipv4": "10.1.2.3"}], PASS),
        ([IN_A_VRF], [{"name": "eth0", "driver": "mlx5_core", "mac": "", "ipv4": "10.1.2.4"}], FAIL),
        ([IN_A_VRF], [{"name": "eth0", "driver": "mlx5_core", "mac": "", "ipv4": UNREAD}], FAIL),
        ([IN_A_VRF], UNREAD, FAIL),
    ],
)
def test_an_address_that_an_interface_shows_is_the_nodes_own(hosts: Any, addresses: Any, says: Verdict) -> None:
    assert (
        verdict("network.own_name", {"naming": {"hostname": "g1", "hosts": hosts, "addresses": addresses}}).verdict
        is says
    )


def test_an_interface_for_storage_has_the_mtu_that_it_has_on_most_nodes() -> None:
    physical = [interface("a", 4200), interface("b", 4200), interface("c", 4200), interface("d", 1500)]
    hosts = [node(f"n{number}", interfaces={"names": [], "physical": physical}) for number in range(4)]
    assert result_of("network.mtu", *hosts).verdict is Verdict.PASS
    assert result_of("network.mtu", hosts[0]).verdict is Verdict.CONCERN


@pytest.mark.parametrize(
    ("physical", "says", "message"),
    [
        ([interface("e0", 9001)], PASS, ""),
        ([interface("e0", 9001), interface("e1", 9001, flags=2, carrier=None)], PASS, ""),  # switched off
        ([interface("e0", 9001), interface("e1", 9001, carrier=False)], CONCERN, "switched on without a link: e1"),
        ([interface("e0", 9001, flags=2, carrier=None)], CONCERN, "every network interface is switched off"),
        ([], NA, "no physical network interface"),
    ],
)
def test_an_interface_that_is_switched_on_has_a_link(
    physical: list[dict[str, Any]], says: Verdict, message: str
) -> None:
    result = verdict("network.interfaces_up", {"interfaces": {"names": [], "physical": physical}})
    assert result.verdict is says, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("own", "of_others", "says", "message"),
    [
        (2, 3, CONCERN, "e1 is down; expected up as on 2 of 3 nodes"),
        (3, 2, PASS, ""),  # it has a link that the others do not use
        (2, 2, PASS, ""),
    ],
)
def test_an_interface_that_is_up_on_other_nodes_is_up_here(
    own: int, of_others: int, says: Verdict, message: str
) -> None:
    def output_of(name: str, flags: int) -> NodeEvidence:
        spare = interface("e1", 9001, flags=flags, carrier=True if flags == 3 else None)
        return node(name, interfaces={"names": [], "physical": [interface("e0", 9001), spare]})

    result = result_of(
        "network.interfaces_up", output_of("n0", own), output_of("n1", of_others), output_of("n2", of_others)
    )
    assert result.verdict is says, result.message
    assert message in result.message


EFA_BESIDE = {**mlx5(9), "name": "rdmap79s0", "vendor": "1d0f", "device": "efa2"}


@pytest.mark.parametrize(
    ("check", "devices", "expect", "message"),
    [
        ("ib_count", [], {"ib": 0}, "none is expected here"),
        ("ib_count", [EFA_BESIDE], {}, "this node's fabric is EFA"),
        ("ib_ports", [EFA_BESIDE, mlx5(0, port())], {}, "this node's fabric is EFA"),
        ("ib_ports", [mlx5(0, port(physical_state="3: Disabled"))], {}, "every port is disabled"),
        ("ib_link_layer", [EFA_BESIDE, mlx5(0, port())], {}, "this node's fabric is EFA"),
        ("ib_link_layer", [], {}, "no InfiniBand or RoCE device on this node"),
        ("ib_errors", [EFA_BESIDE, mlx5(0, port())], {}, "this node's fabric is EFA"),
    ],
)
def test_what_is_not_an_infiniband_fabric_is_not_evaluated_as_one(
    check: str, devices: list[dict[str, Any]], expect: dict[str, int], message: str
) -> None:
    result = verdict(f"network.{check}", rdma(*devices), expect=expect)
    assert result.verdict is NA, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        (4200, "4200 on 3, 9000 on 2, 9001 on 2, 2044 on 2"),
        (1500, "4200 on 2, 9000 on 2, 9001 on 2, 1500 on n9, and 1 more"),
    ],
)
def test_of_many_values_the_nodes_own_is_named_and_those_left_out_are_counted(own: int, seen: str) -> None:
    mtus = {"n9": own, **{f"n{at}": (4200, 9000, 9001, 2044)[at // 2] for at in range(8)}}
    hosts = [node(name, interfaces={"names": [], "physical": [interface("e0", mtu)]}) for name, mtu in mtus.items()]
    assert f"MTU of e0 differs from node to node ({seen})" in result_of("network.mtu", *hosts).message


@pytest.mark.parametrize(("duplicates", "says"), [(["fe80::1"], CONCERN), ([], NA)])
def test_an_address_that_the_kernel_found_elsewhere_is_reported(duplicates: list[str], says: Verdict) -> None:
    naming = {"hostname": "gpu001", "hosts": [], "nameservers": [], "addresses": [], "duplicates": duplicates}
    assert verdict("network.address_unique", {"naming": naming}).verdict is says


def test_counters_that_were_not_reported_for_a_device_are_no_pass() -> None:
    reports = {"rdma": {"devices": [EFA_BESIDE]}, "efa_counters": {"seconds": 1.0, "devices": []}}
    assert verdict("network.efa_counters", reports).verdict is Verdict.INCOMPLETE


def test_a_firmware_that_no_other_node_has_is_named_beside_one_that_is_unread() -> None:
    def evidence(name: str, *firmware: Any) -> NodeEvidence:
        devices = [{**mlx5(at, port()), "firmware": version} for at, version in enumerate(firmware)]
        return node(name, **rdma(*devices), interfaces={"names": [], "physical": []})

    others = [evidence(f"n{at}", "28.39.1002", "28.39.1002") for at in (1, 2, 3)]
    result = result_of("network.nic_uniform", evidence("n0", "22.31.1014", UNREAD), *others)
    assert "RDMA firmware is 1021 22.31.1014; expected 1021 28.39.1002 as on 3 of 3 nodes" in result.message
    assert result.verdict is INCOMPLETE
    assert "expected" not in result_of("network.nic_uniform", evidence("n0", "28.39.1002", UNREAD), *others).message
