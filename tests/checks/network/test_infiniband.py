"""InfiniBand: devices, ports, their errors and rates, and what is outside its fabric."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evidence.network.facts import Port
from clusterproof.plugins.inventory import with_expectations
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node, unreached
from tests.checks.network.given import mlx5, port, rdma, verdict, with_ports

FAIL, CONCERN, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.PASS
INCOMPLETE, NA = Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
EDR = "100 Gb/sec (4X EDR)"
UNREAD = {"error": "EIO", "text": ""}


@pytest.mark.parametrize(("expect", "says"), [(2, PASS), (1, PASS), (3, FAIL)])
def test_infiniband_devices_are_held_against_what_is_expected(expect: int, says: Verdict) -> None:
    assert verdict("network.ib_count", rdma(mlx5(0), mlx5(1)), expect={"ib": expect}).verdict is says


def test_an_rdma_device_of_software_is_none_of_the_fabric() -> None:
    soft = {**mlx5(0), "name": "rxe0", "vendor": "", "device": ""}
    assert verdict("network.ib_ports", rdma(soft)).verdict is NA
    assert verdict("network.ib_count", rdma(soft, mlx5(1)), expect={"ib": 2}).verdict is FAIL


def test_no_infiniband_device_is_no_loss_where_none_is_expected() -> None:
    assert verdict("network.ib_count", rdma(), expect={"ib": 0}).verdict is NA


def test_ib_may_be_expected_on_the_command_line() -> None:
    cluster = with_expectations(Cluster("c", "local", (Target("gpu001"),)), expect="ib=8")
    assert cluster.targets[0].expect == {"ib": 8}


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([mlx5(0, port()), mlx5(1, port(rate=EDR), device="1017")], PASS),  # another model
        ([mlx5(0, port()), mlx5(1, port(rate=EDR, link_layer="Ethernet"))], PASS),
        ([mlx5(0, port()), mlx5(1, port()), mlx5(2, port(rate=EDR, link_layer="Ethernet"))], PASS),
        ([mlx5(0, port()), mlx5(1, port(rate="200 Gb/sec (4X HDR)"))], CONCERN),  # of two, neither is the usual
        ([mlx5(0, port()), *(mlx5(n, port(rate=EDR)) for n in (1, 2, 3))], CONCERN),
        ([mlx5(0, port()), mlx5(1, port()), mlx5(2, port(rate="200 Gb/sec (4X HDR)"))], CONCERN),  # one for storage
        ([mlx5(0, port()), mlx5(1, port()), mlx5(2, port(rate="100 Gb/sec (2X HDR)"))], CONCERN),  # HDR100
        ([mlx5(0, port()), mlx5(1, port()), mlx5(2, port(rate="100 Gb/sec (1X NDR)"))], FAIL),
        ([mlx5(0, port(physical_state="3: Disabled", state="1: DOWN"))], NA),
        ([mlx5(0, port(), port(port=2, physical_state="3: Disabled", state="1: DOWN"))], PASS),
        ([mlx5(0)], FAIL),
    ],
)
def test_ports_are_held_against_their_like(devices: list[dict[str, Any]], says: Verdict) -> None:
    assert verdict("network.ib_ports", rdma(*devices)).verdict is says


def test_one_port_of_two_that_is_slower_than_on_other_nodes_is_found() -> None:
    slow = node("n0", **rdma(mlx5(0, port()), mlx5(1, port(rate=EDR))))
    others = [node(f"n{number}", **rdma(mlx5(0, port()), mlx5(1, port()))) for number in (1, 2)]
    result = result_of("network.ib_ports", slow, *others)
    assert result.verdict is FAIL, result.message
    assert "port 1 at 100 Gb/sec (4X EDR); expected 400 Gb/s, as on most nodes" in result.message
    assert result.devices == ("mlx5_1",)


def test_a_slow_port_is_found_whatever_the_link_layer_of_others_here() -> None:
    unread = port(link_layer=UNREAD)
    others = [node(f"n{number}", **rdma(mlx5(0, port()), mlx5(1, port()))) for number in (1, 2)]
    for ports in ([port(), port(rate=EDR)], [unread, port(rate=EDR)], [port(), {**unread, "rate": EDR}]):
        result = result_of("network.ib_ports", with_ports("n0", *ports), *others)
        assert result.verdict is FAIL, result.message
        assert "port 1 at 100 Gb/sec (4X EDR); expected 400 Gb/s" in result.message


@pytest.mark.parametrize(("own", "others"), [({"device": UNREAD}, {}), ({}, {"link_layer": UNREAD})])
def test_a_renumbered_port_is_no_slow_one_whatever_is_unread(own: dict[str, Any], others: dict[str, Any]) -> None:
    here = node("n0", **rdma({**mlx5(0, port(rate=EDR)), **own}, {**mlx5(1, port()), **own}))
    same = node("n1", **rdma(mlx5(0, port()), mlx5(1, port(rate=EDR))))
    partly = [node(name, **rdma(mlx5(0, port(**others)), mlx5(1, port(rate=EDR)))) for name in ("n2", "n3")]
    assert result_of("network.ib_ports", here, same, *partly).verdict is not FAIL


def four(**values: Any) -> dict[str, Any]:
    """A node with four ports, the first of which has these values."""
    return rdma(mlx5(0, port(**values)), *(mlx5(number, port()) for number in (1, 2, 3)))


OFF = {"physical_state": "3: Disabled", "state": "1: DOWN"}
SLOW = rdma(*(mlx5(number, port(rate=EDR)) for number in range(4)))


@pytest.mark.parametrize(
    ("check", "worse", "message"),
    [
        ("network.ib_ports", SLOW, "mlx5_0 port 1 differs from node to node (100 Gb/s on n0, 400 Gb/s on n1)"),
        ("network.ib_count", rdma(mlx5(0, port())), "devices differs from node to node (1 on n0, 4 on n1)"),
        ("network.ib_link_layer", four(link_layer="Ethernet"), "differs from node to node (Ethernet on n0, Infini"),
        ("network.ib_ports", four(**OFF), "mlx5_0 port 1 differs from node to node (Disabled on n0, ACTIVE on n1)"),
    ],
    ids=["rate", "number", "link layer", "switched off"],
)
def test_the_lesser_of_two_nodes_is_a_concern(check: str, worse: dict[str, Any], message: str) -> None:
    own, other = node("n0", **worse), node("n1", **four())
    result = result_of(check, own, other)
    assert (result.verdict, message in result.message) == (CONCERN, True), result.message
    assert result_of(check, other, own).verdict is PASS


@pytest.mark.parametrize(
    ("own", "elsewhere", "verdict", "message"),
    [
        ("Ethernet", {}, CONCERN, "mlx5_0 port 1 Disabled; expected ACTIVE as on 2 of 3 nodes"),
        ("Ethernet", OFF, PASS, ""),
        ("InfiniBand", OFF, PASS, ""),
        (None, OFF, INCOMPLETE, "link_layer was not reported"),
    ],
)
def test_a_disabled_port_is_compared_whatever_its_link_layer(
    own: str | None, elsewhere: dict[str, Any], verdict: Verdict, message: str
) -> None:
    rails = port(link_layer="Ethernet"), port(link_layer="Ethernet")
    others = [with_ports(f"n{at}", port(link_layer="Ethernet", **elsewhere), *rails) for at in (1, 2)]
    result = result_of("network.ib_ports", with_ports("n0", port(link_layer=own, **OFF), *rails), *others)
    expect(result, verdict, message)
    assert ("Disabled" in result.message) is (not elsewhere)


@pytest.mark.parametrize(
    ("lost", "layer", "others", "verdict"),
    [
        (1, "Ethernet", [], CONCERN),
        (1, "Ethernet", [unreached("n1")], CONCERN),
        (0, "Ethernet", [], PASS),
        (None, "Ethernet", [], PASS),
        (1, "InfiniBand", [], PASS),
    ],
)
def test_a_rail_of_ethernet_that_lost_its_link_is_a_concern_of_a_lone_node(
    lost: int | None, layer: str, others: list[NodeEvidence], verdict: Verdict
) -> None:
    dark, rail = port(link_layer=layer, link_downed=lost, **OFF), port(link_layer=layer)
    result = result_of("network.ib_ports", with_ports("n0", dark, *[rail] * 7), *others)
    message = "port 1 is 3: Disabled and lost its link 1 times; expected 4: ACTIVE, like 7 ports of its model here"
    expect(result, verdict, message if verdict is CONCERN else "")


def test_rails_of_ethernet_that_are_disabled_on_every_node_are_meant_to_be() -> None:
    ports = port(link_layer="Ethernet", link_downed=1, **OFF), port(link_layer="Ethernet")
    assert result_of("network.ib_ports", with_ports("n0", *ports), with_ports("n1", *ports)).verdict is PASS


def test_a_port_that_some_nodes_lack_is_compared_with_the_others() -> None:
    nodes = (with_ports("n0", port(rate=EDR)), with_ports("n1", port()), node("n2", **rdma(mlx5(1, port()))))
    message = "mlx5_0 port 1 differs from node to node (100 Gb/s on n0, 400 Gb/s on n1)"
    expect(result_of("network.ib_ports", *nodes), CONCERN, message)


def test_ports_that_are_slower_on_every_node_are_meant_to_be() -> None:
    ports = [port(), port(), port(rate=EDR), port(rate=EDR)]
    nodes = [node(f"n{number}", **rdma(*map(mlx5, range(4), ports))) for number in range(3)]
    assert result_of("network.ib_ports", *nodes).verdict is PASS


RAILS, STORAGE = [port()] * 8, [port(rate="200 Gb/sec (4X HDR)")] * 2


@pytest.mark.parametrize(
    "others",
    [[], [unreached("n1")], [node("n1"), node("n2")], [with_ports("n1", *RAILS), with_ports("n2", *RAILS)]],
    ids=["a lone node", "an unreached one", "others without their ports", "others without such ports"],
)
def test_ports_at_a_lower_rate_that_no_other_node_reports_may_be_those_of_another_network(
    others: list[NodeEvidence],
) -> None:
    result = result_of("network.ib_ports", with_ports("n0", *RAILS, *STORAGE), *others)
    expect(result, CONCERN, "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s, like 8 ports of its model here")
    assert result.devices == ("mlx5_8", "mlx5_9")


HDR, ONE_LANE = port(rate="200 Gb/sec (4X HDR)"), port(rate="100 Gb/sec (1X NDR)")
RENUMBERED = [HDR, *RAILS]


@pytest.mark.parametrize(
    ("own", "others", "verdict", "message"),
    [
        ([*RAILS, HDR], [RENUMBERED], CONCERN, "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s, like 8 ports of its"),
        ([*RAILS, HDR], [[*RAILS, port(rate=EDR)]], CONCERN, "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s, like"),
        ([*RAILS, port(rate=EDR)], [[*RAILS, HDR]], CONCERN, "mlx5_8 port 1 differs from node to node (100 Gb/s on n0"),
        ([*RAILS, ONE_LANE], [[*RAILS, HDR]], FAIL, "port 1 at 100 Gb/sec (1X NDR); expected 400 Gb/s"),
        (RENUMBERED, [[*RAILS, HDR]] * 2, CONCERN, "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s, like 8 ports of"),
        ([HDR, *RAILS[1:], HDR], [[*RAILS, HDR]] * 2, FAIL, "port 1 at 200 Gb/sec (4X HDR); expected 400 Gb/s, as on"),
        ([*RAILS, HDR], [RENUMBERED, [*RAILS, HDR]], PASS, ""),
    ],
    ids=["two numberings", "faster", "slower", "one lane", "renumbered", "a slow rail", "one renumbered elsewhere"],
)
def test_a_port_fails_for_its_rate_where_most_nodes_have_it_faster_and_not_for_its_number(
    own: list[Any], others: list[list[Any]], verdict: Verdict, message: str
) -> None:
    result = result_of("network.ib_ports", *(with_ports(f"n{at}", *ports) for at, ports in enumerate([own, *others])))
    expect(result, verdict, message)


POLLING = {"state": "1: DOWN", "physical_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}


def with_a_second_port(name: str, **second: Any) -> NodeEvidence:
    """A node of eight devices with one port, and one with a second port of this kind."""
    return node(name, **rdma(*(mlx5(at, port()) for at in range(8)), mlx5(8, port(), port(port=2, **second))))


def test_a_port_that_no_node_of_a_group_has_a_cable_in_is_no_fault_of_each() -> None:
    result = result_of("network.ib_ports", *(with_a_second_port(f"n{number}", **POLLING) for number in range(8)))
    expect(result, CONCERN, "no link of port 2 (Polling), here and on all nodes that report it, and it never lost")
    assert "expected 4: ACTIVE, or 3: Disabled for ports without a cable" in result.message
    assert result.message.count("port 2") == 1


def test_the_planes_of_a_card_that_are_not_wired_are_said_once() -> None:
    ports = [port(port=at, **({} if at % 3 == 0 else POLLING)) for at in range(1, 13)]
    hosts = [node(f"n{number}", **rdma(*(mlx5(at, *ports, device="1023") for at in range(4)))) for number in range(4)]
    result = result_of("network.ib_ports", *hosts)
    expect(
        result, CONCERN, "no link of port 1, port 2, port 4, port 5, port 7, port 8, port 10, port 11 (Polling), here"
    )
    assert len(result.findings) == 1


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (POLLING, [{}, {}]),  # active elsewhere
        ({**POLLING, "link_downed": 1}, [{**POLLING, "link_downed": 1}] * 2),  # it had a link: the switch is down
        (POLLING, [{**POLLING, "link_downed": 1}] * 2),
        ({**POLLING, "link_downed": 1}, []),
        ({**POLLING, "physical_state": "4: PortConfigurationTraining"}, [POLLING] * 2),
    ],
    ids=["active elsewhere", "lost everywhere", "lost elsewhere", "alone", "training"],
)
def test_a_port_that_is_down_is_a_fault_of_a_node_that_differs(own: Any, others: list[Any]) -> None:
    hosts = [with_a_second_port(f"n{number}", **second) for number, second in enumerate([own, *others])]
    expect(result_of("network.ib_ports", *hosts), FAIL, "port 2 is 1: DOWN; expected 4: ACTIVE")


@pytest.mark.parametrize("others", [[], [unreached("n1")], [with_ports("n1", *RAILS), with_ports("n2", *RAILS)]])
def test_where_no_other_node_reports_a_port_nobody_knows_whether_it_should_have_a_link(
    others: list[NodeEvidence],
) -> None:
    result = result_of("network.ib_ports", with_a_second_port("n0", **{**POLLING, "link_downed": 0}), *others)
    expect(result, CONCERN, "no link of port 2 (Polling) beside active ports, and it never lost one; expected 4: ACT")


def test_nodes_without_any_active_port_fail_though_they_are_alike() -> None:
    hosts = [node(f"n{number}", **rdma(mlx5(0, port(**POLLING)))) for number in range(4)]
    expect(result_of("network.ib_ports", *hosts), FAIL, "port 1 is 1: DOWN; expected 4: ACTIVE")


@pytest.mark.parametrize(
    ("rate", "gbps"),
    [("400 Gb/sec (4X NDR)", 400.0), ("2.5 Gb/sec (1X SDR)", 2.5), ("fast", None), ("", None), ("٤ Gb/sec", None)],
)
def test_a_ports_rate_is_the_number_before_its_unit(rate: str, gbps: float | None) -> None:
    if gbps is None:
        with pytest.raises(Incomplete, match="not a number"):
            assert Port(port(rate=rate)).gbps
    else:
        assert Port(port(rate=rate)).gbps == gbps
