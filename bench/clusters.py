"""Simulated clusters for `make simulate`: nodes, links and racks with known faults, and their measurements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, next_round
from clusterproof.plugins.evidence.pairs import Measurement, Pair, Reading

NOMINAL_GB_PER_S = 400.0
OUTLIERS = 0.05
OUTLIER_SHARES = (0.7, 0.95)
RACK = 16

Shares = Callable[[Sequence[Pair], int], Mapping[Pair, float]]  # of bandwidth, for the pairs of one round


@dataclass(slots=True)
class Simulated:
    """A cluster with known faults. A share of 0.93 is 7 % slow."""

    nodes: tuple[str, ...]
    random: Random
    noise: float = 0.02
    racks: Mapping[str, str] = field(default_factory=dict)
    slow_nodes: Mapping[str, float] = field(default_factory=dict)
    slow_links: Mapping[Pair, float] = field(default_factory=dict)
    slow_racks: Mapping[str, float] = field(default_factory=dict)  # on the links to other racks
    dead: Collection[str] = ()
    spine: float = 1.0  # share of all pairs that may run at once without slowing each other
    whole: float = 1.0  # applies to everything
    outliers: float = OUTLIERS
    disturbed: Shares | None = None  # further noise

    def measure(self, pairs: Sequence[Pair], number: int, uses: Mapping[str, int] | None = None) -> list[Measurement]:
        """Measure these pairs at once; `uses` counts the pairs that a node is in, where more than one."""
        shares = self.disturbed(pairs, number) if self.disturbed else {}
        return [
            Measurement(measured, number, len(pairs), Reading(busbw and busbw * shares.get(measured, 1.0)))
            for measured in pairs
            for busbw in (self._busbw(measured, len(pairs), uses or {}),)
        ]

    def _busbw(self, pair: Pair, at_once: int, uses: Mapping[str, int]) -> float | None:
        if set(pair.nodes) & set(self.dead):
            return None
        share = min(self.slow_nodes.get(node, 1.0) for node in pair.nodes) * self.slow_links.get(pair, 1.0) * self.whole
        if not is_inside(pair, self.racks):
            share *= min(self.slow_racks.get(self.racks.get(node, ""), 1.0) for node in pair.nodes)
        spine_pairs = self.spine * (len(self.nodes) // 2)
        share *= min(1.0, spine_pairs / at_once)
        share /= max(uses.get(node, 1) for node in pair.nodes)
        noise = self.random.lognormvariate(0.0, self.noise)
        outlier = self.random.uniform(*OUTLIER_SHARES) if self.random.random() < self.outliers else 1.0
        return NOMINAL_GB_PER_S * share * noise * outlier


def campaign(
    plan: PairPlan, measure: Callable[[Sequence[Pair], int], Iterable[Measurement]], most_rounds: float = inf
) -> list[Measurement]:
    """The measurements of a campaign, as a run makes them: round by round, until no pair is left."""
    measurements: list[Measurement] = []
    while True:
        number, pairs = next_round(plan, measurements)
        if not pairs or number >= most_rounds:
            return measurements
        measurements += measure(pairs, number)


def names(count: int) -> tuple[str, ...]:
    """The nodes of a cluster."""
    return tuple(f"n{number:04}" for number in range(count))


def racks_of(nodes: Sequence[str]) -> dict[str, str]:
    """Racks of RACK nodes, or of a quarter of a small cluster."""
    size = min(RACK, max(2, len(nodes) // 4))
    return {node: f"rack{number // size}" for number, node in enumerate(nodes)}
