"""InfiniBand ports of which a node does not report all: a faulty one is named, and one that may be is no pass."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, node
from tests.checks.network.given import mlx5, port, rails

UNREAD = {"error": "UNKNOWN", "text": ""}
NO_IDS = {"vendor": UNREAD, "device": UNREAD}


@pytest.mark.parametrize(
    "other",
    [
        {"name": "mlx5_1", "never_read": "it hangs"},
        {"name": "ibp24s0"},
        {"name": "rocep24s0f0"},
        {"name": "rail1", **NO_IDS, "ports": [port(link_layer="Ethernet")]},
        {"name": "rxe0", "ports": [port(link_layer="Ethernet")]},
    ],
    ids=lambda device: device["name"],
)
def test_a_port_that_is_down_is_named_beside_a_device_whose_vendor_is_unread(other: dict[str, Any]) -> None:
    dark = mlx5(0, port(state="1: DOWN", physical_state="2: Polling", link_downed=1))
    for devices in ([dark, other], [other, dark]):
        result = result_of("network.ib_ports", node("gpu001", boot=boot(), rdma={"devices": devices}))
        assert (result.verdict, "mlx5_0: port 1 is 1: DOWN" in result.message) == (Verdict.FAIL, True), result.message


@pytest.mark.parametrize(
    ("check", "third", "words"),
    [
        (
            "network.ib_ports",
            {"rate": "200 Gb/sec (2X NDR)"},
            "mlx5_2: port 1 at 200 Gb/sec (2X NDR); expected 400 Gb/s",
        ),
        ("network.ib_link_layer", {"link_layer": "Ethernet"}, "mlx5_2 port 1 is Ethernet; expected InfiniBand as on 3"),
    ],
)
def test_a_port_unlike_those_of_other_nodes_is_named_beside_a_device_without_a_name(
    check: str, third: dict[str, Any], words: str
) -> None:
    own = node("n0", boot=boot(), rdma=rails(third, name=UNREAD))
    result = result_of(check, own, *(node(f"n{number}", boot=boot(), rdma=rails({})) for number in (1, 2, 3)))
    assert words in result.message
    assert "name could not be read" in result.message


@pytest.mark.parametrize("check", ["network.ib_ports", "network.ib_link_layer"])
def test_a_port_of_unread_number_that_other_nodes_may_show_to_be_odd_is_no_pass(check: str) -> None:
    odd = {"port": UNREAD, "state": "1: DOWN", "physical_state": "3: Disabled", "link_layer": "Ethernet"}
    own = node("n0", boot=boot(), rdma=rails(odd))
    result = result_of(check, own, *(node(f"n{number}", boot=boot(), rdma=rails({})) for number in (1, 2, 3)))
    assert result.verdict is Verdict.INCOMPLETE, result.message
