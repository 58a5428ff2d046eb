"""A watch over real sshds, and over srun in the user's own job: events at once and once; nothing is left behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.sample_columns import SUFFIX
from clusterproof.plugins.training_run.samples import CPU, CPU_PRESSURE, MEMORY
from clusterproof.plugins.watch import ChangeKind, controller
from clusterproof.plugins.watch.options import why_not_watched
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster, needs_slurm
from tests.testbed.node import healthy_p5, with_full_root
from tests.testbed.slurm import CONTROLLER, SlurmBed
from tests.watch.conditions import TIMEOUT_S
from tests.watch.live_faults import FILE_FAULTS, NODE_FAULTS, VISITED_GPU_FAULTS, answer, answers, broken, done_on
from tests.watch.slurm_job import NAMES, interrupt, job, steps, until, watching
from tests.watch.watched_bed import log, samplers, watched

XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ROOT_OR_FSX = re.compile(r"^/ is \d+ % full|/fsx")


@needs_cluster
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
    if Path("/proc/pressure/cpu").exists():  # the kernel reports it
        assert {node for node, _ in run.data.samples.of(CPU_PRESSURE)} == set(names)
    assert "Xid" in (tmp_path / "kept" / "changes.jsonl").read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "changes.jsonl",
        "cluster.json",
        *(f"{name}{SUFFIX}" for name in names),
        "nodes",
    ]


@needs_cluster
def test_each_hour_all_evidence_is_gathered_while_samples_go_on_and_what_it_shows_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(controller, "FULL_VISIT_S", 3.0)
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
            for rule, message in rules.items():
                assert message in watch.until_said(rule).message
        answer(node, healthy)
        for rule in rules:
            watch.until_said(rule, ChangeKind.CLOSED)
            # A visit may come while the root is filled, and with it this node's /fsx.
            changes = [
                change
                for change in watch.of(rule)
                if not (change.kind is ChangeKind.WORSE and ROOT_OR_FSX.search(change.message))
            ]
            assert [change.kind for change in changes] == [ChangeKind.OPENED, ChangeKind.CLOSED], rule


XID_48 = "NVRM: Xid (PCI:0000:53:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) in DRAM"


def scraped(bed: SlurmBed) -> str:
    """What Prometheus scrapes on the controller."""
    ask = "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen('http://127.0.0.1:9188/metrics').read())"
    return bed.output_of(sys.executable, "-c", ask)


def watts(bed: SlurmBed) -> set[str]:
    """The GPUs whose power is reported, by their distinguishing labels."""
    return set(re.findall(r'gpu_power_watts\{cluster="[^"]*",(gpu="\d",node="\w+")\} \d', scraped(bed)))


@needs_slurm
def test_what_happens_on_nodes_of_a_job_is_said_and_the_end_leaves_no_step(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed, user=0) as number:
        before = steps(bed)
        process = watching(bed, out, "--cluster", f"slurm:job:{number}", "--listen", ":9188", user=0)
        until(lambda: sum("clusterproof-watch" in step for step in steps(bed)) == len(NAMES), out.read_text)
        log(bed.node("gpu002"), XID_48)
        until(lambda: "FAIL        gpu002 GPU" in out.read_text() and "Xid 48" in out.read_text(), out.read_text)
        until(lambda: {f'gpu="{gpu}",node="{name}"' for gpu in range(8) for name in NAMES} <= watts(bed), out.read_text)
        assert 'clusterproof_watch_findings{check="gpu.no_xid"' in scraped(bed)
        interrupt(process)
        assert process.wait(TIMEOUT_S) == 1
        until(lambda: steps(bed) == before, lambda: (steps(bed), out.read_text()))
        until(lambda: not any(samplers(bed.node(name)) for name in NAMES), out.read_text)
        assert "samples: 2 nodes, 1 with a fail" in out.read_text()


@needs_slurm
def test_a_watch_that_is_killed_leaves_no_step_either(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed) as number:
        before = steps(bed)
        process = watching(bed, out, "--cluster", f"slurm:job:{number}")
        until(lambda: out.read_text().count("the kernel log is not followed") == len(NAMES), out.read_text)
        bed.node(CONTROLLER).kill(process)
        until(lambda: steps(bed) == before, lambda: (steps(bed), out.read_text()))
        assert not any(samplers(bed.node(name)) for name in NAMES)


@needs_slurm
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"submit_host": "local"},
            "without a job, it would occupy each node for as long as it runs; expected slurm:job:ID",
        ),
        (
            {"submit_host": "hyperpod:x", "job": "7"},
            "on a host that is reached by hyperpod: a session of Systems Manager is",
        ),
        ({"submit_host": "local", "job": "7"}, ""),
        ({"submit_host": "ssh:login", "job": "7"}, ""),
    ],
)
def test_srun_needs_a_job_and_a_host_that_is_not_reached_by_systems_manager(
    settings: dict[str, str], said: str
) -> None:
    why_not = why_not_watched(Cluster("slurm:x", "srun", (Target("gpu001"),), settings))
    assert why_not.startswith(said)
    assert bool(why_not) is bool(said)
