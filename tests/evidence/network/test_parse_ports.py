"""Ports and network interfaces in the output of ibstatus, ibdev2netdev and `ip -br link`."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.captures.captured import output_of
from tests.faults.captured_fault import evaluated

IBSTATUS = """\
Infiniband device '{name}' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:58a2:e103:0022:ce5c
\tbase lid:\t 0xffff
\tsm lid:\t\t 0x0
\tstate:\t\t {state}
\tphys state:\t {physical}
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t {layer}
"""
WITH_V = "0000:5e:00.0 mlx5_2 (MT4129 - MCX75310AAS) NVIDIA ConnectX-7 fw 28.39.2048 port 1 (DOWN  ) ==> ibp75s0 (Down)"
LINKS = """\
lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP>
ens32            UP             0e:c2:2f:aa:bb:cc <BROADCAST,MULTICAST,UP,LOWER_UP>
ens65            DOWN           0e:c2:2f:aa:bb:cd <NO-CARRIER,BROADCAST,MULTICAST,UP>
ens66            DOWN           0e:c2:2f:aa:bb:ce <BROADCAST,MULTICAST>
docker0          DOWN           02:42:aa:bb:cc:dd <NO-CARRIER,BROADCAST,MULTICAST,UP>
veth1a2b@if7     DOWN           02:42:aa:bb:cc:de <NO-CARRIER,BROADCAST,MULTICAST,UP>
ib0              DOWN           00:00:10:49:fe:80:00:00:00:00:00:00:58:a2:e1:03:00:2a:09:b8 <NO-CARRIER,BROADCAST,UP>
"""
LONG_LINKS = """\
$ ip addr
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: ens32: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9001 qdisc mq state UP group default qlen 1000
    link/ether 0e:c2:2f:aa:bb:cc brd ff:ff:ff:ff:ff:ff
3: ens65: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default qlen 1000
4: ens66: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN mode DEFAULT group default qlen 1000
5: docker0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN group default
6: ib0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 4092 qdisc mq state DOWN group default qlen 256
    link/infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:58:a2:e1:03:00:2a:09:b8 brd 00:ff:ff:ff:ff:12:40:1b:ff:ff
7: eth0@if8: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state LOWERLAYERDOWN group default
"""


def ibstatus(
    name: str = "mlx5_11", state: str = "4: ACTIVE", physical: str = "5: LinkUp", layer: str = "InfiniBand"
) -> str:
    return IBSTATUS.format(name=name, state=state, physical=physical, layer=layer)


def test_ibstatus_prints_what_sysfs_has() -> None:
    (device,) = output_of(ibstatus())["rdma"]["devices"]
    port = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp", "link_layer": "InfiniBand"}
    assert device == {"name": "mlx5_11", "vendor": "15b3", "ports": [port | {"rate": "400 Gb/sec (4X NDR)"}]}


def test_a_bond_of_ports_is_mellanoxs_too() -> None:
    (device,) = output_of(ibstatus("mlx5_bond_0", layer="Ethernet"))["rdma"]["devices"]
    assert device["vendor"] == "15b3"


def test_a_port_that_ibstatus_calls_down_is_said() -> None:
    text = ibstatus() + "\n" + ibstatus("mlx5_2", "1: DOWN", "2: Polling")
    expect(evaluated({"a": text})["network.ib_ports"], Verdict.FAIL, "mlx5_2: port 1 is 1: DOWN; expected 4: ACTIVE")


@pytest.mark.parametrize(
    ("states", "verdict"),
    [(("4: ACTIVE", "1: DOWN"), Verdict.FAIL), (("1: DOWN", "4: ACTIVE"), Verdict.INCOMPLETE)],  # its model is unknown
)
def test_of_two_outputs_in_one_file_the_later_says_whether_a_port_is_up(
    states: tuple[str, ...], verdict: Verdict
) -> None:
    text = "".join(f"$ ibstatus\n{ibstatus(state=state)}" for state in states)
    result = evaluated({"a": text})["network.ib_ports"]
    assert (result.verdict, "port 1 is 1: DOWN" in result.message) == (verdict, verdict is Verdict.FAIL), result.message


@pytest.mark.parametrize(("layer", "is_efa"), [("Unspecified", True), ("Ethernet", False)])
def test_an_efa_device_is_known_by_its_name_and_its_link(layer: str, is_efa: bool) -> None:
    (device,) = output_of(ibstatus("rdmap79s0", layer=layer))["rdma"]["devices"]
    assert (device.get("device") == "efa") is is_efa


@pytest.mark.parametrize(
    ("line", "port", "interface"),
    [
        ("mlx5_2 port 1 ==> ibp75s0 (Up)", {"port": 1}, {"name": "ibp75s0", "carrier": True}),
        ("mlx5_2 port 1 ==> ibp75s0 (Down)", {"port": 1}, {"name": "ibp75s0"}),
        (WITH_V, {"port": 1, "state": "1: DOWN"}, {"name": "ibp75s0"}),
        (
            WITH_V.replace("ibp75s0", "enp75s0f1np1"),
            {"port": 1, "state": "1: DOWN", "physical_state": "3: Disabled"},
            {"name": "enp75s0f1np1"},
        ),
    ],
)
def test_ibdev2netdev_shows_ports_and_whether_their_interfaces_are_up(
    line: str, port: dict[str, object], interface: dict[str, object]
) -> None:
    values = output_of(line)
    assert values["rdma"]["devices"] == [{"name": "mlx5_2", "vendor": "15b3", "ports": [port]}]
    assert values["interfaces"]["physical"] == [interface]


def test_a_port_of_which_ibdev2netdev_shows_no_state_proves_nothing() -> None:
    result = evaluated({"a": "mlx5_2 port 1 ==> ibp75s0 (Down)\n"})["network.ib_ports"]
    expect(result, Verdict.INCOMPLETE, "mlx5_2: state was not reported")


@pytest.mark.parametrize("name", ["em1", "p1p2", "rdma5"])
def test_an_interface_is_known_to_have_a_device_by_names_of_other_machines_too(name: str) -> None:
    text = LONG_LINKS.replace("ens65", name)
    result = evaluated({"a": text})["network.interfaces_up"]
    expect(result, Verdict.CONCERN, f"switched on without a link: {name}, ib0; expected a link")


@pytest.mark.parametrize("text", [LINKS, LONG_LINKS], ids=["in brief", "long"])
def test_an_interface_that_is_switched_on_and_has_no_link_is_said_and_others_are_not(text: str) -> None:
    result = evaluated({"a": text})["network.interfaces_up"]
    expect(result, Verdict.CONCERN, "switched on without a link: ens65, ib0; expected a link")
