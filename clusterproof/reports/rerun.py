"""The command that runs again what failed, or what could not be measured."""

from __future__ import annotations

import re
import shlex

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.findings import with_verdict
from clusterproof.reports.run import Run

MAX_CHECKS = 40  # by name; more of them are run all
_IS_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}").fullmatch


def again(run: Run, verdict: Verdict) -> str:
    """What a shell takes to run again the checks that have this verdict, on the nodes that do; empty: none.

    A check that is evaluated by pairs is run on all nodes: what is normal for one depends on the others.
    """
    found = list(with_verdict(run.results, verdict))
    if not found:
        return ""
    nodes = {result.node for result in found if _IS_NODE(result.node)}
    checks = list(dict.fromkeys(result.check.rpartition(".")[2] for result in found))
    words = list(run.command)
    if (
        nodes
        and all(result.is_of_node for result in found)
        and run.evaluated_by_pairs.isdisjoint(result.check for result in found)
    ):
        words += ["--nodes", fold(nodes)]
    if len(checks) <= MAX_CHECKS:
        words += ["-k", " or ".join(f"test_{name}" for name in checks)]
    return shlex.join(words)
