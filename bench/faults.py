"""The faults of simulated clusters, and which findings name each correctly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.clusters import Simulated
from clusterproof.plugins.evidence.pairs import Kind, Pair

SLOWER = (0.03, 0.05, 0.07, 0.10, 0.20, 0.50)


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `put` gets the pairs of the first rounds, and returns whether the cluster can have it."""

    name: str
    put: Callable[[Simulated, Random, list[Pair]], bool]
    right: frozenset[Kind]


def slow_nodes(cluster: Simulated, slower: float) -> None:
    """Make up to a tenth of the nodes slow, at least one."""
    count = cluster.random.randint(1, max(1, len(cluster.nodes) // 10))
    cluster.slow_nodes = dict.fromkeys(cluster.random.sample(cluster.nodes, count), 1 - slower)


def _healthy(_cluster: Simulated, _random: Random, _first: list[Pair]) -> bool:
    return True


def _slow_link(cluster: Simulated, random: Random, first: list[Pair]) -> bool:
    cluster.slow_links = {random.choice(first): 1 - random.choice(SLOWER[3:])}  # nothing can be known of other links
    return True


def _slow_rack(cluster: Simulated, random: Random, _first: list[Pair]) -> bool:
    racks = sorted(set(cluster.racks.values()))
    if len(racks) < 3:
        return False
    cluster.slow_racks = {random.choice(racks): 1 - random.choice(SLOWER[2:])}
    return True


def _contention(cluster: Simulated, random: Random, _first: list[Pair]) -> bool:
    cluster.spine = random.uniform(0.5, 0.9)
    return True


def _dead(cluster: Simulated, random: Random, _first: list[Pair]) -> bool:
    cluster.dead = set(random.sample(cluster.nodes, random.randint(1, max(1, len(cluster.nodes) // 20))))
    return True


def _whole(cluster: Simulated, random: Random, _first: list[Pair]) -> bool:
    cluster.whole = random.uniform(0.1, 0.7)
    return True


FAULTS = (
    Fault("nothing", _healthy, frozenset()),
    Fault("a slow link", _slow_link, frozenset({Kind.SLOW_LINK})),
    Fault("a slow rack", _slow_rack, frozenset({Kind.SLOW_GROUP})),
    Fault("contention", _contention, frozenset({Kind.CONTENTION})),
    Fault("failing nodes", _dead, frozenset({Kind.FAILING_NODE})),
    Fault("everything slow", _whole, frozenset({Kind.CONFIGURATION})),
)
