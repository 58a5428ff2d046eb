"""Simulated measurements of pairs in clusters with known faults; 100 GB/s with a little noise is normal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

from bench.clusters import campaign
from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.evidence.pairs import Kind, Measurement, Pair, PairFault, Reading

NORMAL_GB_PER_S = 100.0


def names(count: int) -> tuple[str, ...]:
    """The nodes of a cluster: n000, n001, …"""
    return tuple(f"n{number:03}" for number in range(count))


def racks(nodes: Sequence[str], size: int) -> dict[str, str]:
    """Racks of this many nodes: r0, r1, …"""
    return {node: f"r{number // size}" for number, node in enumerate(nodes)}


def failed(pair: Pair, culprit: str = "") -> Reading:
    """A run that yielded no bandwidth."""
    return Reading(problem=f"{pair} did not end in its time", culprit=culprit)


class Cluster:
    """A cluster's faults; a share of 0.9 is 10 % slow. The same seed gives the same measurements."""

    def __init__(
        self,
        nodes: Mapping[str, float] | None = None,
        links: Mapping[Pair, float] | None = None,
        ways_out: Mapping[str, float] | None = None,
        dead: Collection[str] = (),
        dead_links: Collection[Pair] = (),
        now_and_then: Mapping[str, float] | None = None,
        most_at_once: int | None = None,
        whole: float = 1.0,
        seed: int = 1,
    ) -> None:
        self.nodes = nodes or {}
        self.links = links or {}
        self.ways_out = ways_out or {}  # by place
        self.dead = dead
        self.dead_links = dead_links
        self.now_and_then = now_and_then or {}  # every second time
        self.most_at_once = most_at_once  # pairs that do not slow each other
        self.whole = whole
        self.random = Random(seed)
        self.turns: dict[str, int] = {}

    def read(self, pair: Pair, at_once: int, places: Mapping[str, str]) -> Reading:
        """Measure this pair once."""
        if pair in self.dead_links or set(pair) & set(self.dead):
            return failed(pair)
        share = min(self.nodes.get(node, 1.0) for node in pair) * self.links.get(pair, 1.0)
        for node in set(pair) & set(self.now_and_then):
            self.turns[node] = self.turns.get(node, 0) + 1
            share *= self.now_and_then[node] if self.turns[node] % 2 else 1.0
        if not is_inside(pair, places):
            share *= min(self.ways_out.get(places.get(node, ""), 1.0) for node in pair)
        if self.most_at_once:
            share *= min(1.0, self.most_at_once / at_once)
        return Reading(NORMAL_GB_PER_S * self.whole * share * self.random.lognormvariate(0.0, 0.01))


def measured(plan: PairPlan, cluster: Cluster) -> list[Measurement]:
    """Run a whole campaign."""
    return campaign(
        plan,
        lambda pairs, number: [
            Measurement(pair, number, len(pairs), cluster.read(pair, len(pairs), plan.places)) for pair in pairs
        ],
    )


def concluded(plan: PairPlan, cluster: Cluster, floor_gb_per_s: float | None = None) -> Analysis:
    """The conclusion of a whole campaign."""
    return analyse(measured(plan, cluster), plan.settings, floor_gb_per_s)


def verdicts(findings: Iterable[PairFault]) -> set[tuple[Kind, str]]:
    """Each finding with its subject: a node, a pair, a place, or none in particular."""
    return {(finding.kind, finding.place or "~".join(finding.nodes)) for finding in findings}
