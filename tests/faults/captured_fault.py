"""A fault in a capture collected by hand: files in a healthy capture, evaluated as with `--cluster capture:`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from tests.testbed.outputs import (
    P5,
)

NODE = "gpu001"


@dataclass(frozen=True)
class CapturedFault:
    """One fault, as files that replace healthy ones (empty: removed), with every verdict that it changes."""

    name: str
    files: Mapping[str, str]
    expect: Mapping[str, Verdict]
    words: str
    healthy: Mapping[str, str] = field(default_factory=lambda: P5)


def read(files: Mapping[str, str]) -> tuple[Cluster, NodeEvidence]:
    """The evidence of a node with these captured files."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, NODE)
        here.mkdir()
        for name, text in files.items():
            here.joinpath(name).write_text(text, encoding="utf-8")
        cluster = resolve(f"capture:{folder}")
        evidence = {
            capture.evidence.node: capture.evidence
            for capture in read_capture(Path(folder), cluster, collector_names())
        }
        return cluster, evidence[NODE]


def evaluated(files: Mapping[str, str]) -> dict[str, Result]:
    """The result of every check on it."""
    cluster, evidence = read(files)
    node = nodes(cluster, {NODE: evidence})[NODE]
    return {name: evaluate(check, node) for name, check in node_checks().items()}


def changes(fault: CapturedFault) -> dict[str, Result]:
    """The results of checks whose verdict the fault changes, by check id."""
    before = evaluated(fault.healthy)
    files = {name: text for name, text in {**fault.healthy, **fault.files}.items() if text}
    return {name: result for name, result in evaluated(files).items() if result.verdict is not before[name].verdict}
