"""Whole pages for a browser: of the demo cluster, and of a cluster with racks, hot GPUs and a history."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Measured
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.transport.gather import replay
from clusterproof.reports.formats.html import document
from clusterproof.reports.history import Entry, Past, PastRun
from tests.builders.recordings import gpu, node, nvml
from tests.reports.reported import HOSTILE, result, run_of

NODES, GPUS, RUNS = 12, 8, 20
HOT = ("gpu005", 3)  # the one GPU far hotter than the others
COUNTS_LINKS = ("gpu007", 1)  # the one with NVLink errors
SITE = "https://docs.example.com/clusterproof/"
DAY_S = 86_400.0


@cache
def demo_page() -> str:
    """The page of the demo cluster."""
    cluster = resolve("demo")
    evidence = replay(DEMO, cluster)
    results = [
        evaluate(check, facts) for facts in nodes(cluster, evidence).values() for check in node_checks().values()
    ]
    return document(run_of(results, list(evidence.values())))


@cache
def page_with_history() -> str:
    """Twelve nodes in three groups, one of which fails sometimes, with a falling busbw."""
    names = [f"gpu{number:03d}" for number in range(1, NODES + 1)]
    evidence = [node(name, nvml=nvml(*(_gpu(name, index) for index in range(GPUS)))) for name in names]
    verdicts = {"gpu002": Verdict.FAIL, "gpu009": Verdict.INCOMPLETE, "gpu010": Verdict.CONCERN}
    results = [
        result(
            f"gpu.{check}", name, verdict, "1; expected 0" if verdict is not Verdict.PASS else "", cause=_cause(verdict)
        )
        for check in ("ecc", "xid")
        for name in names
        for verdict in (verdicts.get(name, Verdict.PASS) if check == "ecc" else Verdict.PASS,)
    ]
    cluster = Cluster("prod", "ssh", tuple(Target(name, group=f"rack-{at // 4 + 1}") for at, name in enumerate(names)))
    facts = ClusterFacts(cluster, NodeEvidence("prod"), nodes(cluster, {of_node.node: of_node for of_node in evidence}))
    return document(replace(run_of(results, evidence), facts=facts, past=past(names), site=SITE))


@cache
def hostile_page() -> str:
    """Nodes whose names imitate the page's own markup, with overlong texts."""
    names = [*HOSTILE, "a-name-that-is-longer-than-its-cell"]
    results = [result("gpu.ecc", name, Verdict.FAIL, f"{name} {'long ' * 1000}") for name in names]
    results += [result("gpu.xid", name, Verdict.INCOMPLETE, name, title=name, cause=name) for name in names]
    return document(run_of(results, [node(name, odd={name: [name]}) for name in names]))


def _cause(verdict: Verdict) -> str:
    return "nvml did not answer" if verdict is Verdict.INCOMPLETE else ""


def _gpu(name: str, index: int) -> dict[str, Any]:
    more = {"temperature_c": 81 if (name, index) == HOT else 30 + index, "power_w": 70.0, "clock_mhz": 345}
    links = {"replay": {"3": 12} if (name, index) == COUNTS_LINKS else {}}
    return gpu(index, ecc_uncorrected_total=0, ecc_corrected_total=0, memory_used_mib=0, nvlink_errors=links, **more)


def past(names: list[str]) -> Past:
    """Twenty runs: gpu002 fails in every third, and gpu003's busbw drops by a fifth in the last."""
    runs = tuple(
        PastRun("prod", 1_790_000_000 + at * DAY_S, 1_790_000_060 + at * DAY_S, nodes=len(names), number=at + 1)
        for at in range(RUNS)
    )
    track = tuple(Entry(run.number, verdict, verdict) for run in runs for verdict in (_in_every_third(run),))
    values = {
        ("busbw with partners: all_reduce, 8 GiB", name): tuple(
            (run.number, Measured("busbw", name, 384.0 if (name, run.number) == ("gpu003", RUNS) else 480.0, "GB/s"))
            for run in runs
        )
        for name in names
    }
    return Past(runs, {("gpu.ecc", "gpu002"): track}, {}, values)


def _in_every_third(run: PastRun) -> Verdict:
    return Verdict.FAIL if run.number % 3 == 2 else Verdict.PASS
