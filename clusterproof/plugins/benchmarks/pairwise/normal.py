"""What is normal for a pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.benchmarks.pairwise.tails import Tails


@dataclass(frozen=True, slots=True)
class Normal:
    """What is normal: the centre of log(busbw) inside places and across them, and its spread."""

    inside: float
    across: float
    sigma: float
    error: float = 0.0  # standard error of the centre
    sample: tuple[float, ...] = ()  # what it was taken from, about the centre; empty where there is plenty
    relief_inside: float = 0.0  # how much faster they are when at most half of them run at once; 0.0 where not sure
    relief_across: float = 0.0
    rounds: Mapping[int, float] = field(default_factory=dict)  # what all pairs of a round have in common beyond that
    tails: Tails = field(default_factory=Tails)

    def of(self, inside: bool) -> float:
        """The centre for such pairs."""
        return self.inside if inside else self.across

    def relief(self, inside: bool) -> float:
        """What fewer at once bring such pairs."""
        return self.relief_inside if inside else self.relief_across
