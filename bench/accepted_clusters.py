"""Clusters for `scripts/simulate acceptance`: weak nodes, and what racks, batches or all nodes have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from random import Random

from bench.clusters import OUTLIER_SHARES, OUTLIERS, Shares, names, racks_of
from bench.noises import Noise
from clusterproof.plugins.catalog.acceptance import default_errors
from clusterproof.plugins.evidence.pairs import pair

WEAK = 0.005  # share of the nodes with each kind of weakness
GPUS = 4  # per node
MEASURES: Mapping[str, int] = {"gemm": GPUS, "copies": GPUS, "all-reduce": 1, "disk": 1}  # devices that each measures
KINDS = (
    "a GPU computes slowly",
    "a GPU copies slowly",
    "NVLink is slow",
    "the disk is slow",
    "all GPUs are capped",
    "a GPU is throttled now and then",
    "a GPU computes wrong now and then",
)
SLOW_RACK, BATCH, DRIFT = "a rack is slow", "a batch is slow or fast", "all become slower"
SHARED = (SLOW_RACK, BATCH, DRIFT)
OF_A_PART = (0.02, 0.045)  # slower, or for a batch as often faster: too little to be bad
OF_A_ROUND = 0.01  # slower than the previous round
BATCH_OF = 3  # a batch has one node in three, anywhere
OF = {0: ("gemm",), 1: ("copies",), 2: ("all-reduce",), 3: ("disk",), 4: ("gemm",), 5: ("gemm",)}
ALL_GPUS, NOW_AND_THEN, WRONG = 4, 5, 6


@dataclass
class Cluster:
    """A cluster under one noise, and what a measurement of each device yields."""

    nodes: tuple[str, ...]
    random: Random
    noise: Noise
    weak: Mapping[str, tuple[int, float]]  # each weak node's kind and its share of full speed
    shared: str = ""  # what some or all have in common, of SHARED

    def __post_init__(self) -> None:
        self.shares: Mapping[str, Shares] = {name: self.noise.of(self.nodes, self.random) for name in MEASURES}
        racks, batch = racks_of(self.nodes), {*self.random.sample(self.nodes, len(self.nodes) // BATCH_OF)}
        self.levels = {
            node: (f"group {racks[node]}", f"VBIOS {'new' if node in batch else 'old'}") for node in self.nodes
        }
        chosen = {SLOW_RACK: f"group {self.random.choice([*racks.values()])}", BATCH: "VBIOS new"}
        self.level = chosen.get(self.shared, "")
        sign = self.random.choice((1, -1)) if self.shared == BATCH else 1
        self.of_level = log(1 - sign * self.random.uniform(*OF_A_PART))

    def run(self, measure: str, number: int, nodes: Sequence[str]) -> Iterator[tuple[tuple[str, str], float]]:
        """Run these nodes' devices at once; yields each with the logarithm of its measurement."""
        order = self.random.sample(list(nodes), len(nodes))
        neighbours = {node: order[at - 1] for at, node in enumerate(order)}  # the nodes that share a source of noise
        pairs = {node: pair(node, neighbours[node]) for node in nodes if neighbours[node] != node}
        shares = self.shares[measure](tuple(dict.fromkeys(pairs.values())), number)
        for node in nodes:
            shared = log(shares.get(pairs[node], 1.0)) if node in pairs else 0.0
            shared += self.of_level if self.level in self.levels[node] else 0.0
            shared += log(1 - OF_A_ROUND) * number / len(self.nodes) if self.shared == DRIFT else 0.0
            now = self.random.random() < default_errors().shows_in
            outlier = self.random.uniform(*OUTLIER_SHARES) if self.random.random() < OUTLIERS else 1.0
            for device in range(MEASURES[measure]):
                own = log(self._share(node, measure, device, now) * outlier)
                yield (node, str(device)), shared + own + self.random.gauss(0.0, self.noise.plain)

    def _share(self, node: str, measure: str, device: int, now: bool) -> float:
        kind, share = self.weak.get(node, (WRONG, 1.0))
        is_here = measure in OF.get(kind, ()) and (device == 0 or kind == ALL_GPUS)
        return share if is_here and (now or kind != NOW_AND_THEN) else 1.0

    def is_wrong(self, node: str) -> bool:
        """Whether exact arithmetic finds an error this time."""
        return self.weak.get(node, (0, 0.0))[0] == WRONG and self.random.random() < default_errors().shows_in


def made(size: int, noise: Noise, seed: str, shared: str = "") -> Cluster:
    """Make a cluster with weak nodes of each kind, and what some nodes have in common; deterministic."""
    random = Random(seed)
    nodes = names(size)
    each = max(1, round(WEAK * size))
    chosen = random.sample(nodes, each * len(KINDS))
    slower = default_errors().slower
    weak = {node: (at % len(KINDS), 1 - slower * random.uniform(1.0, 3.0)) for at, node in enumerate(chosen)}
    return Cluster(nodes, random, noise, weak, shared)
