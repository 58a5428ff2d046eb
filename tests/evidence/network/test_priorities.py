"""The kernel's netlink answer about a port's priorities: PFC, and the priority of packets with a DSCP."""

from __future__ import annotations

import errno
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network import collect_roce
from clusterproof.plugins.evidence.network.collect_roce import priorities, read_priorities
from clusterproof.plugins.evidence.network.facts_node import RocePort

NONE: dict[str, object] = {"pfc": "", "dscp": ""}
IEEE, ETS, PFC, APPS, APP = 13 | 0x8000, 1, 2, 3 | 0x8000, 1  # linux/dcbnl.h


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def answer(pfc: bytes, *entries: tuple[int, int, int]) -> bytes:
    """The attributes of one answer: ieee_pfc from its start, and entries of selector, priority and protocol."""
    apps = b"".join(attribute(APP, struct.pack("=BBH", *entry)) for entry in entries)
    nested = attribute(ETS, bytes(26)) + attribute(PFC, pfc) + attribute(APPS, apps)
    return attribute(1, b"ens1np0\0") + attribute(IEEE, nested)


OF_3 = bytes([8, 0b00001000]) + bytes(134)
BY_DEFAULT = [(5, number >> 3, number) for number in range(64)]


def test_pfc_is_a_digit_for_each_priority_and_each_dscp_has_one() -> None:
    settings = priorities(answer(OF_3, (1, 6, 0x8915), *BY_DEFAULT))  # the first is an EtherType's
    assert settings == {"pfc": "00010000", "dscp": "".join(str(number >> 3) for number in range(64))}
    assert priorities(answer(OF_3, (5, 3, 26), (5, 6, 48)))["dscp"] == f"{'-' * 26}3{'-' * 21}6{'-' * 15}"
    assert priorities(answer(OF_3)) == {"pfc": "00010000", "dscp": ""}
    assert priorities(attribute(1, b"ens1np0\0")) == NONE


@pytest.mark.parametrize("interface", ["lo", ""])
def test_an_interface_without_them_has_none(interface: str) -> None:
    assert read_priorities(Node(), interface) == NONE


def test_those_of_an_interface_in_another_network_namespace_are_unknown() -> None:
    gone = {"error": "ENODEV", "text": "priorities of net1: No such device"}
    assert read_priorities(Node(), "net1") == {"pfc": gone, "dscp": gone}


def test_another_root_is_not_asked_of_this_machine(tmp_path: Path) -> None:
    assert read_priorities(Node(str(tmp_path)), "lo") == NONE


def test_a_pod_in_the_nodes_network_namespace_asks_the_kernel_and_another_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_roce, "_ieee_answer", lambda _: answer(OF_3))
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    of_node = tmp_path / "proc/1/ns/net"
    of_node.symlink_to(Path("/proc/self/ns/net").readlink())
    assert read_priorities(Node(str(tmp_path)), "ens1np0") == {"pfc": "00010000", "dscp": ""}
    of_node.unlink()
    of_node.symlink_to("net:[1]")
    reason = {"error": "EPERM", "text": "priorities of ens1np0, in another network namespace: Operation not permitted"}
    assert read_priorities(Node(str(tmp_path)), "ens1np0") == {"pfc": reason, "dscp": reason}


def test_why_they_could_not_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> bytes:
        raise TimeoutError

    monkeypatch.setattr(collect_roce, "_ieee_answer", refused)
    reason = {"error": errno.errorcode[errno.EIO], "text": f"priorities of ens1np0: {'Input/output error'}"}
    assert read_priorities(Node(), "ens1np0") == {"pfc": reason, "dscp": reason}


def test_a_damaged_answer_is_read_as_far_as_it_goes() -> None:
    chance, whole = random.Random(7), answer(OF_3, *BY_DEFAULT)
    for _ in range(3000):
        data = bytearray(whole[: chance.randrange(len(whole) + 1)])
        for _ in range(chance.randrange(4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        settings = priorities(bytes(data))
        assert (len(str(settings["pfc"])), len(str(settings["dscp"]))) in {(0, 0), (8, 0), (0, 64), (8, 64)}


@pytest.mark.parametrize(
    ("pfc", "dscp", "trust"),
    [
        ("00010000", "".join(str(number >> 3) for number in range(64)), "DSCP"),
        ("00010000", "", "PCP"),
        ("00010000", "0" * 26 + "3" + "0" * 37, "DSCP (0-25: 0, 26: 3, 27-63: 0)"),
        ("", "", ""),
        (None, None, ""),  # an older recording
    ],
)
def test_what_a_port_trusts_is_seen_from_its_priorities(pfc: str | None, dscp: str | None, trust: str) -> None:
    assert RocePort({"pfc": pfc, "dscp": dscp}).trust == trust
