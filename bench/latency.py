"""How soon a watch reports an event: seconds for lines of the kernel log, ticks for the state of GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from bench.figure import Figure
from clusterproof.plugins.watch import Change
from tests.testbed import needs
from tests.testbed.cluster import testbed
from tests.testbed.node import healthy_p5
from tests.testbed.nvml.values import answer_now
from tests.watch.live_faults import GPU_FAULTS, LOG_FAULTS, answer, answers, said_of
from tests.watch.watched_bed import WatchedHere, log, watched

NODE = "gpu001"
EVERY_S = 2.0
ROUNDS = 3
STATES = frozenset({"gpu.no_throttle"})


def alerts() -> Iterator[Figure]:
    """On a node with a real sshd, inject each GPU fault several times and each kernel log line once."""
    if needs.needs_cluster.args[0]:
        yield Figure("alert_of_event_s", None, "≤ 2", str(needs.needs_cluster.kwargs["reason"]))
        return
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        testbed({NODE: healthy_p5(NODE)}) as bed,
        watched(bed, monkeypatch, every_s=EVERY_S) as watch,
    ):
        watch.until_sampled(NODE, more=5)
        lines = list(_of_log(watch))
        facts, states = _of_gpus(watch)
    yield _figure("alert_of_event_s", lines, "≤ 2", "the testbed's log is a file, looked at each second")
    ticks = f"of {EVERY_S:.0f} s; at 10 s a tick five are 50 s"
    yield _figure("alert_of_gpu_ticks", facts, "≤ 5", ticks)
    yield _figure("alert_of_state_ticks", states, "≤ 5", ticks)


def _of_log(watch: WatchedHere) -> Iterator[float]:
    for fault in LOG_FAULTS:
        began = time.monotonic()
        for line in fault.lines:
            log(watch.bed.nodes[NODE], line, time.clock_gettime(time.CLOCK_BOOTTIME))
        watch.until(lambda rule=fault.rule: watch.of(rule), fault.name)  # type: ignore[misc]
        yield watch.of(fault.rule)[0].time_s - began


def _of_gpus(watch: WatchedHere) -> tuple[list[float], list[float]]:
    node = watch.bed.nodes[NODE]
    healthy = answers(node)
    facts: list[float] = []
    states: list[float] = []
    for _ in range(ROUNDS):
        changes: Sequence[Change] = ()
        before = {fault.rule: len(said_of(watch, NODE, fault)) for fault in GPU_FAULTS}
        began = time.monotonic()
        answer(node, healthy, *GPU_FAULTS)
        for fault in GPU_FAULTS:
            known = before[fault.rule]
            watch.until(lambda fault=fault, known=known: len(said_of(watch, NODE, fault)) > known, fault.name)  # type: ignore[misc]
            changes = said_of(watch, NODE, fault)
            (states if fault.rule in STATES else facts).append((changes[known].time_s - began) / EVERY_S)
        watch.controller.watch.states._of.clear()  # so that the next round reports it again and does not flap
        answer_now(node.root, healthy)
        watch.until_sampled(NODE, more=7)
    return facts, states


def _figure(name: str, values: Sequence[float], goal: str, detail: str) -> Figure:
    return Figure(name, round(max(values), 2), goal, f"the longest of {len(values)}; {detail}")
