"""Network devices in their slots: PCIe links and NUMA nodes, beside their like and on other nodes."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import node
from tests.checks.network.given import interface, mlx5, port, rdma, verdict

FAIL, CONCERN, NA, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.PASS
INCOMPLETE, UNREAD = Verdict.INCOMPLETE, {"error": "EIO", "text": ""}


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


@pytest.mark.parametrize("key", ["devices", "vendor", "ports"])
@pytest.mark.parametrize("check", ["network.nic_link", "network.nic_numa"])
def test_a_node_whose_adapters_are_all_of_another_vendor_is_incomplete_without_its_rdma_devices(
    check: str, key: str
) -> None:
    bnxt = {**mlx5(0, port(link_layer="Ethernet")), "name": "bnxt_re0", "vendor": "14e4", "device": "1750"}
    unread = {"rdma": {"devices": UNREAD}} if key == "devices" else rdma({**bnxt, key: UNREAD})
    result = verdict(check, {"pci": {"devices": [nic(1, **OF_BROADCOM)]}, **unread})
    assert result.verdict is INCOMPLETE, result.message
    assert f"{key} could not be read" in result.message


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
