"""The check of RoCE's settings on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node
from tests.checks.network.given import mlx5, rdma
from tests.checks.network.given import port as infiniband_port
from tests.checks.network.given import roce_host as host
from tests.checks.network.given import roce_port as port

PASS, CONCERN, NA, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.INCOMPLETE
CHECK = "network.roce_settings"


def test_a_node_of_an_earlier_version_that_did_not_read_pfc_is_compared_without_it() -> None:
    unread = {"pfc": None, "dscp": None}
    others = [host(port(0), port(1), name=f"gpu00{number}") for number in (2, 3, 4)]
    result = result_of(CHECK, host(port(0, **unread), port(1, **unread)), *others)
    assert result.verdict is PASS, result.message
    expect(
        result_of(CHECK, host(port(0), port(1), port(2, **unread, reacts="0" * 8))), CONCERN, "ECN reaction of mlx5_2"
    )


GONE = {"error": "ENODEV", "text": "priorities of net1: No such device"}
OF_A_POD = {"pfc": GONE, "dscp": GONE, "notifies": "", "reacts": "", "gids": []}


@pytest.mark.parametrize("here", [3, 0])
def test_a_port_whose_interface_a_pod_has_is_unread_and_unlike_none(here: int) -> None:
    ports = [*(port(number) for number in range(here)), port(3, **OF_A_POD), port(4, **OF_A_POD)]
    others = [host(*(port(number) for number in range(5)), name=f"n{at}") for at in range(3)]
    for result in (result_of(CHECK, host(*ports)), result_of(CHECK, host(*ports), *others)):
        expect(result, INCOMPLETE, "no interface of mlx5_3 port 1, mlx5_4 port 1 in the node's network namespace, as")
    assert result_of(CHECK, others[0], host(*ports), *others[1:]).verdict is PASS


STORAGE = {"model": "15b3:101d", "rate": "100 Gb/sec (4X EDR)", "reacts": "0" * 8, "gids": []}


@pytest.mark.parametrize(
    ("ports", "verdict", "message"),
    [
        ([port(number) for number in range(8)], PASS, ""),
        ([*(port(number) for number in range(8)), port(8, **STORAGE)], PASS, ""),  # another card for another purpose
        ([*(port(number) for number in range(8)), port(8, state="1: DOWN", gids=[])], PASS, ""),
        ([port(0), port(1, traffic_class="0")], PASS, ""),  # either of the two may be right
        ([port(0), port(1), port(2, traffic_class="")], CONCERN, "traffic class of mlx5_2 port 1 is not set; expected"),
        ([port(0), port(1), port(2, gids=[])], CONCERN, "RoCE v2 GID index of mlx5_2 port 1 is none; expected 3, like"),
        ([port(0), port(1), port(2, pfc="0" * 8)], CONCERN, "PFC of mlx5_2 port 1 is 00000000; expected 00010000"),
        ([port(0), port(1), port(2, dscp="")], CONCERN, "trust of mlx5_2 port 1 is PCP; expected DSCP, like 2 of 3"),
        ([port(0), port(1), port(2, pfc={"error": "EIO"})], INCOMPLETE, "pfc could not be read (EIO)"),
        ([port(0), port(1), port(2, gids=None)], INCOMPLETE, "gids was not reported"),
        ([], NA, "no active RoCE port on this node"),
    ],
)  # fmt: skip
def test_active_ports_of_one_kind_are_alike(ports: list[dict[str, Any]], verdict: Verdict, message: str) -> None:
    expect(result_of(CHECK, host(*ports)), verdict, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"pfc": "00000001"},
            "have priority 3, by traffic class 106, and PFC is 00000001; expected PFC for priority 3",
        ),
        ({"traffic_class": "Global tclass=184"}, "have priority 5, by traffic class Global tclass=184, and PFC is"),
        ({"pfc": "0" * 8, "reacts": "11101111"}, "PFC is 00000000, without ECN reaction; expected PFC, or ECN on both"),
        ({"pfc": "0" * 8, "reacts": "0" * 8, "notifies": "0" * 8}, "without ECN notification and reaction; expected"),
        ({"pfc": "0" * 8}, ""),  # lossy, with congestion control
        ({"pfc": "0" * 8, "reacts": "", "notifies": ""}, ""),  # its driver does not show it
        ({"pfc": "00000001", "traffic_class": "0"}, ""),  # programs choose it
        ({"pfc": "00000001", "traffic_class": ""}, ""),
        ({"pfc": "00000001", "dscp": ""}, ""),  # VLAN tags decide
        ({"pfc": "00000001", "dscp": "-" * 64}, ""),
        ({"pfc": ""}, ""),
        ({"traffic_class": "999"}, ""),
    ],
)
def test_what_all_ports_of_all_nodes_have_is_judged_by_itself(settings: dict[str, Any], message: str) -> None:
    nodes = [host(*(port(number, **settings) for number in range(4)), name=f"gpu00{n}") for n in range(4)]
    result = result_of(CHECK, *nodes)
    start = "mlx5_0 port 1, mlx5_1 port 1, mlx5_2 port 1, mlx5_3 port 1: RoCE packets "
    expect(result, CONCERN if message else PASS, message)
    assert result.message.startswith(start if message else "")


def for_jobs(*assigned: tuple[str, str], conditional: bool = False) -> dict[str, Any]:
    """/etc/nccl.conf with these variables."""
    return {
        "variables": [
            {"name": name, "value": value, "file": "/etc/nccl.conf", "line": line, "conditional": conditional}
            for line, (name, value) in enumerate(assigned, 1)
        ],
        "unread": {},
    }


OF_3 = {"traffic_class": "0", "pfc": "00010000"}


@pytest.mark.parametrize(
    ("settings", "assigned", "message"),
    [
        (OF_3, [("NCCL_IB_TC", "106")], ""),
        (OF_3, [("NCCL_IB_TC", "184")], "have priority 5, by NCCL_IB_TC=184 (/etc/nccl.conf line 1), and PFC is 000"),
        (OF_3, [("NCCL_IB_TC", "0xb8")], "have priority 5, by NCCL_IB_TC=0xb8 (/etc/nccl.conf line 1), and PFC is"),
        ({**OF_3, "traffic_class": "Global tclass=106"}, [("NCCL_IB_TC", "184")], ""),  # which the port replaces
        (OF_3, [("NCCL_IB_TC", "184"), ("NCCL_IB_TC", "106")], ""),  # the last line counts
        (OF_3, [("NCCL_IB_TC", "3")], ""),  # DSCP 0, as without it
        ({**OF_3, "dscp": ""}, [("NCCL_IB_TC", "184")], ""),  # VLAN tags decide
        ({}, [("NCCL_IB_GID_INDEX", "3")], ""),
        ({}, [("NCCL_IB_GID_INDEX", "-1")], ""),
        (
            {},
            [("NCCL_IB_GID_INDEX", "5")],
            "NCCL_IB_GID_INDEX=5 (/etc/nccl.conf line 1) is the index of no RoCE v2 address of mlx5_0 port 1, mlx5_1 ",
        ),
        ({"gids": []}, [("NCCL_IB_GID_INDEX", "5")], "none of 4 ports ("),
    ],
)
def test_what_files_set_for_jobs_must_suit_the_ports(
    settings: dict[str, Any], assigned: list[tuple[str, str]], message: str
) -> None:
    ports = [port(number, **settings) for number in range(4)]
    storage = port(8, **{**STORAGE, "pfc": "00000001"}, traffic_class="0")
    here = node("gpu001", boot=boot(), roce={"ports": [*ports, storage]}, environment=for_jobs(*assigned))
    result = result_of(CHECK, here)
    expect(result, CONCERN if message else PASS, message)
    assert "mlx5_8" not in result.message
    sometimes = for_jobs(*assigned, conditional=True)
    here = node("gpu001", boot=boot(), roce={"ports": [*ports, storage]}, environment=sometimes)
    assert "NCCL" not in result_of(CHECK, here).message.replace("so that NCCL starts", "")


@pytest.mark.parametrize(("chosen", "named"), [("mlx5_0,mlx5_1", False), ("^mlx5_0,mlx5_1", True), ("mlx5", True)])
def test_only_ports_that_jobs_are_told_to_use_must_suit_their_variables(chosen: str, named: bool) -> None:
    ports = [*(port(number) for number in (0, 1)), port(2, gids=[{"index": 7, "type": "RoCE v2", "kind": "ipv4"}])]
    variables = for_jobs(("NCCL_IB_HCA", chosen), ("NCCL_IB_GID_INDEX", "3"))
    result = result_of(CHECK, node("gpu001", boot=boot(), roce={"ports": ports}, environment=variables))
    seen = "NCCL_IB_GID_INDEX=3 (/etc/nccl.conf line 2) is the index of no RoCE v2 address of mlx5_2 port 1; expected 7"
    assert (seen in result.message) is named, result.message


def test_a_node_is_compared_with_the_others() -> None:
    others = [host(port(0), port(1), name=f"gpu00{number}") for number in (2, 3, 4)]
    own = host(port(0, reacts="0" * 8), port(1, reacts="0" * 8))
    result = result_of(CHECK, own, *others)
    expect(result, CONCERN, "ECN reaction of mlx5_0 port 1 00000000")
    assert "expected 11111111 as on 3 of 4 nodes" in result.message


def test_a_port_that_differs_here_is_not_named_a_second_time_for_other_nodes() -> None:
    others = [host(port(0), port(1), port(2), name=f"gpu00{number}") for number in (2, 3, 4)]
    result = result_of(CHECK, host(port(0), port(1), port(2, traffic_class="0")), *others)
    assert result.message == "traffic class of mlx5_2 port 1 is 0; expected 106, like 2 of 3 such ports"


def of_two_purposes(name: str, **storage: Any) -> NodeEvidence:
    """A node with eight rails, and two ports of the same card and speed for storage."""
    off = {"traffic_class": "0", "reacts": "0" * 8, "notifies": "0" * 8}
    return host(*(port(at) for at in range(8)), *(port(at, **{**off, **storage}) for at in (8, 9)), name=name)


def test_ports_of_storage_are_set_as_on_most_nodes() -> None:
    assert result_of(CHECK, *(of_two_purposes(f"gpu00{number}") for number in range(8))).verdict is PASS
    vlan = [{"index": 5, "type": "RoCE v2", "kind": "ipv4"}]
    assert result_of(CHECK, *(of_two_purposes(f"gpu00{number}", gids=vlan) for number in range(8))).verdict is PASS
    expect(
        result_of(CHECK, of_two_purposes("gpu001")),
        CONCERN,
        "traffic class of mlx5_8 port 1 is 0; expected 106, like 8 of",
    )


def test_a_rail_that_differs_from_its_like_on_one_node_alone_is_still_named() -> None:
    odd = host(*(port(at, **({"traffic_class": "0"} if at == 3 else {})) for at in range(8)), name="gpu001")
    others = [host(*(port(at) for at in range(8)), name=f"gpu00{number}") for number in range(2, 6)]
    expect(
        result_of(CHECK, odd, *others),
        CONCERN,
        "traffic class of mlx5_3 port 1 is 0; expected 106, like 7 of 8 such ports",
    )


LINK_LOCAL = [{"index": 1, "type": "RoCE v2", "kind": "link"}]


@pytest.mark.parametrize("gids", [[], LINK_LOCAL, [{"index": 3, "type": "IB/RoCE v1", "kind": "ipv4"}]])
def test_rails_without_any_routable_address_are_said_though_all_nodes_are_alike(gids: list[Any]) -> None:
    nodes = [
        host(
            *(port(at, gids=gids) for at in range(8)), port(8, **{**STORAGE, "gids": port(0)["gids"]}), name=f"gpu00{n}"
        )
        for n in range(4)
    ]
    message = "none of 8 ports (mlx5_0 port 1, mlx5_1 port 1, "
    expect(result_of(CHECK, *nodes), CONCERN, message)
    expect(result_of(CHECK, nodes[0]), CONCERN, message)
    assert "expected an address on each rail, so that NCCL starts" in result_of(CHECK, nodes[0]).message


def test_a_node_that_alone_has_no_address_is_named_once() -> None:
    bare = host(port(0, gids=[]), port(1, gids=[]))
    result = result_of(CHECK, bare, *(host(port(0), port(1), name=f"gpu00{number}") for number in (2, 3, 4)))
    expect(result, CONCERN, "none of 2 ports (mlx5_0 port 1, mlx5_1 port 1) has a routable RoCE v2 GID")
    assert "RoCE v2 GID index" not in result.message


def test_ethernet_beside_active_infiniband_needs_no_address() -> None:
    rails = rdma(*(mlx5(at, infiniband_port()) for at in range(8)))
    roce = {"ports": [port(8, gids=[])]}
    assert result_of(CHECK, node("gpu001", **{**rails, "boot": boot()}, roce=roce)).verdict is PASS


def without_addresses(name: str, **more: Any) -> NodeEvidence:
    """A node whose two ports have no address."""
    return node(name, boot=boot(), roce={"ports": [port(0, gids=[]), port(1, gids=[])]}, **more)


def test_beside_efa_nccl_needs_no_address_of_roce() -> None:
    efa = rdma({**mlx5(9), "name": "rdmap79s0", "vendor": "1d0f", "device": "efa2"})["rdma"]
    assert result_of(CHECK, without_addresses("gpu001", rdma=efa)).verdict is PASS


def test_where_virtual_functions_carry_the_addresses_on_all_nodes_alike_the_host_needs_none() -> None:
    virtual = {"address": "0000:5c:00.1", "vendor": "15b3", "device": "101e", "class": "020000"}
    pci = {"devices": [{**virtual, "driver": "vfio-pci", "function_of": "0000:5c:00.0"}]}
    nodes = [without_addresses(f"gpu00{number}", pci=pci) for number in range(4)]
    assert result_of(CHECK, *nodes).verdict is PASS
    message = "none of 2 ports (mlx5_0 port 1, mlx5_1 port 1) has a routable RoCE v2 GID"
    expect(result_of(CHECK, nodes[0]), CONCERN, message)  # alone
    expect(result_of(CHECK, *nodes, without_addresses("gpu009")), CONCERN, message)
    expect(result_of(CHECK, nodes[0], *(host(port(0), port(1), name=f"n{at}") for at in range(3))), CONCERN, message)


def test_ports_of_unread_number_are_compared_with_no_other_node_and_no_pass() -> None:
    unread = {"error": "EIO", "text": ""}
    others = (host(port(0), port(1), name=f"n{at}") for at in range(3))
    expect(result_of(CHECK, host(port(0, port=unread), port(1)), *others), Verdict.INCOMPLETE, "port could not be read")
