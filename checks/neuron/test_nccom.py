"""Collectives on Trainium, out of captured logs of nccom-test."""

from __future__ import annotations

import pytest

from clusterproof.plugins.facts.nccom import NccomLog
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import incomplete

pytestmark = [pytest.mark.neuron, pytest.mark.preflight, pytest.mark.hyperpod_node_debugger("G")]


@evidence("nccom-test -r 32 --minbytes 1kb --maxbytes 1gb --stepfactor 4 --datatype fp32 --check allr; echo exit: $?")
def test_nccom(node: Node) -> None:
    """nccom-test fails.

    The smallest program that uses every NeuronCore and the links between them. That it ends with a bandwidth for every
    size proves that collectives run; how fast they should be is another question.

    Remedy: Read the error. NRT_ words are the runtime's: restart the Neuron driver, reboot the node; replace it where
    they return.
    """
    logs = node.nccom.logs
    problems = [problem for log in logs for problem in log.problems]
    assert not problems, f"{problems[0].replace('; expected ', ', expected ')}; expected no error"
    for log in logs:
        require_end(log)


def require_end(log: NccomLog) -> None:
    """Say so where a log without an error proves nothing."""
    if not log.rows:
        incomplete("nccom-test measured nothing; expected a row for each size")
    if log.avg_busbw_gb_per_s is None:
        incomplete(f"the log ends behind {log.rows[-1].size_bytes} bytes; expected its line `Avg bus bandwidth`")
    silent = [row.size_bytes for row in log.rows if row.time_us is None or row.busbw_gb_per_s is None]
    if silent:
        incomplete(f"no time or bandwidth for {silent[0]} bytes; expected numbers")
    if log.exit:
        incomplete(f"no error is told, and nccom-test ended with exit status {log.exit}; expected 0")
