"""The node as a whole: it answers, and has settled after boot."""

from __future__ import annotations

from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from tests.faults.fault import FAIL, INCOMPLETE, Fault
from tests.testbed.node import with_file, with_tool

EVALUATED = [name for name, check in node_checks().items() if occasions(check) != ["perf"]]  # of a node without load

FAULTS = (
    Fault(
        "a node that answers garbage",
        lambda image: with_tool(image, "python3", "#!/bin/sh\ncat >/dev/null\nhead -c 500 /dev/urandom\n"),
        dict.fromkeys(EVALUATED, INCOMPLETE) | {"node.reachable": FAIL},
        "garbled",
    ),
    Fault(
        "a node that has just booted",
        lambda image: with_file(image, "/proc/uptime", "61.20 100.00\n"),
        {"node.uptime_settled": INCOMPLETE},
        "up for 61 s",
    ),
)
