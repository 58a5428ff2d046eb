"""EFA devices compared with those attached (inventory, PCI bus and group), and rates with the driver's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.recording import read_cluster, write_cluster
from clusterproof.plugins.inventory.ec2 import efa_attached
from tests.builders.evaluated import result_of
from tests.checks.network.efa import device, evaluated, evidence, group, output_of

FAIL, CONCERN, NA, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.PASS
INCOMPLETE = Verdict.INCOMPLETE
P5 = "p5.48xlarge"
COUNT, RATE = "network.efa_count", "network.efa_rate"
OTHERS = ("network.efa_modules", "network.libfabric_efa", "network.memlock", "gpu.peermem")


@pytest.mark.parametrize("check", [COUNT, *OTHERS])
def test_efa_that_was_never_attached_is_not_broken(check: str) -> None:
    assert evaluated(check, evidence("n0", "g5.16xlarge", 0)).verdict is NA


@pytest.mark.parametrize(
    ("instance_type", "counts", "says", "message"),
    [
        ("p5.48xlarge", (32,), PASS, ""),
        ("p5.48xlarge", (31,), CONCERN, "31 EFA devices attached; expected 32, as many as a p5.48xlarge can have"),
        ("p5.48xlarge", (0,), CONCERN, "0 EFA devices attached; expected 32"),
        ("p5.48xlarge", (31, 32, 32, 32), FAIL, "31 EFA devices, 31 on the PCI bus; expected 32 as on most nodes"),
        ("p5.48xlarge", (0, 32, 32, 32), FAIL, "0 EFA devices, 0 on the PCI bus; expected 32 as on most nodes"),
        ("p5.48xlarge", (31, 32), CONCERN, "expected 32, as many as a p5.48xlarge can have"),
        ("p5.48xlarge", (16, 16, 16, 16), PASS, ""),  # no more were attached
        ("p5.48xlarge", (16, 16, 16, 32), CONCERN, "16 EFA devices attached; expected 32"),
        ("p5.48xlarge", (32, 31, 31, 31), PASS, ""),
        ("g5.16xlarge", (1,), PASS, ""),
        ("g5.16xlarge", (0, 0, 0), NA, "no EFA device is attached to this g5.16xlarge"),
        ("g5.16xlarge", (0, 1, 1, 1), FAIL, "0 EFA devices, 0 on the PCI bus; expected 1 as on most nodes"),
        ("g5.16xlarge", (0, 1), CONCERN, "0 EFA devices attached; expected 1"),
        ("trn1.32xlarge", (0,), CONCERN, "0 EFA devices attached; expected 8"),
        ("c6i.32xlarge", (0, 0, 0), NA, "no EFA device is attached"),
        ("p9.48xlarge", (8,), INCOMPLETE, "'p9.48xlarge' is not in the catalogue; give"),
        ("p5en.49xlarge", (8,), INCOMPLETE, "not in the catalogue (did you mean p5en.48xlarge?); give"),
        ("p9.48xlarge", (8, 8, 8), PASS, ""),
        ("p9.48xlarge", (7, 8, 8), FAIL, "expected 8 as on most nodes"),
    ],
)
def test_efa_devices_are_held_against_those_of_the_group(
    instance_type: str, counts: tuple[int, ...], says: Verdict, message: str
) -> None:
    result = evaluated(COUNT, *group(instance_type, *counts))
    assert result.verdict is says, result.message
    assert message in result.message


def test_a_device_that_the_bus_lists_without_a_driver_is_missing() -> None:
    result = evaluated(COUNT, evidence("n0", "g5.16xlarge", 0, bus=1))
    assert result.verdict is FAIL
    assert result.message == "0 EFA devices, 1 on the PCI bus; expected 1"


@pytest.mark.parametrize("unread", [("vendor",), ("device",), ("vendor", "device")])
def test_a_port_of_a_device_whose_ids_are_unread_is_seen(unread: tuple[str, ...]) -> None:
    own = evidence("n0", P5, 32)
    devices: Any = own.collectors["rdma"].value["devices"]
    devices[3] |= dict.fromkeys(unread)
    devices[3]["ports"][0]["state"] = "1: DOWN"
    result = evaluated("network.efa_port_active", own)
    assert result.verdict is FAIL, result.message
    assert "rdmap3s0: port 1 is 1: DOWN" in result.message


@pytest.mark.parametrize(("expect", "says"), [(32, FAIL), (31, PASS), (16, PASS)])
def test_what_the_inventory_expects_outranks_what_is_seen(expect: int, says: Verdict) -> None:
    assert evaluated(COUNT, evidence("n0", "p5.48xlarge", 31), expect={"efa": expect}).verdict is says


@pytest.mark.parametrize(
    ("attached", "count", "says", "message"),
    [
        (32, 31, FAIL, "31 EFA devices, 31 on the PCI bus; expected 32, as AWS says"),
        (16, 16, CONCERN, "16 EFA devices attached; expected 32"),
        (0, 0, CONCERN, "0 EFA devices attached; expected 32"),
        (32, 32, PASS, ""),
    ],
)
def test_what_aws_says_is_attached_is_due(attached: int, count: int, says: Verdict, message: str) -> None:
    result = evaluated(COUNT, evidence("n0", "p5.48xlarge", count), efa_attached=attached)
    assert result.verdict is says, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("kinds", "attached"),
    [(["efa", "efa-only", "interface"], 2), (["interface"], 0), ([None], None), ([], None)],
)
def test_aws_says_of_each_interface_whether_it_is_efas(kinds: list[str | None], attached: int | None) -> None:
    interfaces = [{"InterfaceType": kind} if kind else {"MacAddress": "02:00:00:00:00:01"} for kind in kinds]
    assert efa_attached({"NetworkInterfaces": interfaces}) == attached


@pytest.mark.parametrize("attached", [None, 0, 32])
def test_a_recording_keeps_what_aws_says_is_attached(attached: int | None, tmp_path: Path) -> None:
    write_cluster(tmp_path, Cluster("c", "ssm", (Target("n0", efa_attached=attached),), {"region": "us-west-2"}))
    assert read_cluster(tmp_path).targets[0].efa_attached == attached


@pytest.mark.parametrize(
    ("instance_type", "gbps", "driver", "says"),
    [
        ("p5.48xlarge", 100, "2.17.3g", PASS),
        ("p5.48xlarge", 25, "2.17.3g", FAIL),
        ("p5en.48xlarge", 200, "2.13.0g", PASS),
        ("p5en.48xlarge", 100, "2.12.1g", NA),  # every device reports that
        ("p5en.48xlarge", 100, None, INCOMPLETE),  # the driver's value where the device reports none
        ("p5en.48xlarge", 100, "2.17.3g", INCOMPLETE),
        ("p5.48xlarge", 100, "2.12.1g", NA),
        ("p5.48xlarge", 100, None, PASS),
        ("g6e.16xlarge", 30, "2.17.3g", PASS),  # 35 Gb/s as an InfiniBand rate
        ("g6e.16xlarge", 25, "2.17.3g", FAIL),
        ("g5.8xlarge", 25, "2.17.3g", PASS),
        ("g4dn.8xlarge", 30, "2.17.3g", FAIL),
    ],
)
def test_a_rate_is_evaluated_as_far_as_the_driver_knows_it(
    instance_type: str, gbps: int, driver: str | None, says: Verdict
) -> None:
    result = evaluated(RATE, evidence("n0", instance_type, 1, gbps=gbps, driver=driver))
    assert result.verdict is says, result.message


def test_a_rate_that_may_be_the_drivers_own_fails_where_the_others_report_more() -> None:
    sick = evidence("n0", "p5en.48xlarge", 1, gbps=100)
    others = [evidence(f"n{number}", "p5en.48xlarge", 1, gbps=200) for number in (1, 2, 3)]
    result = evaluated(RATE, sick, *others)
    assert result.verdict is FAIL
    assert "port 1 at 100 Gb/sec (4X EDR); expected at least 200 Gb/s" in result.message


@pytest.mark.parametrize(
    ("ports", "verdict", "message"),
    [
        ([{}], PASS, ""),
        ([], FAIL, "no port; expected port 1"),
        ([{"state": "1: DOWN"}], FAIL, "port 1 is 1: DOWN; expected 4: ACTIVE"),
        ([{"physical_state": "3: Disabled"}], FAIL, "port 1 is 3: Disabled; expected 5: LinkUp"),
    ],
)
def test_a_port_is_active_and_has_a_link(ports: list[dict[str, str]], verdict: Verdict, message: str) -> None:
    reported = device(0)
    reported["ports"] = [reported["ports"][0] | changed for changed in ports]
    node = evidence("n0", "p5.48xlarge", 1)
    collector = Collected(Status.READ, node.collectors["rdma"].value | {"devices": [reported]})
    result = evaluated("network.efa_port_active", NodeEvidence("n0", {**node.collectors, "rdma": collector}))
    assert result.verdict is verdict
    assert message in result.message


def test_devices_may_still_come_just_after_boot() -> None:
    result = evaluated(COUNT, output_of(boot={"uptime_s": 9.0}), expect={"efa": 3})
    assert (result.verdict, result.message) == (INCOMPLETE, "2 EFA devices, 9 s after boot; expected 3")
    assert evaluated(COUNT, output_of(boot={"uptime_s": 9.0}), expect={"efa": 2}).verdict is PASS


DOMAINS = "".join(
    f"provider: efa\n    fabric: efa\n    domain: rdmap{at}s0-rdm\n    type: FI_EP_RDM\n" for at in range(2)
)


@pytest.mark.parametrize(
    ("fi_info", "occasion", "verdict", "message"),
    [
        ({"exit": 0, "output": DOMAINS}, "preflight", PASS, ""),
        (
            {"exit": 0, "output": DOMAINS.replace("rdmap1s0", "rdmap0s0")},
            "preflight",
            FAIL,
            "1 EFA domains; expected 2",
        ),
        ({"exit": 0, "output": ""}, "preflight", FAIL, "0 EFA domains; expected 2, one for each device"),
        ({"exit": 3, "output": "hm\n"}, "preflight", INCOMPLETE, "fi_info ended with 3: hm"),
        ({"exit": 3, "output": DOMAINS}, "preflight", PASS, ""),
        (Collected(Status.ABSENT), "preflight", NA, "fi_info is not installed here; the EFA software may live in"),
        (Collected(Status.ABSENT), "ami", FAIL, "fi_info is not installed; expected EFA's software in the image"),
    ],
)
def test_libfabric_offers_each_device(fi_info: Any, occasion: str, verdict: Verdict, message: str) -> None:
    result = result_of(
        "network.libfabric_efa", output_of(libfabric=fi_info), occasion=occasion, instance_type="p5.48xlarge"
    )
    assert result.verdict is verdict, result.message
    assert message in result.message


def loopback(*mb_per_s: float | None) -> dict[str, Any]:
    """Exchanges through this many domains."""
    head = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
    row = f"{head}\n1m 200 =200 400m 0.57s {{:.2f}} 286.98 0.00\n"
    runs = [
        {
            "domain": f"d{at}",
            "exit": 0 if speed else 1,
            "output": row.format(speed) if speed else "",
            "server": "no route",
        }
        for at, speed in enumerate(mb_per_s)
    ]
    return {"domains": runs}


def unread(exchanges: dict[str, Any], at: int) -> dict[str, Any]:
    """The same with one that ended well and whose row is cut off."""
    exchanges["domains"][at]["output"] = "libfabric:7:efa:core:warn(): no huge pages\n"
    return exchanges


def apart(exchanges: dict[str, Any], output: str, server: str) -> dict[str, Any]:
    """The same, the second with these errors of both ends."""
    exchanges["domains"][1] |= {"output": output, "server": server}
    return exchanges


def unstarted(exchanges: dict[str, Any]) -> Collected:
    """The same, the second without a server in time."""
    why = "fi_pingpong did not listen within 10 s"
    exchanges["domains"][1] = {"domain": "d1", "never_read": f"Broke: {why}"}
    return Collected(Status.BROKE, exchanges, detail=why)


REFUSED = "[error] util/pingpong.c:408 : failed to connect: Connection refused\n"
TAKEN = "bind(): util/pingpong.c:460 , ret=-98 (Address already in use)\n"
LEFT = "ctrl/read(): util/pingpong.c:563 , ret=-104 (Connection reset by peer)\n"
UNFIT = "fi_cq_readerr(): util/pingpong.c:808 , ret=-5 (Input/output error)\n"


@pytest.mark.parametrize(
    ("exchanges", "count", "verdict", "message"),
    [
        (apart(loopback(3600, None), REFUSED, LEFT), 2, INCOMPLETE, "the ends for d1 did not meet (exit status 1: ["),
        (apart(loopback(3600, None), "", TAKEN), 2, INCOMPLETE, "expected nobody else at their port"),
        (apart(loopback(3600, None), UNFIT, LEFT), 2, FAIL, "no exchange through d1"),
        (apart(loopback(3600, None), LEFT, UNFIT), 2, FAIL, "no exchange through d1"),
        (apart(loopback(3600, None, None), REFUSED, ""), 2, FAIL, "no exchange through d2"),
        (unstarted(loopback(3600, 3600)), 2, INCOMPLETE, "Broke: fi_pingpong did not listen within 10 s"),
        (unstarted(loopback(3600, 3600, None)), 2, FAIL, "no exchange through d2"),
        (loopback(3600, 3600, 3500), 2, PASS, ""),
        (loopback(3600, 3600, 900), 2, CONCERN, "d2 900 MB/s; expected at least"),
        (loopback(3600, None, 3600), 2, FAIL, "no exchange through d1"),
        (unread(loopback(3600, 3600), 1), 2, INCOMPLETE, "d1: no row of bandwidth in what fi_pingpong printed"),
        (unread(loopback(3600, 3600, None), 1), 2, FAIL, "no exchange through d2"),
        (loopback(), 2, INCOMPLETE, "libfabric offers no EFA domain; expected one for each device"),
        (Collected(Status.ABSENT), 2, INCOMPLETE, "expected EFA's software on the host"),
        (Collected(Status.ABSENT), 0, NA, "no EFA device on this node"),
    ],
)
def test_every_domain_exchanges_messages(exchanges: Any, count: int, verdict: Verdict, message: str) -> None:
    node = output_of(count=count, efa_loopback=exchanges)
    result = result_of(
        "network.efa_loopback", node, occasion="perf", instance_type="p5.48xlarge", expect={"efa": count}
    )
    assert result.verdict is verdict, result.message
    assert message in result.message
