"""Checks of IMEX on evidence that no fault of the testbed produces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.checks.gpu.racks import ADDRESSES, DRIVER, NAMES, RACK_1, RACK_2, RUNS, evaluated, rack, tray
from tests.testbed.imex import domain

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


CUT_OFF = dict.fromkeys(range(1, 18), "VERSION_MISMATCH")


@pytest.mark.parametrize(
    ("data", "verdict", "message"),
    [
        ({"links": CUT_OFF}, FAIL, "17 of 17 IMEX connections to other trays are not up: VERSION_MISMATCH with tray01"),
        ({"links": {3: "INVALID", 4: "RECOVERING"}}, CONCERN, "are not up: INVALID with tray03 (10.1.2.3), RECOVERI"),
        ({"links": {3: "INVALID"}, "others": "UNAVAILABLE"}, CONCERN, "INVALID with tray03 (10.1.2.3)"),
        ({"status": "UNAVAILABLE"}, FAIL, "nvidia-imex is UNAVAILABLE; expected READY"),
        ({"state": "DEGRADED"}, PASS, ""),
        ({"version": "580.95.05"}, CONCERN, "nvidia-imex uses driver version 580.95.05; expected 580.126.09, the load"),
        ({"version": "580.126"}, PASS, ""),
        ({"version": "NO_GPU"}, CONCERN, "nvidia-imex runs without GPUs"),
        ({"names": ("else",) * 18, "addresses": ("10.9.9.9",) * 18}, INCOMPLETE, "none of 18 nodes of the IMEX domain"),
    ],
)
def test_a_tray_is_connected_to_the_others_of_its_domain(data: dict[str, Any], verdict: Verdict, message: str) -> None:
    printed = domain(**{"version": DRIVER, "addresses": ADDRESSES, "names": NAMES, **data})
    expect(evaluated("imex_domain", tray(0, output=printed), *rack(first=1, trays=17)), verdict, message)


@pytest.mark.parametrize(
    ("data", "verdict", "message"),
    [
        (
            {"status": "UNAVAILABLE", "others": "UNAVAILABLE"},
            FAIL,
            "nvidia-imex is UNAVAILABLE on all trays of the dom",
        ),
        (
            {"version": "570.133.20"},
            CONCERN,
            "uses driver version 570.133.20 on all trays of the domain; expected 580.12",
        ),
    ],
)
def test_what_all_trays_share_is_said_of_one_that_is_not_known_among_them(
    data: dict[str, Any], verdict: Verdict, message: str
) -> None:
    printed = domain(**{"version": DRIVER, "addresses": ("10.9.9.9",) * 18, "names": ("else",) * 18, **data})
    result = evaluated("imex_domain", tray(0, output=printed), *rack(first=1, trays=17))
    assert message in result.message
    assert verdict in {finding.verdict for finding in result.findings}
    assert Verdict.INCOMPLETE in {finding.verdict for finding in result.findings}


def test_places_that_a_compute_domain_keeps_are_not_missed() -> None:
    hosts = ("10.1.2.0", *(f"compute-domain-daemon-{number:04}" for number in range(1, 18)))
    links = dict.fromkeys(range(1, 18), "NEVER_CONNECTED")
    printed = domain(DRIVER, links, addresses=hosts, names=hosts, others="UNAVAILABLE", state="DEGRADED")
    assert evaluated("imex_domain", tray(0, output=printed)).verdict is PASS


@pytest.mark.parametrize(
    ("service", "verdict", "message"),
    [
        ({**RUNS, "active": "inactive"}, NA, "nvidia-imex is inactive"),
        ({**RUNS, "active_s": 30.0}, INCOMPLETE, "nvidia-imex started 30 s ago and may take 240 s to connect"),
        ({**RUNS, "active_s": None}, FAIL, "17 of 17 IMEX connections to other trays are not up"),
    ],
)
def test_a_domain_is_judged_where_its_service_has_run_for_a_while(service: Any, verdict: Verdict, message: str) -> None:
    printed = domain(DRIVER, CUT_OFF, addresses=ADDRESSES, names=NAMES)
    expect(evaluated("imex_domain", tray(0, output=printed, service=service)), verdict, message)


@pytest.mark.parametrize(
    ("nodes", "verdict", "message"),
    [
        (ADDRESSES[::-1], FAIL, "differs from that of tray17, tray16, tray15, tray14 and 13 more; expected"),
        ((*ADDRESSES, "10.1.2.3"), FAIL, "nodes_config.cfg differs from that of"),
        (ADDRESSES[:2], FAIL, "differs from that of tray01, tray02, tray03, tray04 and 13 more; expected"),
        (ADDRESSES[:1], FAIL, "differs from that of tray01, tray02, tray03, tray04 and 13 more; expected"),
    ],
)
def test_the_trays_of_a_list_have_the_same_list(nodes: tuple[str, ...], verdict: Verdict, message: str) -> None:
    own, another, *others = tray(0, nodes=nodes), *rack(first=1, trays=17)
    expect(evaluated("imex_nodes", own, another, *others), verdict, message)
    assert evaluated("imex_nodes", another, own, *others).verdict is PASS


def test_a_tray_that_has_left_the_list_of_its_rack_has_no_connections_to_judge() -> None:
    printed = domain(DRIVER, addresses=ADDRESSES[:1], names=NAMES[:1])
    alone = tray(0, nodes=ADDRESSES[:1], output=printed)
    expect(evaluated("imex_domain", alone, *rack(first=1, trays=17)), INCOMPLETE, "lists no other tray, but other")
    assert evaluated("imex_domain", alone).verdict is PASS


def test_a_list_of_one_tray_may_be_a_job_s_where_no_service_starts_with_the_node() -> None:
    alone = tray(0, nodes=ADDRESSES[:1], service={**RUNS, "enabled": "disabled"})
    expect(evaluated("imex_nodes", alone, *rack(first=1, trays=17)), CONCERN, "differs from that of tray01")
    expect(evaluated("imex_nodes", alone, tray(1)), NA, "nodes_config.cfg lists no other tray")


def test_an_address_that_is_listed_twice_is_named() -> None:
    twice = (*ADDRESSES, "10.1.2.3")
    trays = [tray(number, nodes=twice) for number in range(18)]
    expect(evaluated("imex_nodes", *trays), CONCERN, "lists 10.1.2.3 more than once; expected each tray once")


@pytest.mark.long
def test_a_tray_of_another_rack_in_the_list_is_named() -> None:
    foreign = tray(5, RACK_2)
    trays = [foreign if number == 5 else tray(number) for number in range(18)]
    expect(
        evaluated("imex_nodes", *trays), CONCERN, f"tray05 in nodes_config.cfg is not in clique 7 of cluster {RACK_1}"
    )
    own = evaluated("imex_nodes", foreign, *trays[:5], *trays[6:])
    expect(own, FAIL, f"are not in clique 7 of cluster {RACK_2}, which this tray is in; expected all trays of the list")


JOB_1, JOB_2 = ADDRESSES[:4], (*ADDRESSES[1:4], *ADDRESSES[5:8])  # successive jobs
OF_JOB_2 = (1, 2, 3, 5, 6, 7)


def idle(word: str = "NODE_MAP_MISMATCH") -> NodeEvidence:
    """A tray on which only job 1 ran, beside trays with job 2's list."""
    links = dict.fromkeys((1, 2, 3), word)
    return tray(0, nodes=JOB_1, output=domain(DRIVER, links, addresses=JOB_1, names=NAMES[:4], state="DEGRADED"))


def of_job_2() -> list[NodeEvidence]:
    printed = domain(DRIVER, addresses=JOB_2, names=[NAMES[number] for number in OF_JOB_2])
    return [tray(number, nodes=JOB_2, output=printed) for number in OF_JOB_2]


@pytest.mark.parametrize("word", ["NODE_MAP_MISMATCH", "INVALID"])
def test_an_idle_tray_that_keeps_the_list_of_its_last_job_has_no_fault(word: str) -> None:
    expect(evaluated("imex_nodes", idle(word), *of_job_2()), CONCERN, "differs from that of tray01, tray02")
    expect(evaluated("imex_domain", idle(word), *of_job_2()), CONCERN, f"are not up: {word} with tray01")


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes"])
def test_a_job_s_trays_are_held_against_those_of_its_list(check: str) -> None:
    own, *others = of_job_2()
    assert evaluated(check, own, *others, idle()).verdict is PASS


def test_another_list_than_that_of_most_trays_that_name_this_one_is_its_fault() -> None:
    odd = tray(1, nodes=JOB_2[::-1])
    expect(evaluated("imex_nodes", odd, *of_job_2()[1:]), FAIL, "differs from that of tray07, tray06, tray05")


def test_whether_other_lists_name_a_tray_without_addresses_is_unknown() -> None:
    odd = tray(1, nodes=JOB_2[::-1], has_address=False)
    assert evaluated("imex_nodes", odd, *of_job_2()[1:]).verdict is FAIL  # its IMEX knows its own address
    lost = tray(1, nodes=JOB_2[::-1], has_address=False, output="Failed to read the node configuration file")
    expect(evaluated("imex_nodes", lost, *of_job_2()[1:]), INCOMPLETE, "nvidia-imex-ctl -N ended with 0")


def half_off(states: dict[int, str]) -> str:
    """A tray's output while the trays with these words are off."""
    printed = json.loads(domain(DRIVER, states, addresses=ADDRESSES, names=NAMES, state="DEGRADED"))
    for number in states:
        printed["nodes"][str(number)]["status"] = "UNAVAILABLE"
    return json.dumps(printed)


OFF = dict.fromkeys(range(8, 18), "DISCONNECTED")


def test_trays_that_are_off_are_no_fault_of_those_that_are_connected() -> None:
    own, *others = [tray(number, output=half_off(OFF)) for number in range(8)]
    expect(evaluated("imex_domain", own, *others), CONCERN, "10 of 17 IMEX connections to other trays are not up")


@pytest.mark.parametrize("active", ["active", "inactive"])
def test_trays_that_are_not_ready_by_their_own_answer_are_not_counted(active: str) -> None:
    printed = domain(DRIVER, OFF, addresses=ADDRESSES, names=NAMES)
    down = domain(DRIVER, status="UNAVAILABLE" if active == "active" else "READY", addresses=ADDRESSES, names=NAMES)
    swapped = [json.loads(down)["nodes"]["0"] | {"host": host} for host in ADDRESSES]
    own = {number: json.dumps({"status": "DOWN", "nodes": {str(number): swapped[number]}}) for number in OFF}
    off = [tray(number, output=own[number], service={**RUNS, "active": active}) for number in OFF]
    others = [*(tray(number, output=printed) for number in range(1, 8)), *off]
    expect(evaluated("imex_domain", tray(0, output=printed), *others), CONCERN, "are not up: DISCONNECTED with tray08")


def test_a_tray_that_sees_no_other_is_cut_off_where_these_say_that_they_are_ready() -> None:
    every = dict.fromkeys(range(1, 18), "INVALID")
    lost = tray(0, output=half_off(every))
    expect(evaluated("imex_domain", lost, *rack(first=1, trays=17)), FAIL, "17 of 17 IMEX connections to other trays")
    expect(evaluated("imex_domain", lost), CONCERN, "17 of 17 IMEX connections to other trays are not up: INVALID")


def test_a_daemon_that_has_kept_an_earlier_list_is_cut_off() -> None:
    stale = dict.fromkeys(range(1, 18), "NODE_MAP_MISMATCH")
    printed = domain(DRIVER, stale, addresses=ADDRESSES, names=NAMES)
    expect(evaluated("imex_domain", tray(0, output=printed), *rack(first=1, trays=17)), FAIL, "17 of 17 IMEX")


@pytest.mark.long
@pytest.mark.parametrize("names", [NAMES, tuple(f"{name}.example" for name in NAMES)])
def test_host_names_in_a_list_are_those_of_trays(names: tuple[str, ...]) -> None:
    others = [tray(number, nodes=names) for number in range(1, 18)]
    assert evaluated("imex_nodes", tray(0, nodes=names), *others).verdict is PASS
    expect(evaluated("imex_nodes", tray(0, nodes=names[::-1]), *others), FAIL, "differs from that of tray17")


def test_a_list_is_well_only_where_another_tray_s_is_known() -> None:
    expect(evaluated("imex_nodes", tray(0)), NA, "no other tray to compare")
    expect(
        evaluated("imex_nodes", tray(0, nodes=ADDRESSES[:1]), tray(1, nodes=ADDRESSES[1:])),
        NA,
        "nodes_config.cfg lists no other tray",
    )
    expect(
        evaluated("imex_nodes", tray(0, nodes=("10.9.9.1", "10.9.9.2")), tray(1)),
        INCOMPLETE,
        "was not read on any other tray of the list",
    )
    unknown = tray(1, imex=Collected(Status.TIMED_OUT))
    expect(evaluated("imex_nodes", tray(0), unknown), INCOMPLETE, "was not read on any other tray of the list")


def test_a_daemon_whose_list_is_not_found_is_incomplete() -> None:
    for own in (tray(0, nodes=()), tray(0, imex=Collected(Status.ABSENT))):
        expect(evaluated("imex_nodes", own, *rack(first=1)), INCOMPLETE, "nvidia-imex runs, but no list of trays was")


DAEMON = {"config": "/opt/shared/imex.cfg", "active_s": 86400.0}
STOPPED = {**RUNS, "active": "inactive", "active_s": None}


@pytest.mark.parametrize(
    ("daemon", "verdict"), [(None, NA), (DAEMON, FAIL), ({**DAEMON, "active_s": 30.0}, INCOMPLETE)]
)
def test_a_daemon_of_root_is_judged_though_no_service_started_it(daemon: Any, verdict: Verdict) -> None:
    printed = domain(DRIVER, CUT_OFF, addresses=ADDRESSES, names=NAMES)
    answer = {"command": "nvidia-imex-ctl -N -j -H -c /opt/shared/imex.cfg", "exit": 0, "output": printed}
    report = {"nodes": list(ADDRESSES), "channels": [0], "channel_count": 2048, "domain": answer, "daemon": daemon}
    own = tray(0, service=STOPPED, imex=report)
    assert evaluated("imex_domain", own, *rack(first=1, trays=17)).verdict is verdict


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes"])
def test_a_tray_that_was_not_asked_is_incomplete(check: str) -> None:
    own = tray(0, imex=Collected(Status.UNCOLLECTED))
    assert evaluated(check, own).verdict is INCOMPLETE


def test_a_tray_on_which_imex_is_not_configured_is_held_against_no_list() -> None:
    expect(
        evaluated("imex_nodes", tray(0, nodes=(), service={})), NA, "nvidia-imex is not configured on the node itself"
    )


UNSTARTED = {**RUNS, "active": "inactive", "sub": "dead", "enabled": "disabled", "active_s": None}
BARE = {"nodes": [], "channels": [], "channel_count": 2048, "domain": None, "daemon": None}


@pytest.mark.parametrize(
    ("service", "imex", "verdict"),
    [
        (None, Collected(Status.ABSENT), NA),  # the DRA driver runs it in pods
        (UNSTARTED, Collected(Status.ABSENT), NA),
        (UNSTARTED, BARE, NA),  # a prolog starts it
        ({**UNSTARTED, "enabled": "enabled"}, BARE, CONCERN),
        (UNSTARTED, {**BARE, "nodes": list(ADDRESSES)}, CONCERN),
        (UNSTARTED, {**BARE, "channels": [0]}, CONCERN),
        (UNSTARTED, {**BARE, "channels": None}, INCOMPLETE),
        (UNSTARTED, Collected(Status.TIMED_OUT), INCOMPLETE),
        ({**UNSTARTED, "enabled": "enabled"}, Collected(Status.TIMED_OUT), CONCERN),
        ({**UNSTARTED, "active": "failed"}, Collected(Status.TIMED_OUT), CONCERN),
        (UNSTARTED, Collected(Status.UNCOLLECTED), INCOMPLETE),
    ],
)
def test_imex_is_missed_where_something_asks_for_it(service: Any, imex: Any, verdict: Verdict) -> None:
    own, *others = [tray(number, service=service, imex=imex) for number in range(18)]
    result = evaluated("imex", own, *others)
    assert result.verdict is verdict, result.message


def test_imex_is_missed_on_a_tray_that_others_list() -> None:
    bare = tray(0, service=None, imex=Collected(Status.ABSENT))
    expect(evaluated("imex", bare, *rack(first=1, trays=17)), CONCERN, "nvidia-imex is not installed; expected active")
