"""Of what was measured between nodes, the numbers that the history keeps of each node."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.core.result import Measured
from clusterproof.reports.pairs import what

UNIT = "GB/s"


def measured_between(run: PairwiseRun) -> Iterator[Measured]:
    """The busbw of each node: the median of its measurements that succeeded, in 10^9 bytes a second.

    The name says with what and how it was measured: what was measured otherwise is another trend.
    """
    for campaign in run.campaigns:
        meter = campaign.journal.about.get("meter", "")
        name = ", ".join(filter(None, (f"busbw with partners: {what(campaign)}", str(meter))))
        for node, measurements in campaign.of_node.items():
            data = [busbw for one in measurements if (busbw := one.reading.busbw_gb_per_s)]
            if data:
                yield Measured(name, node, median(data), UNIT)
