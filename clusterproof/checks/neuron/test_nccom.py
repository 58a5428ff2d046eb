"""Collectives on Trainium: nccom-test, run under load or read from its captured logs."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.facts import below_median, report_slower
from clusterproof.plugins.evidence.perf.facts_logs import NccomLog

pytestmark = [
    mark.neuron,
    mark.preflight,
    mark.perf,
    mark.hyperpod_node_debugger("G"),
]


@evidence("nccom-test -r 32 --minbytes 1kb --maxbytes 1gb --stepfactor 4 --datatype fp32 --check allr; echo exit: $?")
def test_nccom(node: Node) -> None:
    """nccom-test.

    nccom-test is the smallest program that uses every NeuronCore and the links between them. With -m perf it is run;
    otherwise every captured run counts. Nodes that ran the same command are compared by the bandwidth of the largest
    message.

    Remedy (investigate): Read the error. Errors that begin with NRT_ come from the Neuron runtime: reload the driver or
    reboot the node, and replace it if they return.
    """
    logs = node.nccom.logs
    for log in logs:
        with part:
            problem = next(iter(log.problems), "").replace("; expected ", ", expected ")
            more = f" (and {len(log.problems) - 1} more)" if len(log.problems) > 1 else ""
            fail_if(problem, f"{problem}{more}; expected no error")
        with part:
            require_end(log)
    shared = node.group.medians("nccom", busbw)
    compared = ((name, speed) for name, speed in busbw(node).items() if name in shared)
    report_slower(
        node, (slower for name, speed in compared for slower in below_median(name, speed, shared[name])), "GB/s"
    )


def require_end(log: NccomLog) -> None:
    """Raise Incomplete if a log without an error proves nothing."""
    if readings(log, "problems")[0].get("problems"):
        return
    with part:
        if not log.rows:
            incomplete("nccom-test measured nothing; expected a row for each size")
        if log.avg_busbw_gb_per_s is None:
            last = known(lambda: f"{log.rows[-1].size_bytes} bytes", "an unknown size")
            incomplete(f"the log ends after {last}; expected its line `Avg bus bandwidth`")
    with part:
        silent = [row.size_bytes for row in log.rows if row.time_us is None or row.busbw_gb_per_s is None]
        if silent:
            incomplete(f"no time or bandwidth for {silent[0]} bytes; expected numbers")
    if log.exit:
        incomplete(f"no error was reported, but nccom-test exited with status {log.exit}; expected 0")


def busbw(node: Node) -> Mapping[str, float]:
    """The bandwidth of the largest message, of each command that was run; of several runs of one that of the slowest.

    A log that does not show what was run is left out.
    """
    slowest: dict[str, float] = {}
    for measured in each(node.nccom.logs, largest_message):
        for name, speed in measured.items():
            slowest[name] = min(speed, slowest.get(name, speed))
    return slowest


def largest_message(log: NccomLog) -> Mapping[str, float]:
    """The slowest bandwidth of its largest message, by command and size; empty if it shows none. Raises Incomplete."""
    if not (log.command and log.rows):
        return {}
    largest = max(row.size_bytes for row in log.rows)
    speeds = [row.busbw_gb_per_s for row in log.rows if row.size_bytes == largest and row.busbw_gb_per_s is not None]
    return {f"{log.command}, {largest} bytes": min(speeds)} if speeds else {}
