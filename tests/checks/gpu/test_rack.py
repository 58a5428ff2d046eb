"""Checks of an NVLink rack on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, said
from tests.builders.recordings import boot, gpu, node, nvml
from tests.testbed.imex import domain

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
DRIVER = "580.126.09"
RACK_1, RACK_2 = "1" * 32, "2" * 32
ADDRESSES = tuple(f"10.1.2.{number}" for number in range(18))
NAMES = tuple(f"tray{number:02}" for number in range(18))
RUNS = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled", "active_s": 86400.0}
P6E = "p6e-gb200.36xlarge"


def tray(
    number: int,
    cluster: str = RACK_1,
    *,
    nodes: tuple[str, ...] = ADDRESSES,
    output: str = "",
    service: Any = RUNS,
    imex: Any = None,
    **more: Any,
) -> NodeEvidence:
    """A tray of a rack of 18; `output` is what its nvidia-imex-ctl prints, if not a whole domain."""
    fabric = {"state": 3, "status": 0, "health_mask": 0xAA, "health_summary": 1, "clique": 7, "cluster_uuid": cluster}
    data = {"name": "NVIDIA GB200", "vbios": "97.00", "nvlinks": [True] * 18, "fabric": fabric, **more}
    printed = output or domain(DRIVER, addresses=ADDRESSES, names=NAMES)
    answer = {"command": "nvidia-imex-ctl -N -j -H", "exit": 0, "output": printed}
    address = {"name": "eth0", "driver": "ena", "mac": f"0a:00:00:00:00:{number:02x}", "ipv4": f"10.1.2.{number}"}
    return node(
        f"tray{number:02}",
        boot=boot(hostname=f"tray{number:02}"),
        nvml=nvml(*(gpu(at, **data) for at in range(4))),
        naming={"hostname": "", "hosts": [], "nameservers": [], "addresses": [address], "duplicates": []},
        services={"services": {"nvidia-imex": service} if service else {}, "failed": []},
        imex=imex or {"nodes": list(nodes), "channels": [0], "channel_count": 2048, "domain": answer},
        pci={"devices": []},
    )


def rack(cluster: str = RACK_1, first: int = 0, trays: int = 18) -> list[NodeEvidence]:
    """The trays of one rack."""
    return [tray(first + number, cluster) for number in range(trays)]


def evaluated(check: str, one: NodeEvidence, *others: NodeEvidence, **target: Any) -> Result:
    return said(f"gpu.{check}", one, *others, instance_type=P6E, **target)


@pytest.mark.parametrize("check", ["rack_trays", "rack_uniform", "imex_domain", "imex_nodes"])
def test_a_whole_rack_is_well(check: str) -> None:
    one, *others = rack()
    assert evaluated(check, one, *others).verdict is PASS


@pytest.mark.parametrize(
    ("trays", "due", "verdict", "words"),
    [
        (18, 18, PASS, ""),
        (17, 18, FAIL, "has 17 trays here (tray[00-16]); expected 18"),
        (18, 9, FAIL, "has 18 trays here (tray[00-17]); expected 9"),
        (17, None, PASS, ""),  # a job, or a part of the cluster
        (9, None, PASS, ""),
        (19, None, CONCERN, "has 19 trays here (tray[00-18]); expected at most 18"),
    ],
)
def test_a_domain_has_as_many_trays_as_expected(trays: int, due: int | None, verdict: Verdict, words: str) -> None:
    one, *others = rack(trays=trays)
    expectation = {} if due is None else {"trays": due}
    expect(evaluated("rack_trays", one, *others, expect=expectation), verdict, words)


def test_a_tray_that_did_not_answer_may_be_of_any_domain() -> None:
    one, *others = rack(trays=17)
    lost = node("tray17", boot=boot(), nvml=Collected(Status.TIMED_OUT))
    assert evaluated("rack_trays", one, *others, lost, expect={"trays": 18}).verdict is PASS


def test_a_rack_that_is_not_whole_where_most_are() -> None:
    one, *others = [*rack(RACK_1, 0, 17), *rack(RACK_2, 20), *rack("3" * 32, 40), *rack("4" * 32, 60)]
    expect(evaluated("rack_trays", one, *others), CONCERN, "has 17 trays here (tray[00-16]); expected 18, as 3 of 4")
    assert evaluated("rack_trays", others[-1], *others[:-1], one).verdict is PASS


def test_a_tray_is_compared_with_those_of_its_own_rack() -> None:
    one = tray(0, vbios="96.00")
    others = [*rack(RACK_1, 1, 3), *(tray(number, RACK_2, vbios="96.00") for number in range(20, 28))]
    found = evaluated("rack_uniform", one, *others)
    expect(found, CONCERN, f"VBIOS in cluster {RACK_1} 96.00; expected 97.00 as on 3 of 4 nodes")


def test_a_tray_with_fewer_active_links_than_its_rack() -> None:
    one = tray(0, nvlinks=[True] * 17 + [False])
    expect(evaluated("rack_uniform", one, *rack(first=1)), CONCERN, "68; expected 72 as on 18 of 19 nodes")


CUT_OFF = dict.fromkeys(range(1, 18), "VERSION_MISMATCH")


@pytest.mark.parametrize(
    ("data", "verdict", "words"),
    [
        ({"links": CUT_OFF}, FAIL, "of 17 IMEX connections to other trays 17 are not up: VERSION_MISMATCH with tray01"),
        ({"links": {3: "INVALID", 4: "RECOVERING"}}, CONCERN, "2 are not up: INVALID with tray03 (10.1.2.3), RECOVERI"),
        ({"links": {3: "INVALID"}, "others": "UNAVAILABLE"}, CONCERN, "INVALID with tray03 (10.1.2.3)"),
        ({"status": "UNAVAILABLE"}, FAIL, "nvidia-imex is UNAVAILABLE; expected READY"),
        ({"state": "DEGRADED"}, PASS, ""),
        ({"version": "580.95.05"}, CONCERN, "nvidia-imex works with driver 580.95.05; expected 580.126.09, as is load"),
        ({"version": "580.126"}, PASS, ""),
        ({"version": "NO_GPU"}, CONCERN, "nvidia-imex runs without GPUs"),
        ({"names": ("else",) * 18, "addresses": ("10.9.9.9",) * 18}, INCOMPLETE, "none of 18 nodes of the IMEX domain"),
    ],
)
def test_a_tray_is_connected_to_the_others_of_its_domain(data: dict[str, Any], verdict: Verdict, words: str) -> None:
    printed = domain(**{"version": DRIVER, "addresses": ADDRESSES, "names": NAMES, **data})
    expect(evaluated("imex_domain", tray(0, output=printed), *rack(first=1, trays=17)), verdict, words)


def test_places_that_a_compute_domain_keeps_are_not_missed() -> None:
    hosts = ("10.1.2.0", *(f"compute-domain-daemon-{number:04}" for number in range(1, 18)))
    links = dict.fromkeys(range(1, 18), "NEVER_CONNECTED")
    printed = domain(DRIVER, links, addresses=hosts, names=hosts, others="UNAVAILABLE", state="DEGRADED")
    assert evaluated("imex_domain", tray(0, output=printed)).verdict is PASS


@pytest.mark.parametrize(
    ("service", "verdict", "words"),
    [
        ({**RUNS, "active": "inactive"}, NA, "nvidia-imex is inactive"),
        ({**RUNS, "active_s": 30.0}, INCOMPLETE, "nvidia-imex was started 30 s ago, and may take 240 s to connect"),
        ({**RUNS, "active_s": None}, FAIL, "17 are not up"),
    ],
)
def test_a_domain_is_judged_where_its_service_has_run_for_a_while(service: Any, verdict: Verdict, words: str) -> None:
    printed = domain(DRIVER, CUT_OFF, addresses=ADDRESSES, names=NAMES)
    expect(evaluated("imex_domain", tray(0, output=printed, service=service)), verdict, words)


@pytest.mark.parametrize(
    ("nodes", "verdict", "words"),
    [
        (ADDRESSES[::-1], FAIL, "nodes_config.cfg is not that of tray17, tray16, tray15, tray14 and 13 more; expected"),
        ((*ADDRESSES, "10.1.2.3"), FAIL, "nodes_config.cfg is not that of"),
        (ADDRESSES[:2], CONCERN, "nodes_config.cfg is not that of tray01; expected one list on all 2 trays in it"),
        ((), NA, "nvidia-imex is not configured on the node itself"),
    ],
)
def test_the_trays_of_a_list_have_the_same_list(nodes: tuple[str, ...], verdict: Verdict, words: str) -> None:
    expect(evaluated("imex_nodes", tray(0, nodes=nodes), *rack(first=1, trays=17)), verdict, words)


def test_an_address_that_is_listed_twice_is_named() -> None:
    twice = (*ADDRESSES, "10.1.2.3")
    trays = [tray(number, nodes=twice) for number in range(18)]
    expect(evaluated("imex_nodes", *trays), CONCERN, "lists 10.1.2.3 more than once; expected each tray once")


def test_a_tray_of_another_rack_in_the_list_is_named() -> None:
    foreign = tray(5, RACK_2)
    trays = [foreign if number == 5 else tray(number) for number in range(18)]
    expect(
        evaluated("imex_nodes", *trays), CONCERN, f"tray05 in nodes_config.cfg is not in clique 7 of cluster {RACK_1}"
    )
    own = evaluated("imex_nodes", foreign, *trays[:5], *trays[6:])
    expect(own, FAIL, f"are not in clique 7 of cluster {RACK_2}, as this tray is; expected all of them in one clique")


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes", "rack_trays", "rack_uniform"])
def test_nothing_is_missed_on_trays_whose_pods_bring_imex(check: str) -> None:
    trays = [tray(number, service=None, imex=Collected(Status.ABSENT)) for number in range(18)]
    assert evaluated(check, *trays).verdict is (PASS if check.startswith("rack") else NA)


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes"])
def test_a_tray_that_was_not_asked_is_incomplete(check: str) -> None:
    one = tray(0, imex=Collected(Status.UNCOLLECTED))
    assert evaluated(check, one).verdict is INCOMPLETE
