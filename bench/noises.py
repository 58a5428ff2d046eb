"""Noise that no node or link causes: variations of healthy clusters beyond the plain noise of `Simulated`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from random import Random

from bench.clusters import RACK, Shares
from clusterproof.plugins.evidence.pairs import Pair

ROUND_SIGMA = 0.05
STUDENT_FREEDOM, STUDENT_SCALE = 3, 0.015
ACROSS_UNLISTED_RACKS = 0.95
NODE_SIGMA = 0.01
BURSTS = 0.5  # of all rounds have a burst,
IN_A_BURST = 0.2  # which slows this share of the pairs
BURST_SHARES = (0.6, 0.95)  # to a share of their speed in this range
PATHS_PER_NODE = 4
OF_A_SHARED_PATH = 0.6
JITTERY_NODES = 0.03
JITTER_SIGMA = 0.08


@dataclass(frozen=True)
class Noise:
    """One kind of noise. `of` creates it for a cluster of these nodes; `plain` is the normal noise that remains."""

    name: str
    of: Callable[[Sequence[str], Random], Shares]
    plain: float = 0.02


def _none(_nodes: Sequence[str], _random: Random) -> Shares:
    return lambda pairs, _number: dict.fromkeys(pairs, 1.0)


def _heavy_tails(_nodes: Sequence[str], random: Random) -> Shares:
    """Student's t: one measurement in 20 deviates by more than three times its scale, in either direction."""

    def student() -> float:
        squares = sum(random.gauss(0.0, 1.0) ** 2 for _ in range(STUDENT_FREEDOM))
        return random.gauss(0.0, 1.0) / sqrt(squares / STUDENT_FREEDOM)

    return lambda pairs, _number: {measured: exp(STUDENT_SCALE * student()) for measured in pairs}


def _unlisted_racks(nodes: Sequence[str], random: Random) -> Shares:
    """Racks that the inventory does not list, in no order of the names."""
    size = min(RACK, max(2, len(nodes) // 4))
    rack = {node: number // size for number, node in enumerate(random.sample(nodes, len(nodes)))}
    return lambda pairs, _number: {
        measured: 1.0 if rack[measured.a] == rack[measured.b] else ACROSS_UNLISTED_RACKS for measured in pairs
    }


def _nodes_that_differ(nodes: Sequence[str], random: Random) -> Shares:
    """Every node is permanently a little faster or slower than the others."""
    own = {node: exp(max(-2 * NODE_SIGMA, random.gauss(0.0, NODE_SIGMA))) for node in nodes}
    return lambda pairs, _number: {measured: min(own[node] for node in measured) for measured in pairs}


def _drift(_nodes: Sequence[str], random: Random) -> Shares:
    """A factor that all pairs of a round share, and that changes with every round."""

    def shares(pairs: Sequence[Pair], _number: int) -> Mapping[Pair, float]:
        return dict.fromkeys(pairs, exp(random.gauss(0.0, ROUND_SIGMA)))

    return shares


def _bursts(_nodes: Sequence[str], random: Random) -> Shares:
    """Occasionally a share of the running pairs slows down; no pair is ever faster."""

    def shares(pairs: Sequence[Pair], _number: int) -> Mapping[Pair, float]:
        part = IN_A_BURST if random.random() < BURSTS else 0.0
        return {measured: random.uniform(*BURST_SHARES) if random.random() < part else 1.0 for measured in pairs}

    return shares


def _shared_paths(nodes: Sequence[str], random: Random) -> Shares:
    """Each pair is hashed to a fixed path between switches, and pairs on one path share its bandwidth (ECMP)."""
    path_of: dict[Pair, int] = {}

    def shares(pairs: Sequence[Pair], _number: int) -> Mapping[Pair, float]:
        for pair in pairs:
            path_of.setdefault(pair, random.randrange(PATHS_PER_NODE * len(nodes)))
        used = Counter(path_of[measured] for measured in pairs)
        return {measured: OF_A_SHARED_PATH ** (used[path_of[measured]] - 1) for measured in pairs}

    return shares


def _jittery_nodes(nodes: Sequence[str], random: Random) -> Shares:
    """A few nodes have the same average speed as the others, but vary more."""
    jittery = set(random.sample(nodes, max(1, round(JITTERY_NODES * len(nodes)))))

    def shares(pairs: Sequence[Pair], _number: int) -> Mapping[Pair, float]:
        return {
            measured: exp(sum(random.gauss(0.0, JITTER_SIGMA) for node in measured if node in jittery))
            for measured in pairs
        }

    return shares


NOISES = (
    Noise("nothing else", _none),
    Noise("heavy tails", _heavy_tails, plain=0.0),
    Noise("racks nobody told of", _unlisted_racks),
    Noise("nodes that differ", _nodes_that_differ),
    Noise("rounds that drift", _drift),
    Noise("one-sided bursts", _bursts),
    Noise("shared paths", _shared_paths),
    Noise("jittery nodes", _jittery_nodes),
    Noise("three times the noise", _none, plain=0.06),
)
