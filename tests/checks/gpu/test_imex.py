"""Checks of IMEX on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.checks.gpu.racks import ADDRESSES, DRIVER, NAMES, RACK_1, RACK_2, RUNS, evaluated, rack, tray
from tests.testbed.imex import domain

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


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


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes"])
def test_a_tray_that_was_not_asked_is_incomplete(check: str) -> None:
    one = tray(0, imex=Collected(Status.UNCOLLECTED))
    assert evaluated(check, one).verdict is INCOMPLETE
