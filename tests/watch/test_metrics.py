"""What Prometheus scrapes from a watch: base units, growing counters, no stale values, no superfluous series."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.sample_columns import SampledGpu
from clusterproof.plugins.watch import Key, RuleResult
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.metrics import families
from clusterproof.plugins.watch.node_metrics import NodeMetrics
from clusterproof.plugins.watch.sinks import Sinks
from clusterproof.plugins.watch.updates import Hello
from clusterproof.plugins.watch.watch import Watch
from tests.watch.days import NODE
from tests.watch.sinks_of_day import OfDay, tick

CONCERN = RuleResult(Verdict.CONCERN, "Lustre has not answered for 60 s; expected an answer")
FAIL = RuleResult(Verdict.FAIL, "Lustre has not answered for 600 s; expected an answer")


@pytest.fixture
def watched() -> OfDay:
    return OfDay().hello()


@pytest.fixture(scope="module")
def read() -> Mapping[str, float]:
    """What Prometheus scrapes after two samples."""
    return OfDay().hello().take(tick(100.0), tick(110.0)).read


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ('gpu_utilization_ratio{gpu="0"}', 0.96),
        ('gpu_sm_active_ratio{gpu="1"}', 0.48),
        ('gpu_tensor_active_ratio{gpu="0"}', 0.32),
        ('gpu_memory_used_bytes{gpu="0"}', 70_000 * 1024**2),
        ('gpu_memory_bytes{gpu="0"}', 81_559 * 1024**2),
        ('gpu_sm_clock_hertz{gpu="0"}', 1.7e9),
        ('gpu_power_watts{gpu="0"}', 576),
        ('gpu_power_limit_watts{gpu="1"}', 700),
        ('gpu_temperature_celsius{gpu="0"}', 60),
        ('gpu_nvlink_bytes_total{gpu="0"}', 9_600e6 * 10),
        ('gpu_pcie_bytes_total{gpu="0"}', 100e6 * 10),
        ('gpu_throttled_seconds_total{gpu="0",reason="power_cap"}', 5),
        ('gpu_throttled_seconds_total{gpu="0",reason="hardware"}', 1),
        ('gpu_ecc_errors_total{error="uncorrected",gpu="0"}', 0),
        ('gpu_ecc_errors_total{error="corrected",gpu="0"}', 3),
        ('gpu_nvlink_errors_total{gpu="0"}', 7),
        ("node_samples_total", 2),
        ("node_connections_total", 1),
        ("node_last_seen_timestamp_seconds", 1.7e9 + 30),
        ("node_unjudged_checks", 0),
        ("interval_seconds", 10),
        ("up", 1),
    ],
)
def test_a_sample_is_exported_in_base_units(read: Mapping[str, float], series: str, value: float) -> None:
    assert read[series] == pytest.approx(value)


def test_counters_grow_by_the_time_between_samples_and_never_shrink_when_the_connection_breaks(watched: OfDay) -> None:
    name = 'gpu_throttled_seconds_total{gpu="0",reason="power_cap"}'
    grown = []
    unknown: dict[str, Any] = dict.fromkeys(("capped", "slowed", "nvlink", "pcie"), None)
    for update in (
        tick(100.0),
        tick(110.0),
        tick(130.0),
        Hello("boot-1", 1.7e9, 500.0),
        tick(510.0, **unknown),
        tick(520.0),
    ):
        grown.append(watched.take(update).read.get(name, 0.0))
    assert grown == [0.0, 5.0, 15.0, 15.0, 15.0, 20.0]
    assert all(before <= after for before, after in pairwise(grown))


@pytest.mark.long
def test_what_a_gpu_does_not_report_has_no_series(watched: OfDay) -> None:
    read = watched.take(tick(100.0, sm=None, tensor=None, nvlink=None)).read
    assert [name for name in read if name.startswith(("gpu_sm_active", "gpu_tensor", "gpu_nvlink_bytes"))] == []
    assert 'gpu_power_watts{gpu="0"}' in read


def test_values_of_a_node_that_is_silent_are_not_exported_as_current(watched: OfDay) -> None:
    seen = watched.take(tick(100.0)).snapshot()
    later = replace(seen, now=seen.now + 30.0)
    names = {family.name for family in families(later)}
    assert not any("_gpu_" in name for name in names)
    assert "clusterproof_watch_node_last_seen_timestamp_seconds" in names


def test_a_driver_that_hangs_is_exported_with_its_time_and_without_old_values(watched: OfDay) -> None:
    read = watched.take(tick(100.0), tick(110.0, late=12.5)).read
    assert read['source_late_seconds{source="gpu"}'] == 12.5
    assert not any(name.startswith("gpu_") for name in read)


def test_open_findings_are_counted_by_check_and_verdict_and_go_when_they_are_over(watched: OfDay) -> None:
    watched.day.silence(60)
    watched.sinks.report(watched.day.said)
    read = watched.read
    assert read['findings{check="watch.silent",verdict="incomplete"}'] == 1
    assert (read['nodes{finding="incomplete"}'], read['nodes{finding="none"}']) == (1, 0)
    assert read['changes_total{kind="opened",verdict="incomplete"}'] == 1
    watched.day.tick()
    assert not any(name.startswith("findings") for name in watched.read)
    assert watched.read['nodes{finding="none"}'] == 1


def test_a_node_that_was_not_reached_and_never_evaluated_is_incomplete() -> None:
    cluster = Cluster("day", "ssh", (Target(NODE),))
    watch = Watch(Evaluator(cluster, NO_POLICY), 10.0, [NODE], 0.0)
    watch.evidence({NODE: NodeEvidence(NODE, unreached=Unreached.REFUSED)}, 0.0)
    seen = Sinks("day", watch, print).snapshot()
    lustre = Key(NODE, "lustre", "watch.source")
    for open_now, finding in (({}, "incomplete"), ({lustre: CONCERN}, "incomplete"), ({lustre: FAIL}, "fail")):
        every = families(replace(seen, open=open_now))
        (nodes,) = (family for family in every if family.name == "clusterproof_watch_nodes")
        assert {sample.labels["finding"]: sample.value for sample in nodes.samples}[finding] == 1


def test_a_check_that_fails_on_one_gpu_and_is_not_known_of_another_is_not_evaluated_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = (Finding(Verdict.FAIL, "2 errors", ("GPU 3",)), Finding(Verdict.INCOMPLETE, "not read", ("GPU 5",)))
    result = with_findings(Result("gpu.no_uncorrected_ecc", NODE, Verdict.FAIL), findings)
    evaluator = Evaluator(Cluster("day", "ssh", (Target(NODE),)), NO_POLICY)
    watch = Watch(evaluator, 10.0, [NODE], 0.0)
    monkeypatch.setattr(evaluator, "evaluate_all", lambda _: {NODE: ({}, [result])})
    watch.evidence({NODE: NodeEvidence(NODE)}, 0.0)
    assert watch.incomplete == {NODE: 1}


def test_a_node_that_sends_ever_new_words_adds_no_series(watched: OfDay) -> None:
    watched.take(tick(100.0))
    before = set(watched.read)
    for at in range(50):
        text = f'x{at}"}}\n# TYPE up counter'
        named = tick(110.0 + at, gpus=(SampledGpu(text, 1.0, 1.0), SampledGpu(text, 1.0, 1.0)))
        watched.take(replace(named, late={text: (5.0, text)}))
    assert set(watched.read) == before


def test_a_failure_of_the_watch_itself_is_exported_while_it_lasts(watched: OfDay) -> None:
    failing = [True]
    watched.sinks.add_part("recording", lambda: failing[0])
    assert watched.read['trouble{part="recording"}'] == 1
    failing[0] = False
    assert watched.read['trouble{part="recording"}'] == 0


def test_nothing_is_kept_for_metrics_that_nobody_asks_for(watched: OfDay) -> None:
    unasked = Sinks("prod", watched.day.watch, watched.own.append)
    unasked.update(NODE, tick(100.0), 1.7e9, 0.0)
    assert unasked.snapshot().nodes[NODE] == NodeMetrics()


@pytest.mark.long
def test_metrics_are_read_from_another_thread_while_findings_come_and_go(watched: OfDay) -> None:
    is_over = threading.Event()
    failed: list[Exception] = []

    def ask() -> None:
        while not is_over.is_set():
            try:
                watched.snapshot()
            except Exception as problem:
                failed.append(problem)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    for at in range(20):
        watched.day.log(f"NVRM: Xid (PCI:0000:53:00): {48 + at % 40}, pid=1, name=python3, an error")
        watched.take(tick(100.0 + at)).sinks.states_changed([NODE])
    is_over.set()
    asking.join()
    assert failed == []
