"""How the gate words verdicts, and how many taints it allows: pure functions."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.result import Result, why_unreachable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.kubernetes import error_of_status
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.plugins.kubernetes.gate import (
    MAX_MESSAGE,
    GateSettings,
    health_of,
    healths,
    reason_of,
    resident,
    unvisited,
)
from clusterproof.plugins.kubernetes.gate.object_writer import ObjectWriter
from clusterproof.plugins.kubernetes.gate.taints import GateError, most_tainted, own_key
from clusterproof.plugins.kubernetes.gate.write import UNCONFINED, UNTRIED, write

PASS, CONCERN, FAIL, INCOMPLETE, NOT_APPLICABLE = (
    Verdict.PASS,
    Verdict.CONCERN,
    Verdict.FAIL,
    Verdict.INCOMPLETE,
    Verdict.NOT_APPLICABLE,
)


SOME = [all_checks()[name] for name in ("node.reachable", "gpu.no_xid")]


def result(check: str, verdict: Verdict, message: str = "seen; expected otherwise", **more: str) -> Result:
    return Result(check, "gpu001", verdict, message=message, **more)  # type: ignore[arg-type]


def unread(node: str) -> Result:
    return Result("node.reachable", node, FAIL, message="500", cause=why_unreachable(Unreached.NO_LOG))


@pytest.mark.parametrize("reason", [Unreached.API, Unreached.NO_LOG])
def test_what_checks_say_of_a_node_that_was_not_reached_is_understood(reason: Unreached) -> None:
    names = ("gpu001", "gpu002", "gpu003")
    cluster = Cluster("x", "k8s", tuple(map(Target, names)))
    silent = nodes(cluster, {name: NodeEvidence(name, unreached=reason, detail="500") for name in names})
    results = [evaluate(check, node) for node in silent.values() for check in SOME]
    assert {result.unreached for result in results} == {reason}
    assert unvisited(results).keys() == set(names)


def test_where_most_logs_cannot_be_read_it_is_no_nodes_fault_and_nothing_is_written() -> None:
    results = [unread("gpu001"), unread("gpu002"), unread("gpu003"), Result("gpu.no_xid", "gpu004", PASS)]
    message = "the control plane cannot read the logs of 3 of 4 nodes; expected a way from it to port 10250 of each"
    assert unvisited(results) == dict.fromkeys(("gpu001", "gpu002", "gpu003"), message)
    assert set(healths(results)) == {"gpu004"}


def test_a_node_whose_log_alone_cannot_be_read_is_unknown() -> None:
    results = [unread("gpu001"), *(Result("gpu.no_xid", f"gpu00{number}", PASS) for number in (2, 3))]
    assert healths(results)["gpu001"].status == "Unknown"
    assert unvisited(results) == {}


@pytest.mark.parametrize(
    ("verdicts", "status", "reason"),
    [
        ((PASS, PASS), "True", "ChecksPassed"),
        ((PASS, CONCERN, NOT_APPLICABLE), "True", "ChecksPassed"),
        ((PASS, INCOMPLETE), "Unknown", "Incomplete"),
        ((INCOMPLETE, FAIL, PASS), "False", "GpuNo1"),
        ((NOT_APPLICABLE, NOT_APPLICABLE), "Unknown", "NothingChecked"),
    ],
)
def test_only_a_failure_is_false_and_only_what_is_proven_is_true(
    verdicts: tuple[Verdict, ...], status: str, reason: str
) -> None:
    health = health_of([result(f"gpu.no_{number}", verdict) for number, verdict in enumerate(verdicts)])
    assert (health.status, health.reason) == (status, reason)


def test_a_node_that_was_not_reached_is_unknown_though_that_check_fails() -> None:
    cause = why_unreachable(Unreached.NOT_READY)
    message = "not Ready since 3 min: the kubelet is silent; expected a kubelet"
    results = [
        result("node.reachable", FAIL, message, cause=cause),
        result("gpu.no_xid", INCOMPLETE, cause, cause=cause),
    ]
    health = health_of(results)
    assert (health.status, health.reason, health.message) == ("Unknown", "NotReached", message)


def test_the_gravest_failure_comes_first_and_the_others_are_named() -> None:
    health = health_of(
        [
            result("host.memlock", FAIL, action="fix configuration"),
            result("gpu.row_remap", FAIL, "GPU 3: failed; expected none", action="replace"),
            result("gpu.no_xid", FAIL, action="reset or reboot"),
        ]
    )
    assert health.reason == "GpuRowRemap"
    assert health.message == "gpu.row_remap: GPU 3: failed; expected none; also gpu.no_xid, host.memlock"


@pytest.mark.parametrize("others", [0, 1, 60])
@pytest.mark.parametrize("message", ["short; expected long", "long " * 500, "a\nb\x1b[2J\u202e" * 90, ""])
def test_a_message_is_one_line_of_at_most_240_characters_that_any_terminal_shows(message: str, others: int) -> None:
    more = [result(f"host.some_other_check_{number}", FAIL) for number in range(others)]
    shown = health_of([result("gpu.no_xid", FAIL, message, action="replace"), *more]).message
    assert len(shown) <= MAX_MESSAGE == 240
    assert shown.isprintable()
    assert shown.startswith("gpu.no_xid:")
    assert not others or "; also " in shown


def test_the_reason_of_every_check_is_what_kubernetes_takes_for_one_and_of_no_other_check() -> None:
    ids = [check.route.check for check in all_checks().values()]
    reasons = {reason_of(check) for check in ids}
    assert all(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", reason) for reason in reasons)
    assert len(reasons) == len(set(ids)) > 100
    assert reason_of("gpu.no_xid") == "GpuNoXid"


@pytest.mark.parametrize("check", ["", "…", "9lives", "a" * 500, "own check/é"])
def test_so_is_that_of_a_check_of_a_site_whatever_it_is_called(check: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,127}", reason_of(check))


def test_where_a_test_broke_no_node_is_proven_but_what_failed_has_failed() -> None:
    results = [Result("gpu.a", "gpu001", PASS), Result("gpu.a", "gpu002", FAIL, message="seen; expected none")]
    by_node = healths(results, is_whole=False)
    assert {name: health.status for name, health in by_node.items()} == {"gpu001": "Unknown", "gpu002": "False"}


@pytest.mark.parametrize("reason", [Unreached.API, Unreached.THROTTLED])
@pytest.mark.parametrize("check", ["node.reachable", "gpu.no_xid"])
def test_a_node_that_the_api_server_let_nobody_visit_keeps_what_was_written_of_it(
    reason: Unreached, check: str
) -> None:
    results = [
        Result("gpu.a", "gpu001", PASS),
        Result(check, "gpu002", INCOMPLETE, message="503: later; expected an answer", cause=why_unreachable(reason)),
    ]
    assert healths(results).keys() == {"gpu001"}
    assert unvisited(results) == {"gpu002": "503: later; expected an answer"}


@pytest.mark.parametrize("reason", sorted({*Unreached} - {Unreached.API, Unreached.THROTTLED}))
def test_a_node_that_was_visited_and_gave_no_answer_is_unknown(reason: Unreached) -> None:
    results = [Result("node.reachable", "gpu001", INCOMPLETE, message="seen", cause=why_unreachable(reason))]
    assert healths(results)["gpu001"].reason == "NotReached"
    assert unvisited(results) == {}


def test_what_is_of_the_cluster_or_of_a_pair_or_said_by_kubernetes_is_not_written_to_a_node() -> None:
    results = [
        Result("control_plane.subnets", "k8s:bed", FAIL, subject="cluster"),
        Result("control_plane.k8s_node_takes_pods", "gpu001", FAIL, subject="k8s_node"),
        Result("perf.pairwise_bandwidth", "gpu001~gpu002", FAIL, subject="pair"),
        Result("gpu.a", "gpu001", PASS),
    ]
    assert {name: health.status for name, health in healths(results).items()} == {"gpu001": "True"}


@pytest.mark.parametrize(
    ("limit", "nodes", "most"),
    [
        ("5", 1000, 5),
        ("0", 1000, 0),
        ("10%", 1000, 100),
        ("10%", 3, 1),
        ("0%", 1000, 0),
        ("10%,10", 1000, 10),
        ("10%, 10", 40, 4),
        ("100%", 7, 7),
    ],
)
def test_a_limit_is_a_number_a_share_or_both(limit: str, nodes: int, most: int) -> None:
    assert most_tainted(limit, nodes) == most


@pytest.mark.parametrize("limit", ["", "ten", "-1", "101%", "10%%", "5,", "1.5", "9999999"])
def test_another_limit_is_refused(limit: str) -> None:
    with pytest.raises(GateError, match="expected a number, a share, or both: 10%,10"):
        most_tainted(limit, 10)


def test_the_key_of_a_taint_that_may_go_is_this_suites_own() -> None:
    assert own_key("clusterproof.dev/unproven") == "clusterproof.dev/unproven"
    assert own_key("readiness.k8s.io/clusterproof-unproven") == "readiness.k8s.io/clusterproof-unproven"
    for key in (
        "nvidia.com/gpu",
        "node.kubernetes.io/unreachable",
        "clusterproof/a/b",
        "Clusterproof=x",
        "clusterproof:x",
    ):
        with pytest.raises(GateError, match="is not a taint of this suite"):
            own_key(key)


LATER = 4_000_000_000.0  # nodes of tests are older
NOBODY = Api("https://api", lambda *_, **__: None)


def refuse(message: str) -> None:
    raise KubernetesError(message)


def test_what_went_wrong_alike_for_many_nodes_is_one_line() -> None:
    writer = ObjectWriter(NOBODY)
    for number in range(100):
        name = f"gpu{number:03d}"
        writer.tried(name, lambda name=name: refuse(f'500: node "{name}" is ill'))  # type: ignore[misc]
    assert writer.lines() == ["gpu[000-099]: 500: node NODE is ill"]


def test_the_first_of_many_errors_are_reported_and_the_others_counted() -> None:
    writer = ObjectWriter(NOBODY)
    for number in range(12):
        writer.tried(f"gpu{number:03d}", lambda number=number: refuse(f"reason {number}"))  # type: ignore[misc]
    assert writer.lines()[0] == "gpu000: reason 0"
    assert writer.lines()[5:] == ["and 7 more reasons"]


def test_when_its_time_is_over_nothing_more_is_tried() -> None:
    patched: list[str] = []
    writer = ObjectWriter(NOBODY, until=0.0)
    assert writer.each(patched.append, ["gpu001", "gpu002"]) == {}
    assert patched == []
    assert writer.lines() == ["gpu[001-002]: not tried, as 300 s have passed; expected a faster API server"]


NODE = {
    "metadata": {"name": "gpu001", "uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {},
    "status": {"conditions": []},
}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error_of_status(422, {"message": "ValidatingAdmissionPolicy 'clusterproof-gate' denied request: no"}, ""), ""),
        (error_of_status(400, {"message": "admission webhook x does not support dry run"}, ""), f"{UNTRIED}: 400"),
        (error_of_status(500, {"message": "etcdserver: request timed out"}, ""), f"{UNTRIED}: 500: etcdserver"),
        (error_of_status(403, {"message": 'User "x" cannot patch resource "nodes/status"'}, ""), f"{UNTRIED}: 403"),
        (None, UNCONFINED),
    ],
)
def test_that_nothing_confines_a_gate_is_said_and_that_it_is_unknown(answer: Exception | None, words: str) -> None:
    def patched(path: str, patch: object, kind: str, **more: object) -> object:
        if answer and "dryRun" in more:
            raise answer
        return NODE

    api: Any = SimpleNamespace(
        listed=lambda *_, **__: [NODE], patch=patched, patch_unread=patched, create=lambda *_: NODE
    )
    lines = write(
        api, resident(GateSettings(), 60), {"gpu001": health_of([result("gpu.no_xid", PASS)])}, LATER, LATER
    ).lines
    about = [line for line in lines if line.startswith((UNTRIED, UNCONFINED))]
    assert [line[: len(words)] for line in about] == ([words] if words else [])


def test_concerns_that_a_condition_has_no_room_for_are_counted() -> None:
    concerns = [result(f"host.check_{number}", CONCERN) for number in range(30)]
    message = health_of([result("gpu.no_xid", PASS), *concerns]).message
    assert message.startswith("31 checks found no fault; concerns: host.check_0, host.check_1, ")
    assert re.search(r"host\.check_\d+ and \d+ more$", message)
    assert len(message) <= MAX_MESSAGE
