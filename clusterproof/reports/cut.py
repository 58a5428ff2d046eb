"""A run that ended before its checks did, in the words that every form of report begins with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusterproof.plugins.core.result import Result


@dataclass(frozen=True, slots=True)
class Cut:
    """How many of the chosen checks ended before the run did, and on how many of its nodes all of them."""

    ended: int
    chosen: int
    whole: int
    nodes: int

    @property
    def words(self) -> str:
        """`INTERRUPTED: 6,601 of 21,000 checks ended, all of them on 110 of 600 nodes`."""
        of_nodes = f", all of them on {self.whole:,} of {self.nodes:,} nodes" if self.nodes else ""
        return f"INTERRUPTED: {self.ended:,} of {self.chosen:,} checks ended{of_nodes}"


def cut_of(results: Iterable[Result]) -> Cut | None:
    """What of a run is missing; None where it evaluated all that was chosen."""
    results = list(results)
    missing = [result for result in results if not result.is_evaluated]
    if not missing:
        return None
    nodes = {result.node for result in results if result.is_of_node}
    return Cut(len(results) - len(missing), len(results), len(nodes - {result.node for result in missing}), len(nodes))
