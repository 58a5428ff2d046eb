"""Counts of what a rule did on simulated clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bench.clusters import Simulated


@dataclass
class Tally:
    """Slow nodes found, healthy nodes flagged, faults identified correctly."""

    slow: int = 0
    found: int = 0
    healthy: int = 0
    flagged: int = 0
    kinds: int = 0
    kinds_right: int = 0
    rounds: int = 0  # maximum over the clusters
    rounds_of_all: int = 0
    clusters: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def nodes(self, cluster: Simulated, flagged: set[str], rounds: int) -> None:
        """Count the nodes that the rule flags in one cluster."""
        slow, dead = set(cluster.slow_nodes), set(cluster.dead)
        self.slow += len(slow)
        self.found += len(flagged & slow)
        self.healthy += len(cluster.nodes) - len(slow | dead)
        self.flagged += len(flagged - slow - dead)
        self.rounds = max(self.rounds, rounds)
        self.rounds_of_all += rounds
        self.clusters += 1

    def kind(self, is_right: bool, verdict: str) -> None:
        """Count the kind of fault that the rule names in one cluster."""
        self.kinds += 1
        self.kinds_right += is_right
        if not is_right:
            self.wrong[verdict or "nothing"] += 1

    def __add__(self, other: Tally) -> Tally:
        """Add the counts."""
        return Tally(
            self.slow + other.slow,
            self.found + other.found,
            self.healthy + other.healthy,
            self.flagged + other.flagged,
            self.kinds + other.kinds,
            self.kinds_right + other.kinds_right,
            max(self.rounds, other.rounds),
            self.rounds_of_all + other.rounds_of_all,
            self.clusters + other.clusters,
            self.wrong + other.wrong,
        )

    @property
    def detection(self) -> float:
        """The share of slow nodes that were named."""
        return self.found / self.slow if self.slow else 0.0

    @property
    def false_positive_rate(self) -> float:
        """The share of healthy nodes that were flagged."""
        return self.flagged / self.healthy if self.healthy else 0.0

    @property
    def mean_rounds(self) -> float:
        """Mean number of rounds per cluster."""
        return self.rounds_of_all / self.clusters if self.clusters else 0.0

    @property
    def kind_right(self) -> float:
        """The share of clusters whose fault is identified correctly, with nothing else named."""
        return self.kinds_right / self.kinds if self.kinds else 0.0
