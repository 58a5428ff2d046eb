"""All evidence gathered while a node keeps sending: newer values win, and unknown ones close nothing."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.policy import NO_POLICY, Disabled, Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.group import Group
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.watch.evaluator import KEPT, Evaluator
from clusterproof.plugins.watch.overlay import LOG, NVML
from clusterproof.plugins.watch.updates import LogLine
from tests.watch.days import NODE, Day, evidence

XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', GPU has fallen off the bus."
SXID = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
HUNG_TASK = "INFO: task python:4242 blocked for more than 120 seconds."
ECC = {"ecc_uncorrected_dram": 14, "ecc_uncorrected_total": 14}
HUNG = Collected(Status.TIMED_OUT, detail="no answer within 10 s")


@pytest.fixture
def day() -> Day:
    made = Day()
    made.ticks(3)
    return made


def alive(*kinds: type) -> Mapping[str, int]:
    """The number of live objects of each kind, of those made since `gc.freeze`: looking through all takes a second."""
    gc.collect()
    types = Counter(map(type, gc.get_objects()))
    return {kind.__name__: sum(types[event] for event in types if issubclass(event, kind)) for kind in kinds}


def visited(day: Day, **collectors: Collected) -> None:
    """All gathered evidence arrives, with these values for the named collectors."""
    visit = evidence()
    visit = replace(visit, collectors={**visit.collectors, **collectors})
    day.said += day.watch.evidence({NODE: visit}, day.now)


@pytest.mark.long
def test_what_the_kernel_logs_after_a_visit_has_read_its_log_is_not_over_with_that_visit(day: Day) -> None:
    day.watch.visiting([NODE], day.now)
    day.log(XID_79)
    visited(day)
    assert day.of("gpu.no_xid") == ["opened"]
    visited(day)
    assert day.of("gpu.no_xid") == ["opened", "closed"]


@pytest.mark.long
def test_what_a_gpu_reports_after_a_visit_has_asked_it_is_not_over_with_that_visit(day: Day) -> None:
    day.watch.visiting([NODE], day.now)
    day.tick({3: ECC})
    visited(day)
    day.ticks(3)
    assert day.of("gpu.no_uncorrected_ecc") == ["opened"]


@pytest.mark.long
def test_a_line_that_a_visit_has_read_too_is_not_counted_twice(day: Day) -> None:
    day.watch.visiting([NODE], day.now)
    day.log(XID_79)
    data: Any = evidence().collectors["kernel_log"].value
    line = [90_000.0 + day.now, XID_79]
    read = {**data, "lines": [*data["lines"], line], "cursor": [data["cursor"][0], 5_000, line[0]]}
    visited(day, kernel_log=Collected(Status.READ, read))
    kept: Any = day.watch.evaluator._nodes[NODE].evidence.collectors["kernel_log"].value
    assert [text for _, text, *_ in kept["lines"]].count(XID_79) == 1


@pytest.mark.long
def test_what_was_sent_before_a_boot_is_not_put_over_what_the_node_reports_after_it(day: Day) -> None:
    day.watch.visiting([NODE], day.now)
    day.log(XID_79)
    day.hello("boot-2")
    visited(day)
    assert day.of("gpu.no_xid") == ["opened", "closed"]


@pytest.mark.long
@pytest.mark.parametrize("others", [{}, {"boot": HUNG}], ids=["of a known boot", "of which even the boot is not known"])
def test_what_a_visit_could_not_evaluate_is_not_over_and_is_still_watched(
    others: Mapping[str, Collected], day: Day
) -> None:
    day.tick({3: ECC})
    day.log(XID_79)
    visited(day, nvml=HUNG, kernel_log=HUNG, **others)
    day.ticks(3)
    assert day.of("gpu.no_uncorrected_ecc") == day.of("gpu.no_xid") == ["opened"]
    day.tick({3: {"ecc_uncorrected_dram": 0, "ecc_uncorrected_total": 0}})
    day.log(XID_79.replace("64:00", "53:00"))
    assert day.of("gpu.no_uncorrected_ecc") == ["opened", "closed"]
    assert day.of("gpu.no_xid") == ["opened", "opened"]


@pytest.mark.long
def test_errors_of_a_gpu_that_is_lost_since_are_not_over(day: Day) -> None:
    day.tick({3: ECC})
    day.tick({3: {"lost": {"error": "GPU_IS_LOST", "text": "GPU is lost"}}})
    day.ticks(3)
    assert day.of("gpu.no_uncorrected_ecc") == ["opened"]
    assert day.of("gpu.gpu_answers") == ["opened"]
    day.tick({3: {"lost": None, "ecc_uncorrected_dram": 0, "ecc_uncorrected_total": 0}})
    assert day.of("gpu.no_uncorrected_ecc") == ["opened", "closed"]
    assert day.of("gpu.gpu_answers") == ["opened", "closed"]


@pytest.mark.long
def test_errors_of_other_gpus_are_over_while_one_is_lost(day: Day) -> None:
    day.tick({5: ECC})
    day.tick({3: {"lost": {"error": "GPU_IS_LOST", "text": "GPU is lost"}}})
    day.tick({5: {"ecc_uncorrected_dram": 0, "ecc_uncorrected_total": 0}})
    assert day.of("gpu.no_uncorrected_ecc") == ["opened", "closed"]


@pytest.mark.long
def test_a_concern_about_a_gpu_is_said_while_another_is_lost_and_each_in_its_own_words(day: Day) -> None:
    day.tick({3: {"lost": {"error": "GPU_IS_LOST", "text": "GPU is lost"}}})
    day.tick({5: {"nvlink_errors": {"replay": {"0": 12}}}, 6: {"nvlink_errors": {"replay": {"7": 3}}}})
    messages = {change.key.device: change.message for change in day.said if change.key.rule == "gpu.nvlink_errors"}
    assert messages.keys() == {"GPU 5", "GPU 6"}
    assert "NVLink 0: 12 replay" in messages["GPU 5"]
    assert "NVLink 7: 3 replay" in messages["GPU 6"]


@pytest.mark.long
def test_of_a_visit_only_what_is_evaluated_again_is_kept() -> None:
    gc.freeze()
    day = Day()
    results, collected = alive(Result), alive(Collected)
    for _ in range(3):
        visited(day, nvml=HUNG)  # so that checks are incomplete, and facts raise
    assert alive(Result) == results
    assert alive(Collected) == collected
    kept = day.watch.evaluator._nodes[NODE]
    assert kept.group.nodes == [kept]
    assert kept.evidence.collectors.keys() <= KEPT


@pytest.mark.long
def test_a_check_is_evaluated_again_once_its_exception_ends_while_the_watch_goes_on() -> None:
    rule = Disabled("the cable comes on Monday", date(2020, 1, 31))
    policy = Policy(disabled={"gpu.no_xid": rule}, day=(2020, 1, 31))
    evaluator = evaluator_of("gpu001", policy=policy)
    evaluator.logged("gpu001", [LogLine(5_000, 90_000.0, XID_79)])
    _, results, _ = evaluator.reevaluate("gpu001", ["gpu.no_xid"])
    assert [result.verdict for result in results.values()] == [Verdict.FAIL]


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "check", "rule", "verdict"),
    [
        (XID_79, "gpu.no_xid", {}, Verdict.FAIL),
        (XID_79, "gpu.no_xid", {Verdict.FAIL: Verdict.CONCERN}, Verdict.CONCERN),
        (SXID, "gpu.no_sxid", {}, Verdict.CONCERN),
        (SXID, "gpu.no_sxid", {Verdict.CONCERN: Verdict.FAIL}, Verdict.FAIL),
        (HUNG_TASK, "host.lockups", {}, Verdict.CONCERN),
        (HUNG_TASK, "host.lockups", {Verdict.CONCERN: Verdict.FAIL}, Verdict.FAIL),
    ],
)
def test_a_line_of_the_kernel_has_the_verdict_that_the_policy_reads(
    line: str, check: str, rule: Mapping[Verdict, Verdict], verdict: Verdict
) -> None:
    evaluator = evaluator_of("gpu001", policy=Policy(readings={check: rule}))
    evaluator.logged("gpu001", [LogLine(5_000, 90_000.0, line)])
    _, results, _ = evaluator.reevaluate("gpu001", [check])
    assert [(key[1], result.verdict) for key, result in results.items()] == [(check, verdict)]


def evaluator_of(*names: str, policy: Policy = NO_POLICY) -> Evaluator:
    """An evaluator that has visited these nodes."""
    targets = tuple(Target(name, instance_type="p5.48xlarge") for name in names)
    evaluator = Evaluator(Cluster("some", "ssh", targets), policy)
    evaluator.evaluate_all({name: replace(evidence(), node=name) for name in names})
    return evaluator


@pytest.mark.long
def test_a_visit_of_one_node_evaluates_only_that_node() -> None:
    evaluator = evaluator_of("gpu001", "gpu002")
    assert evaluator.evaluate_all({"gpu001": replace(evidence(), node="gpu001")}).keys() == {"gpu001"}


@pytest.mark.long
def test_of_nodes_that_are_visited_one_by_one_nothing_is_kept_but_the_last_visit() -> None:
    gc.freeze()
    names = ("gpu001", "gpu002", "gpu003")
    evaluator = evaluator_of(*names)

    def visited_anew() -> Mapping[str, int]:
        for name in names:
            evaluator.evaluate_all({name: replace(evidence(), node=name)})
            evaluator.logged(name, [LogLine(5_000, 90_000.0, XID_79)])
            evaluator.reevaluate(name, evaluator.rules(LOG, NVML))
        return alive(Node, Group, Collected, Result)

    once = visited_anew()
    for _ in range(5):
        assert visited_anew() == once


@pytest.mark.long
def test_of_a_boot_that_no_visit_has_reached_the_log_is_followed_from_what_was_sent(day: Day) -> None:
    first = day.watch.evaluator.log_cursor(NODE)
    assert first
    day.hello(first[0])
    assert day.watch.log_cursor(NODE) == first
    day.hello("boot-2")
    assert day.watch.log_cursor(NODE) == ("boot-2", 0, 0.0)
    day.log(XID_79)
    assert day.watch.log_cursor(NODE) == ("boot-2", 1000 + int(day.now), 0.0)
    cursor = ["boot-2", 5_000, 90_000.0]
    day.said += day.watch.evidence({NODE: evidence(kernel_log={"cursor": cursor})}, day.now)
    assert day.watch.log_cursor(NODE) == tuple(cursor)


@pytest.mark.long
def test_a_visit_that_reached_no_node_leaves_what_is_known_of_others_as_it_is() -> None:
    evaluator = evaluator_of("gpu001", "gpu002")
    before = dict(evaluator._nodes)
    alone, among = evaluator_of("gpu001"), Evaluator(evaluator.cluster, NO_POLICY)
    refused = {"gpu001": NodeEvidence("gpu001", unreached=Unreached.THROTTLED)}
    results = evaluator.evaluate_all(refused)
    assert all(evaluator._nodes[name] is node for name, node in before.items())
    assert results == alone.evaluate_all(refused) == among.evaluate_all(refused)
