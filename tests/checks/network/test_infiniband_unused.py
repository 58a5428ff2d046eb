"""RDMA ports that nobody uses: without an address, or of a driver that reports no state."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node
from tests.checks.network.given import mlx5, port, rdma, with_ports

FAIL, CONCERN, PASS, NA = Verdict.FAIL, Verdict.CONCERN, Verdict.PASS, Verdict.NOT_APPLICABLE
UNREAD = {"error": "EINVAL", "text": ""}
IWARP = {"link_layer": "Ethernet", "state": "2: INIT", "physical_state": "4: PortConfigurationTraining"}
MANA = {"link_layer": "Ethernet", "state": "0: NOP", "physical_state": "0: <unknown>", "rate": UNREAD}


@pytest.mark.parametrize(
    "own",
    [IWARP, {**IWARP, "physical_state": UNREAD}, MANA],
    ids=["iWARP", "as ibv_devinfo shows it", "Microsoft's MANA"],
)
def test_a_port_without_an_address_or_whose_driver_reports_no_state_is_no_fault(own: dict[str, Any]) -> None:
    bare = port(**own)
    expect(result_of("network.ib_ports", with_ports("n0", bare, port()), with_ports("n1", bare, port())), PASS, "")
    alone = result_of("network.ib_ports", with_ports("n0", bare))
    expect(alone, NA, "every port is disabled, of Ethernet without a link or address, or reports no state")


def test_a_port_that_may_be_without_an_address_is_no_fault() -> None:
    assert result_of("network.ib_ports", with_ports("n0", port(**{**IWARP, "link_layer": UNREAD}))).verdict is not FAIL


def test_a_port_that_has_an_address_on_most_nodes_and_none_here_is_a_concern() -> None:
    others = [with_ports(f"n{number}", port(link_layer="Ethernet")) for number in (1, 2)]
    result = result_of("network.ib_ports", with_ports("n0", port(**IWARP)), *others)
    expect(result, CONCERN, "mlx5_0 port 1 INIT; expected ACTIVE as on 2 of 3 nodes")


def test_a_port_that_no_subnet_manager_has_made_active_is_a_fault() -> None:
    expect(
        result_of("network.ib_ports", with_ports("n0", port(state="2: INIT"))), FAIL, "port 1 is 2: INIT; expected 4"
    )


@pytest.mark.parametrize(
    ("model", "beside", "verdict"),
    [
        ("101c", port(), PASS),  # a ConnectX-6's virtual function
        ("101b", port(), FAIL),  # a ConnectX-6
        ("101c", port(state="1: DOWN", physical_state="2: Polling"), FAIL),
    ],
)
def test_a_virtual_function_that_nothing_has_switched_on_is_no_fault(
    model: str, beside: dict[str, Any], verdict: Verdict
) -> None:
    host = node("n0", **rdma(mlx5(0, beside), mlx5(1, port(state="1: DOWN"), device=model)))
    assert result_of("network.ib_ports", host).verdict is verdict


def test_a_virtual_function_that_is_all_a_machine_has_must_be_up() -> None:
    guest = node("n0", **rdma(mlx5(0, port(state="1: DOWN"), device="101c"), mlx5(1, port(), device="101c")))
    expect(result_of("network.ib_ports", guest), FAIL, "mlx5_0: port 1 is 1: DOWN; expected 4: ACTIVE")


@pytest.mark.parametrize(
    ("name", "rate", "verdict"),
    [
        ("smi1", "200 Gb/sec (1X XDR)", PASS),  # as rdma-dev(8) names it
        ("smi-mlx5_0", "200 Gb/sec (1X XDR)", PASS),
        ("mlx5_3", "200 Gb/sec (1X XDR)", FAIL),
    ],
)
def test_a_plane_of_a_port_is_not_expected_to_be_as_fast_as_the_whole_port(
    name: str, rate: str, verdict: Verdict
) -> None:
    whole = [mlx5(number, port(rate="800 Gb/sec (4X XDR)"), device="1023") for number in range(3)]
    planes = {**mlx5(3, *(port(port=number, rate=rate) for number in (1, 2)), device="1023"), "name": name}
    assert result_of("network.ib_ports", node("n0", **rdma(*whole, planes))).verdict is verdict


def test_a_plane_that_is_down_is_a_fault() -> None:
    whole = mlx5(0, port(rate="800 Gb/sec (4X XDR)"), device="1023")
    planes = {**mlx5(1, port(), port(port=2, state="1: DOWN"), device="1023"), "name": "smi0"}
    result = result_of("network.ib_ports", node("n0", **rdma(whole, planes)))
    expect(result, FAIL, "smi0: port 2 is 1: DOWN; expected 4: ACTIVE")
