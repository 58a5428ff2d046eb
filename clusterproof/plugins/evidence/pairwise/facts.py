"""What was measured between one node and others."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Protocol

from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.pairwise.model import Estimate, Finding, Measurement


class Between(Protocol):
    """Everything that a run measured between nodes."""

    def of_node(self, node: str) -> PairsOfNode:
        """What was measured of a node. Raises Incomplete, and NotApplicable for a node that belongs to no job."""


@dataclass(frozen=True)
class PairsOfNode:
    """What was measured of one node, with all its partners."""

    measured: tuple[Measurement, ...]
    if_none: Incomplete | NotApplicable  # why nothing was
    estimate: Estimate | None  # how slow it is, None where no measurement of it succeeded
    finding: Finding | None  # what the analysis says of this node by itself
    shared: Finding | None  # and of a place or of all nodes, this one among them
    unclear: str  # why the nodes that were measured cannot be told apart; empty where they can
    is_one_of_two: bool  # whether there is but one other node to measure it with
    meter: str  # the program that measured
    by_hand: str  # how a person measures it with a good one; empty where that is unknown

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements that it took part in, at least one. Raises Incomplete, NotApplicable."""
        if not self.measured:
            raise copy(self.if_none)
        return self.measured

    @property
    def partners(self) -> int:
        """With how many nodes it was measured. Raises Incomplete, NotApplicable."""
        return len({one.pair for one in self.measurements})

    @property
    def succeeded_with(self) -> int:
        """With how many nodes a measurement of it succeeded. Raises Incomplete, NotApplicable."""
        return len({one.pair for one in self.measurements if one.reading.busbw_gb_per_s})
