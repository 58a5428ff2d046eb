"""Made-up runs for the reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import SEVERITIES, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.reports.formats import all_formats
from clusterproof.reports.run import Run
from tests.builders.recordings import node

BEGAN = datetime(2026, 11, 21, 14, 30, 5, tzinfo=timezone.utc)
HOSTILE = (  # hostile node names and messages
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    "]]>&amp;\x1b[31m\x00\u202e",
    "`![x](http://example.com)` | **b** [a](javascript:x) $x$ @team #1",
    '"} 1\nclusterproof_fake{a="b',
    "\ud800\\",
)
HUGE = "x" * 1_000_000
FILES = {each.file for each in all_formats()} - {"pairs.csv"} | {"results.jsonl"}  # of a run without pairs


def result(check: str, name: str, verdict: Verdict = Verdict.PASS, message: str = "", **more: Any) -> Result:
    """A result with its own message."""
    subsystem, _, rest = check.rpartition(".")
    return Result(
        **{
            "check": check,
            "node": name,
            "verdict": verdict,
            "title": f"Title of {rest}",
            "message": message,
            "observed": message,
            "owner": "hyperpod-node-debugger",
            "section": "G",
            "severity": SEVERITIES.get(verdict, "none"),
            "evidence": "nvidia-smi -q | grep 'x'",
            "meaning": "It means something.",
            "remedy": "Do something.",
            "subsystem": subsystem,
            **more,
        }
    )


def run_of(results: Iterable[Result], data: Sequence[NodeEvidence] | None = None, **more: Any) -> Run:
    """A run with these results; by default its nodes reported nothing."""
    results = list(results)
    names = dict.fromkeys(entry.node for entry in results if not entry.is_of_cluster)
    data = [node(name) for name in names] if data is None else data
    cluster = Cluster("prod", "ssh", tuple(Target(entry.node) for entry in data))
    facts = ClusterFacts(cluster, NodeEvidence("prod"), nodes(cluster, {entry.node: entry for entry in data}))
    settings: dict[str, Any] = {
        "began": BEGAN,
        "seconds": 12.34,
        "exit_code": 1,
        "command": ("pytest", "--cluster", "prod"),
        "left_out": {},
    }
    return Run(facts, results, **{**settings, **more})


def of_each_verdict() -> list[Result]:
    """Two checks on eight nodes with every verdict, and a cluster check that fails."""
    names = [f"gpu{number:03d}" for number in range(1, 9)]
    ecc = [
        result("gpu.ecc", names[0]),
        result("gpu.ecc", names[1], Verdict.FAIL, "GPU 1: 14 errors; expected 0", devices=("GPU 1",), subject="gpu"),
        result("gpu.ecc", names[2], Verdict.FAIL, "GPU 1: 14 errors; expected 0", devices=("GPU 1",), subject="gpu"),
        result("gpu.ecc", names[3], Verdict.CONCERN, "GPU 2: warm; expected cool"),
        result("gpu.ecc", names[4], Verdict.INCOMPLETE, "nvml: no answer", cause="nvml did not answer"),
        result("gpu.ecc", names[5], Verdict.NOT_APPLICABLE, "no GPU on this node"),
        *(result("gpu.ecc", name) for name in names[6:]),
    ]
    passed = [result("host.word", name, Verdict.PASS) for name in names[:4]]
    whole = result("control_plane.quota", "prod", Verdict.FAIL, "8; expected 16", subject="cluster")
    return [*ecc, *passed, whole]
