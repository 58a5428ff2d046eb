"""Which services a node needs, which units may be missing, and how a stopped service is named."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.catalog.node import needed_services
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.host.collect_services import WANTED
from tests.builders.evaluated import result_of
from tests.builders.recordings import node

PASS, CONCERN, FAIL, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE
RUNS = {
    "load": "loaded",
    "active": "active",
    "sub": "running",
    "enabled": "enabled",
    "restarts": 0,
    "active_s": 80_000.0,
}
WAITS = {"active": "activating", "sub": "auto-restart"}
STARTS = {"active": "activating", "sub": "start"}
FAILED = {"active": "failed", "sub": "failed"}
NOT_FOUND = {"load": "not-found", "active": "inactive", "sub": "dead", "enabled": ""}
DEAD = {"active": "inactive", "sub": "dead"}


def verdict_of(occasion: str = "preflight", **collector: Any) -> Result:
    """The verdict on the services of a node that reports this."""
    evidence = NodeEvidence("node0", {"services": Collected(Status.READ, {"services": {}, "failed": [], **collector})})
    return result_of("host.services", evidence, occasion=occasion)


def test_the_probe_asks_for_every_service_that_a_node_may_need() -> None:
    assert set(needed_services()) == set(WANTED)


@pytest.mark.parametrize(
    ("service", "verdict"),
    [
        ({}, PASS),
        (FAILED, FAIL),
        (WAITS, FAIL),
        ({**WAITS, "sub": "auto-restart-queued"}, FAIL),
        (STARTS, PASS),
        ({**STARTS, "restarts": 9, "active_s": 30.0}, FAIL),
        (DEAD, FAIL),
        ({**DEAD, "enabled": "enabled-runtime"}, FAIL),
        ({**DEAD, "enabled": "disabled"}, PASS),
        ({**DEAD, "enabled": "static"}, PASS),
        ({**DEAD, "enabled": "masked", "load": "masked"}, PASS),
        ({**FAILED, "enabled": "disabled"}, FAIL),  # somebody started it, and it stopped
        (NOT_FOUND, PASS),
        ({"restarts": 3, "active_s": 600.0}, FAIL),
        ({"restarts": 2, "active_s": 5.0}, PASS),
        ({"restarts": 9, "active_s": 601.0}, PASS),  # it has been running since
        ({"restarts": None, "active_s": None}, PASS),  # systemd before 235 does not count
        ({"restarts": 9, "active_s": {"error": "EACCES", "text": ""}}, INCOMPLETE),
    ],
)
def test_a_service_that_a_node_needs_runs_and_goes_on_running(service: dict[str, Any], verdict: Verdict) -> None:
    result = verdict_of(services={"slurmd": {**RUNS, **service}})
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize("name", sorted(needed_services()))
def test_every_service_of_the_catalogue_is_found_dead_under_its_own_name(name: str) -> None:
    result = verdict_of(services={name: {**RUNS, **FAILED}})
    row = needed_services()[name]
    assert result.verdict.value == row.verdict
    assert name in result.message


@pytest.mark.parametrize(
    ("unit", "verdict"),
    [
        ("fwupd-refresh.service", CONCERN),
        ("motd-news.service", CONCERN),
        ("logrotate.timer", CONCERN),
        ("user@1000.service", PASS),
        ("user-runtime-dir@1000.service", PASS),
        ("session-4.scope", PASS),
        ("run-u17.service", PASS),
        ("home-alice-mnt.mount", PASS),
        ("systemd-coredump@3-991-0.service", PASS),
        ("slurmd.service", FAIL),
        ("slurmd-of-somebody.service", CONCERN),
        ("xslurmd.service", CONCERN),
    ],
)
@pytest.mark.parametrize("key", ["failed", "restarting"])
def test_only_failed_units_of_the_system_are_a_concern(key: str, unit: str, verdict: Verdict) -> None:
    assert verdict_of("preflight", **{key: [unit]}).verdict is verdict
    assert verdict_of("prolog", **{key: [unit]}).verdict is (FAIL if verdict is FAIL else PASS)


def test_two_names_of_one_service_are_one_finding() -> None:
    gone = {**RUNS, **FAILED}
    message = verdict_of(services={"ssh": gone, "sshd": gone, "chrony": {**RUNS, **NOT_FOUND}, "chronyd": gone}).message
    assert "ssh is failed" in message
    assert "sshd" not in message
    assert "chronyd is failed" in message


def test_a_service_that_failed_is_found_though_of_another_nothing_is_known() -> None:
    captured = {"load": "loaded", "active": "active", "sub": "running"}  # a list of units does not say
    assert verdict_of(services={"munge": {**captured, **FAILED}, "slurmd": captured}).verdict is FAIL
    assert verdict_of(services={"slurmd": captured}).verdict is PASS


@pytest.mark.parametrize(
    ("name", "service", "occasion", "instance_type", "verdict"),
    [
        ("nvidia-persistenced", DEAD, "ami", "c6i.32xlarge", Verdict.NOT_APPLICABLE),  # the type has no GPU
        ("nvidia-persistenced", DEAD, "preflight", "c6i.32xlarge", FAIL),
        ("nvidia-persistenced", {}, "ami", "c6i.32xlarge", PASS),
        ("nvidia-persistenced", NOT_FOUND, "ami", "c6i.32xlarge", PASS),
        ("nvidia-fabricmanager", DEAD, "ami", "p5.48xlarge", FAIL),
        ("slurmd", DEAD, "ami", "c6i.32xlarge", FAIL),
    ],
)
def test_a_machine_that_builds_images_need_not_run_what_waits_for_a_device(
    name: str, service: dict[str, Any], occasion: str, instance_type: str, verdict: Verdict
) -> None:
    report = {"services": {name: {**RUNS, **service}}, "failed": []}
    platform = {"vendor": "Amazon EC2", "product": instance_type, "serial": ""}
    evidence = node("n", services=report, platform=platform, pci={"devices": []}, rdma={"devices": []})
    result = result_of("host.services", evidence, occasion=occasion, instance_type=instance_type)
    assert result.verdict is verdict, result.message


GONE = {**DEAD, "enabled": "disabled"}


@pytest.mark.parametrize(
    ("own", "others", "verdict", "message"),
    [
        (GONE, [{}, {}, {}], CONCERN, "slurmd not running, slurmd not started at boot; expected running as on 3 of 4"),
        (
            {"enabled": "disabled"},
            [{}, {}, {}],
            CONCERN,
            "slurmd not started at boot; expected started at boot as on",
        ),
        ({}, [GONE, GONE, GONE], PASS, ""),  # a controller among its nodes
        (GONE, [{}], CONCERN, "slurmd differs from node to node (not running on n0, running on n1)"),
        ({}, [GONE], PASS, ""),  # the other has the concern
        (GONE, [{}, GONE, {}], CONCERN, "slurmd differs from node to node (not running on 2, running on 2)"),
        (NOT_FOUND, [{}, {}, {}], PASS, ""),
        ({"enabled": "static"}, [{}, {}, {}], PASS, ""),
        (
            {**GONE, "enabled": None},
            [{}, {}, {}],
            INCOMPLETE,
            "slurmd not running; expected running as on 3 of 4 nodes",
        ),
        ({**GONE, "load": None}, [{}, {}, {}], INCOMPLETE, "slurmd not running, slurmd not started at boot"),
        ({"enabled": None}, [{}, {}, {}], PASS, ""),  # a list of units does not include it
        ({**FAILED, "enabled": "disabled"}, [{}, {}, {}], FAIL, "slurmd is failed"),
    ],
)
def test_what_most_nodes_have_running_is_expected_of_each(
    own: dict[str, Any], others: list[dict[str, Any]], verdict: Verdict, message: str
) -> None:
    first, *rest = (
        node(f"n{number}", services={"services": {"slurmd": {**RUNS, **service}}, "failed": []})
        for number, service in enumerate([own, *others])
    )
    result = result_of("host.services", first, *rest)
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("own", "others", "verdict"),
    [
        ({"slurmctld": GONE}, {"slurmctld": {}}, PASS),  # the others are both its controllers
        ({"slurmctld": {}, "slurmd": GONE}, {"slurmctld": GONE, "slurmd": {}}, PASS),
        ({"slurmctld": GONE, "slurmd": GONE}, {"slurmctld": GONE, "slurmd": {}}, CONCERN),
        ({"slurmd": {**DEAD, "load": "masked", "enabled": "masked"}}, {"slurmd": {}}, PASS),  # a login node
        ({"ssh": GONE}, {"ssh": {"enabled": "disabled"}}, PASS),  # started at the first connection
        ({"docker": GONE}, {"docker": {"enabled": "disabled"}}, PASS),
        ({"docker": GONE}, {"docker": {}}, CONCERN),
        ({"kubelet": GONE}, {"kubelet": {"enabled": "disabled"}}, CONCERN),
        ({"chrony": NOT_FOUND, "chronyd": GONE}, {"chrony": NOT_FOUND, "chronyd": {}}, CONCERN),
        ({"chrony": {}, "chronyd": GONE}, {"chrony": {}, "chronyd": {}}, PASS),
    ],
)
def test_like_nodes_may_differ_in_what_they_have_running(
    own: dict[str, Any], others: dict[str, Any], verdict: Verdict
) -> None:
    nodes = [
        node(
            f"n{number}",
            services={"services": {name: {**RUNS, **fields} for name, fields in units.items()}, "failed": []},
        )
        for number, units in enumerate([own, others, others])
    ]
    result = result_of("host.services", *nodes)
    assert result.verdict is verdict, result.message


def test_everything_that_is_amiss_is_reported_at_once() -> None:
    services = {"chrony": {**RUNS, **DEAD}, "nvidia-dcgm": {**RUNS, **DEAD, "enabled": "disabled"}}
    result = verdict_of(services=services, failed=["exporter.service"], restarting={"error": "EIO", "text": ""})
    assert result.message.splitlines() == [
        "chrony is inactive (keeps the clock right); expected every enabled service active",
        "incomplete: services: restarting could not be read (EIO)",
        "concern: nvidia-dcgm is inactive; expected DCGM to watch the GPUs",
        "concern: exporter.service failed; expected no failed unit",
    ]


def test_a_service_of_which_a_value_is_unread_hides_no_other() -> None:
    result = verdict_of(services={"chrony": {"load": {"error": "EIO", "text": ""}}, "munge": {**RUNS, **FAILED}})
    assert result.verdict is FAIL
    assert "munge is failed" in result.message
    assert "incomplete: load could not be read (EIO)" in result.message


@pytest.mark.parametrize("unit", [None, "?", {"error": "EIO", "text": ""}])
def test_a_service_of_which_nothing_is_known_hides_no_other(unit: Any) -> None:
    result = verdict_of(services={"slurmctld": unit, "slurmd": {**RUNS, **FAILED}})
    assert result.verdict is FAIL
    assert "slurmd is failed" in result.message
    assert verdict_of(services={"slurmctld": unit, "slurmd": RUNS}).verdict is INCOMPLETE
