"""GPUDirect, interfaces and counters in cases that no fault of a fake node produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import node
from tests.checks.network.given import efa, mlx5, port, rdma, verdict

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


def nic(at: int, width: int | None = 16, **values: Any) -> dict[str, Any]:
    """A ConnectX on the bus whose port does not report its maximum."""
    link = {"width": width, "speed": "32.0 GT/s PCIe" if width else "", "width_max": 16, "speed_max": "32.0 GT/s PCIe"}
    names = {"address": f"0000:{at:02x}:00.0", "vendor": "15b3", "device": "1021", "class": "020700", "numa": 0}
    return {**names, **link, "port_width_max": None, "port_speed_max": None, **values}


WHOLE: dict[str, Any] = {"port_width_max": 16, "port_speed_max": "32.0 GT/s PCIe"}


@pytest.mark.parametrize(
    ("check", "one", "other", "message"),
    [
        ("nic_link", {"pci": {"devices": [nic(1, 8)]}}, {"pci": {"devices": [nic(1)]}}, "PCIe link of 0000:01:00.0"),
        (
            "nic_numa",
            {"pci": {"devices": [nic(1, numa=1)]}},
            {"pci": {"devices": [nic(1)]}},
            "NUMA node of 0000:01:00.0 differs from node to node (1 on n0, 0 on n1)",
        ),
        (
            "mtu",
            {"interfaces": {"names": [], "physical": [interface("e0", 1500)]}},
            {"interfaces": {"names": [], "physical": [interface("e0", 4200)]}},
            "MTU of e0 differs from node to node (1500 on n0, 4200 on n1)",
        ),
        (
            "interfaces_up",
            {"interfaces": {"names": [], "physical": [interface("e0", 9001), interface("e1", 9001, flags=2)]}},
            {"interfaces": {"names": [], "physical": [interface("e0", 9001), interface("e1", 9001)]}},
            "e1 differs from node to node (down on n0, up on n1)",
        ),
    ],
)
def test_two_nodes_that_differ_are_a_concern(
    check: str, one: dict[str, Any], other: dict[str, Any], message: str
) -> None:
    result = result_of(f"network.{check}", node("n0", **one), node("n1", **other))
    assert (result.verdict, message in result.message) == (CONCERN, True), result.message


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


@pytest.mark.parametrize(
    ("nics", "says", "message"),
    [
        ([nic(1), nic(2), nic(3)], PASS, ""),
        ([nic(1), nic(2), nic(3, None, function_of="0000:01:00.0")], PASS, ""),  # a virtual function reports no link
        ([nic(1), nic(2), nic(3, None, power="suspended")], PASS, ""),
        ([nic(1), nic(2), nic(3, None)], Verdict.INCOMPLETE, "the kernel reports no PCIe link for 0000:03:00.0"),
        ([nic(1, None), nic(2, None)], NA, "the kernel reports no PCIe link for any network device here"),
        ([nic(1), nic(2), nic(3, 8)], CONCERN, "PCIe x8 at 32 GT/s on 0000:03:00.0; expected x16"),
        ([nic(1), nic(2, 8)], PASS, ""),  # of two, neither is the usual
        ([nic(1, 8, **WHOLE)], CONCERN, "PCIe x8 at 32 GT/s on 0000:01:00.0; expected x16 at 32 GT/s, which both "),
        ([nic(1, speed="16.0 GT/s PCIe", **WHOLE), nic(2)], CONCERN, "PCIe x16 at 16 GT/s on 0000:01:00.0; expected"),
        ([nic(1), nic(2), nic(3, 8, device="1023")], PASS, ""),  # another model
        ([nic(1), nic(2), nic(3, 8, port_width_max=16, port_speed_max="32.0 GT/s PCIe")], FAIL, "PCIe x8"),
        ([nic(1), nic(2), nic(3, 8, port_width_max=8, port_speed_max="32.0 GT/s PCIe")], PASS, ""),  # its slot
        ([nic(1), nic(2), nic(3, 8, **WHOLE), nic(4, device=UNREAD)], FAIL, "PCIe x8 at 32 GT/s on 0000:03:00.0"),
        ([nic(1), nic(2), nic(3, 8, device=UNREAD, **WHOLE)], INCOMPLETE, "PCIe x8 at 32 GT/s on 0000:03:00.0"),
        (
            [nic(1, device=UNREAD), nic(2), nic(3, 8, **WHOLE), nic(4)],
            FAIL,
            "0000:03:00.0; expected x16 at 32 GT/s, like",
        ),
        ([nic(1), nic(2, device=UNREAD), nic(3, 8, **WHOLE)], INCOMPLETE, "expected x16 at 32 GT/s, which both ends"),
        ([nic(1, 8, device=UNREAD, **WHOLE)], INCOMPLETE, "expected x16 at 32 GT/s, which both ends support"),
        ([nic(1), nic(2), nic(3, 8, address=UNREAD, **WHOLE)], FAIL, "x8 at 32 GT/s on a network device; expected x16"),
        ([], NA, "no EFA, InfiniBand or RoCE device on this node"),
    ],
)
def test_a_network_device_has_the_link_of_its_like(nics: list[dict[str, Any]], says: Verdict, message: str) -> None:
    result = verdict("network.nic_link", {"pci": {"devices": nics}})
    assert result.verdict is says, result.message
    assert message in result.message


OF_BROADCOM: dict[str, Any] = {"vendor": "14e4", "device": "1750", "class": "020000", "driver": "bnxt_en"}


@pytest.mark.parametrize(
    ("state", "says", "message"),
    [
        ("4: ACTIVE", FAIL, "PCIe x8 at 32 GT/s on 0000:03:00.0; expected x16 at 32 GT/s, like most of its model here"),
        ("1: DOWN", NA, "no EFA, InfiniBand or RoCE device on this node"),
    ],
)
def test_a_rail_of_another_vendor_is_judged_where_its_port_is_in_use(state: str, says: Verdict, message: str) -> None:
    bnxt = {**mlx5(0, port(state=state, link_layer="Ethernet")), "name": "bnxt_re0", "vendor": "14e4", "device": "1750"}
    nics = [nic(1, **OF_BROADCOM), nic(2, **OF_BROADCOM), nic(3, 8, **OF_BROADCOM, **WHOLE)]
    result = verdict("network.nic_link", {"pci": {"devices": nics}, **rdma(bnxt)})
    assert (result.verdict, message in result.message) == (says, True), result.message


@pytest.mark.parametrize(("rate", "says"), [("25 Gb/sec (1X EDR)", PASS), ("unknown", CONCERN)])
def test_an_adapter_of_the_board_that_is_slower_than_the_rails_is_none_of_them(rate: str, says: Verdict) -> None:
    rail, slow = mlx5(0, port()), port(rate=rate, link_layer="Ethernet")
    board = {**mlx5(1, slow), "name": "bnxt_re0", "vendor": "14e4", "device": "1750"}
    nics = [nic(1, **WHOLE), nic(2, 4, **OF_BROADCOM, **WHOLE)]
    assert verdict("network.nic_link", {"pci": {"devices": nics}, **rdma(rail, board)}).verdict is says


@pytest.mark.parametrize(
    ("check", "own", "words"),
    [
        ("nic_link", nic(3, 8), "PCIe link of 0000:03:00.0 x8 at 32 GT/s; expected x16 at 32 GT/s as on 3 of 4 nodes"),
        ("nic_numa", nic(3, numa=1), "NUMA node of 0000:03:00.0 1; expected 0 as on 3 of 4 nodes"),
        ("nic_numa", nic(3, numa=-1, address=UNREAD), "no NUMA node is reported for a network device; expected one"),
    ],
)
def test_a_network_device_unlike_the_others_is_named_beside_one_without_an_address(
    check: str, own: dict[str, Any], words: str
) -> None:
    others = (node(f"n{number}", pci={"devices": [nic(1), nic(2), nic(3)]}) for number in (1, 2, 3))
    devices = [nic(1, address=UNREAD), nic(2), own]
    result = result_of(f"network.{check}", node("n0", pci={"devices": devices}), *others)
    assert (result.verdict, words in result.message) == (INCOMPLETE, True), result.message


def test_a_link_is_not_compared_with_nodes_that_have_no_device_at_that_address() -> None:
    others = (node(f"n{number}", pci={"devices": [nic(1), nic(2)]}) for number in (1, 2, 3))
    result = result_of(
        "network.nic_link", node("n0", pci={"devices": [nic(3, 8, **WHOLE), nic(4, 8, **WHOLE)]}), *others
    )
    assert (result.verdict, " as on " in result.message) == (CONCERN, False), result.message


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
