"""A watch over real sshds: events at once and once, all evidence each hour; nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.sample_columns import SUFFIX
from clusterproof.plugins.training_run.samples import CPU, CPU_PRESSURE, MEMORY
from clusterproof.plugins.watch import ChangeKind, controller
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5, with_full_root
from tests.watch.live_faults import FILE_FAULTS, NODE_FAULTS, VISITED_GPU_FAULTS, answer, answers, broken, done_on
from tests.watch.watched_bed import log, samplers, watched

pytestmark = needs_cluster

XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_events_are_said_at_once_and_once_and_nothing_is_left_on_the_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("gpu001", "gpu002")
    with testbed({name: healthy_p5(name) for name in names}) as bed:
        before = {name: bed.nodes[name].written() for name in names}
        with watched(bed, monkeypatch, tmp_path / "kept") as watch:
            watch.until_sampled(*names)
            assert [change for change in watch.said if change.verdict is Verdict.FAIL] == []
            for _ in range(40):
                log(bed.nodes["gpu002"], XID_79)
            change = watch.until_said("gpu.no_xid")
            assert (change.key.node, change.verdict) == ("gpu002", Verdict.FAIL)
            assert "Xid 79 (GPU has fallen off the bus)" in change.message
            watch.until_sampled(*names)
            assert len(watch.of("gpu.no_xid")) == 1
            assert all(len(samplers(bed.nodes[name])) for name in names)
        for name in names:
            watch.until(lambda name=name: not samplers(bed.nodes[name]), "the end of samplers")  # type: ignore[misc]
            assert {line.split()[0] for line in bed.nodes[name].written() - before[name]} <= {"/dev/kmsg"}
    run = read_run([str(tmp_path / "kept")])
    assert {node for node, _ in run.data.samples.of(CPU)} == set(names)
    assert len(run.data.samples.of(MEMORY)) == 16
    if Path("/proc/pressure/cpu").exists():  # the kernel counts it
        assert {node for node, _ in run.data.samples.of(CPU_PRESSURE)} == set(names)
    assert "Xid" in (tmp_path / "kept" / "changes.jsonl").read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "changes.jsonl",
        "cluster.json",
        *(f"{name}{SUFFIX}" for name in names),
        "nodes",
    ]


def test_each_hour_all_evidence_is_gathered_while_samples_go_on_and_what_it_shows_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(controller, "WHOLE_S", 3.0)
    with (
        testbed({"gpu001": with_full_root(healthy_p5("gpu001"), 50)}) as bed,
        watched(bed, monkeypatch, tmp_path / "kept") as watch,
    ):
        watch.until_sampled("gpu001")
        seen = tmp_path / "kept" / "nodes" / "gpu001.json"
        first = seen.stat().st_mtime_ns
        watch.until(lambda: seen.stat().st_mtime_ns > first, "another visit")
        watch.until_sampled("gpu001")
        assert watch.said == []
        node = bed.nodes["gpu001"]
        rules = {fault.rule: fault.words for fault in (*FILE_FAULTS, *VISITED_GPU_FAULTS, *NODE_FAULTS)}
        with broken(node.root, FILE_FAULTS), done_on(node, NODE_FAULTS):
            healthy = answers(node)
            answer(node, healthy, *VISITED_GPU_FAULTS)
            for rule, words in rules.items():
                assert words in watch.until_said(rule).message
        answer(node, healthy)
        for rule in rules:
            watch.until_said(rule, ChangeKind.CLOSED)
            # /fsx of this node lies on the root that is filled: a visit between the two sees it later.
            said = [
                change
                for change in watch.of(rule)
                if (change.kind, "/fsx" in change.message) != (ChangeKind.WORSE, True)
            ]
            assert [change.kind for change in said] == [ChangeKind.OPENED, ChangeKind.CLOSED], rule
