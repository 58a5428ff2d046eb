"""Faults on watched nodes with real sshds are reported, each once, and its end once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ChangeKind
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5
from tests.watch.live_faults import GPU_FAULTS, LOG_FAULTS, MORE_GPU_FAULTS, OfGpu, answer, answers, said_of
from tests.watch.watched_bed import Watched, log, watched

pytestmark = needs_cluster

BY_NODE: dict[str, tuple[OfGpu, ...]] = {"gpu001": GPU_FAULTS, "gpu002": MORE_GPU_FAULTS}
EVERY = [(node, fault) for node, faults in BY_NODE.items() for fault in faults]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with testbed({name: healthy_p5(name) for name in BY_NODE}) as bed, watched(bed, monkeypatch, every_s=0.5) as made:
        made.until_sampled(*BY_NODE, more=5)
        assert [change for change in made.said if change.verdict is not Verdict.INCOMPLETE] == []
        yield made


def test_each_fault_of_gpus_and_of_the_log_is_said_once_and_once_that_it_is_over(watch: Watched) -> None:
    nodes = watch.bed.nodes
    healthy = {name: answers(nodes[name]) for name in BY_NODE}
    for name, faults in BY_NODE.items():
        answer(nodes[name], healthy[name], *faults)
    for line in [line for fault in LOG_FAULTS for line in fault.lines]:
        log(nodes["gpu002"], line, time.clock_gettime(time.CLOCK_BOOTTIME))
    for name, fault in EVERY:
        watch.until(lambda name=name, fault=fault: said_of(watch, name, fault), fault.name)  # type: ignore[misc]
        assert fault.words in said_of(watch, name, fault)[0].message, fault.name
    for logged in LOG_FAULTS:
        watch.until(lambda logged=logged: watch.of(logged.rule, "gpu002"), logged.name)  # type: ignore[misc]
    watch.until_sampled(*BY_NODE, more=5)
    for name in BY_NODE:
        answer(nodes[name], healthy[name])
    for name, fault in EVERY:
        is_over = lambda name=name, fault=fault: said_of(watch, name, fault)[-1].kind is ChangeKind.CLOSED  # noqa: E731
        watch.until(is_over, f"the end: {fault.name}")
    watch.until_sampled(*BY_NODE, more=5)
    for name, fault in EVERY:
        kinds = [change.kind for change in said_of(watch, name, fault) if change.kind is not ChangeKind.WORSE]
        assert kinds == [ChangeKind.OPENED, ChangeKind.CLOSED], fault.name
    for logged in LOG_FAULTS:
        (change,) = watch.of(logged.rule, "gpu002")
        assert logged.words in change.message, logged.name
