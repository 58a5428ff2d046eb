"""Interface priorities printed by mlnx_qos and dcb, in the same format as the kernel's answer."""

from __future__ import annotations

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.network.collect_roce import DSCPS
from tests.builders.evaluated import expect
from tests.captures.captured import output_of
from tests.faults.captured_fault import evaluated

UNKNOWN = {"error": "UNCOLLECTED", "text": "in another output"}
MLNX_QOS = """\
$ sudo mlnx_qos -i {interface}
DCBX mode: OS controlled
Priority trust state: {trust}
Receive buffer size (bytes): 20016,156096,0,0,0,0,0,0,total_size=262016
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     {enabled}
\tbuffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  0
"""
BY_DSCP = "dscp\ndscp2prio mapping:\n" + "\n".join(
    f"\tprio:{priority} dscp:{','.join(f'{8 * priority + low:02}' for low in reversed(range(8)))},"
    for priority in range(8)
)
USUAL = "".join(str(dscp >> 3) for dscp in DSCPS)
DCB_PFC = "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n"
LOSSLESS = "0   0   0   1   0   0   0   0   "


def mlnx_qos(interface: str = "eth1", trust: str = BY_DSCP, enabled: str = LOSSLESS) -> str:
    return MLNX_QOS.format(interface=interface, trust=trust, enabled=enabled)


@pytest.mark.parametrize(
    ("text", "pfc", "dscp"),
    [
        (mlnx_qos(), "00010000", USUAL),
        (mlnx_qos(trust="pcp", enabled="0   " * 8), "00000000", ""),
        (
            mlnx_qos(trust="dscp\ndscp2prio mapping:\n\tprio:0 dscp:07,00,\n\tprio:5 dscp:59,"),
            "00010000",
            "0------0" + "-" * 51 + "5----",
        ),
        (mlnx_qos(trust="dscp\ndscp2prio mapping:"), "00010000", {"error": "NOT_UNDERSTOOD", "text": "trust dscp"}),
        (f"$ dcb pfc show dev eth1\npfc-cap 8 macsec-bypass off delay 0\n{DCB_PFC}", "00010000", UNKNOWN),
        (f"$ dcb -s pfc show dev eth1\npfc-cap 8 {DCB_PFC[:-1]} delay 0\n", "00010000", UNKNOWN),
        ("$ dcb app show dev eth1\ndefault-prio 0\ndscp-prio 0:0 AF31:3 EF:5 63:7\n", UNKNOWN,
         "0" + "-" * 25 + "3" + "-" * 19 + "5" + "-" * 16 + "7"),
        ("$ dcb app show dev eth1\ndefault-prio 0\n", UNKNOWN, ""),
        ("$ dcb app show dev eth1\ndscp-prio gold:3\n", UNKNOWN, {"error": "NOT_UNDERSTOOD", "text": "gold"}),
    ],
)  # fmt: skip
def test_priorities_of_an_interface(text: str, pfc: object, dscp: object) -> None:
    (port,) = output_of(text)["roce"]["ports"]
    assert port == {"name": "eth1", "device": "eth1", "pfc": pfc, "dscp": dscp}


def test_what_two_outputs_say_of_an_interface_is_one_port() -> None:
    (port,) = output_of(f"$ dcb pfc show dev eth1\n{DCB_PFC}$ dcb app show dev eth1\ndscp-prio AF31:3\n")["roce"][
        "ports"
    ]
    assert (port["pfc"], port["dscp"][26]) == ("00010000", "3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (mlnx_qos("$i"), "does not say of which interface; expected its command above it, with one -i eth1"),
        (mlnx_qos("eth1; mlnx_qos -i eth2"), "does not say of which interface"),
        (mlnx_qos().partition("PFC")[0], "has no line on PFC; expected 8 priorities"),
        (mlnx_qos(enabled="0   0   0   1   "), "has no line on PFC; expected 8 priorities"),
        ("$ dcb pfc show dev eth1\nprio-pfc 3:on\n", "has no line on PFC; expected 8 priorities"),
        (f"$ dcb pfc show\n{DCB_PFC}", "does not say of which interface; expected its command above it, with one dev"),
    ],
)
def test_an_output_that_does_not_say_enough_is_refused(text: str, message: str) -> None:
    values, (problem,) = read_text(text)
    assert "roce" not in values
    assert message in problem


def test_a_port_that_is_set_unlike_the_others_of_a_capture_is_named_and_perhaps_of_another_card() -> None:
    odd = mlnx_qos("eth3", trust="pcp", enabled="0   " * 8)
    message = evaluated({"qos.txt": mlnx_qos("eth1") + mlnx_qos("eth2") + odd})["network.roce_settings"].message
    for seen in ("PFC of eth3 is 00000000; expected 00010000", "trust of eth3 is PCP; expected DSCP"):
        assert f"concern: {seen}, like 2 of 3 such ports, unless it is another card" in message


def test_alike_ports_of_a_capture_are_no_proof_of_what_it_has_not() -> None:
    result = evaluated({"qos.txt": mlnx_qos("eth1") + mlnx_qos("eth2")})["network.roce_settings"]
    expect(result, Verdict.INCOMPLETE, "traffic_class was not reported")
    assert "concern" not in result.message
