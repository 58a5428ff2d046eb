"""A node of which little but its kernel log is known, one without /dev/kmsg, and a log that was saved."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.kernel_log.parse import read
from clusterproof.plugins.evidence.kernel_log.window import window
from clusterproof.plugins.evidence.node import Node
from tests.testbed.image import ABSENT, NodeImage
from tests.testbed.node import healthy_cpu, with_file

HOUR = 3600.0
UPTIME_S = 100 * HOUR
NOW = 1_763_670_000.0


def node(
    *lines: tuple[float | None, str],
    since: str = "boot",
    now: float = NOW,
    **log: Any,
) -> Node:
    """A node that has been up for 100 hours, with these lines in its kernel log."""
    usual = {
        "source": "/dev/kmsg",
        "lines": [list(line) for line in lines],
        "read": 9,
        "dropped": 0,
        "truncated": False,
    }
    collectors = {
        "kernel_log": usual | log,
        "boot": {"uptime_s": UPTIME_S, "now": now, "hostname": "gpu001"},
        "edac": {"controllers": []},
    }
    evidence = NodeEvidence("gpu001", {name: Collected(Status.READ, value) for name, value in collectors.items()})
    return Node(Target("gpu001"), evidence, since=window(since))


def without_kmsg() -> NodeImage:
    """A node whose kernel log only programs print."""
    return with_file(healthy_cpu(), "/dev/kmsg", ABSENT)


def log(text: str) -> dict[str, Any]:
    """The collector's value by a saved log."""
    collected: Any = read(text)
    return dict(collected["kernel_log"])


def result(check: str, of: Node) -> Result:
    """A check's result on the node."""
    return evaluate(node_checks()[check], of)


def verdict(check: str, of: Node) -> Verdict:
    """The check's verdict."""
    return result(check, of).verdict
