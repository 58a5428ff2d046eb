"""`make simulate`: how often the pairwise test names what is wrong, and how often it accuses the innocent.

Clusters of 8 to 2048 nodes whose faults are known, beside four peers' rules on the same clusters. The last line is one
JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import log
from random import Random

from bench.clusters import NOMINAL_GB_PER_S, Simulated, names, racks_of
from bench.peer_rules import RULES
from clusterproof.plugins.pairwise.analysis import analyse
from clusterproof.plugins.pairwise.campaign import next_round, plan
from clusterproof.plugins.pairwise.findings import Analysis, Kind
from clusterproof.plugins.pairwise.model import Measurement

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SLOWER = (0.03, 0.05, 0.07, 0.10, 0.20, 0.50)
NOISES = (0.01, 0.02, 0.04)
MIN_EFFECT = -log(0.95)
FLOOR = 0.8 * NOMINAL_GB_PER_S
NODES_A_CELL = 4096  # simulated for each size and fault: so many clusters that they have this many nodes together
MOST_FOR_A_SWEEP = 256  # nodes; a full sweep of 2048 is two million measurements a cluster
GOAL_NOISE = 0.02


@dataclass
class Tally:
    """What one rule did."""

    slow: int = 0
    found: int = 0
    healthy: int = 0
    accused: int = 0
    kinds: int = 0
    kinds_right: int = 0
    rounds: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, cluster: Simulated, accused: set[str], rounds: int) -> None:
        """Count one cluster."""
        slow = set(cluster.slow_nodes)
        self.slow += len(slow)
        self.found += len(accused & slow)
        self.healthy += len(cluster.nodes) - len(slow | set(cluster.dead))
        self.accused += len(accused - slow - set(cluster.dead))
        self.rounds = max(self.rounds, rounds)

    @property
    def detection(self) -> float:
        """The share of slow nodes that were named."""
        return self.found / self.slow if self.slow else 0.0

    @property
    def false_accusation(self) -> float:
        """The share of healthy nodes that were."""
        return self.accused / self.healthy if self.healthy else 0.0


def ours(cluster: Simulated, seed: int, floor: float | None = None) -> tuple[Analysis, int, list[Measurement]]:
    """The campaign, as a run makes it: what it says, and in how many rounds."""
    made = plan(cluster.nodes, cluster.racks, MIN_EFFECT, seed=seed)
    told: list[Measurement] = []
    while True:
        number, pairs = next_round(made, told)
        if not pairs:
            return analyse(told, made.settings, floor), number, told
        told += cluster.measure(pairs, number)


def slow_nodes(cluster: Simulated, slower: float, random: Random) -> None:
    """Up to a tenth of the nodes, at least one."""
    count = random.randint(1, max(1, len(cluster.nodes) // 10))
    cluster.slow_nodes = dict.fromkeys(random.sample(cluster.nodes, count), 1 - slower)


def accused_of(analysis: Analysis) -> set[str]:
    """The nodes that the analysis blames by themselves."""
    return {node for one in analysis.findings if one.kind in (Kind.SLOW_NODE, Kind.FAILING_NODE) for node in one.nodes}


def clusters(size: int, salt: str, noise: float, share: float = 1.0) -> Iterator[tuple[Simulated, int]]:
    """Healthy clusters of a size, with racks from 16 nodes on; always the same ones."""
    nodes = names(size)
    for number in range(max(1, round(share * NODES_A_CELL / size))):
        seed = number * 100_003 + size
        random = Random(f"{salt} {noise} {seed}")
        yield Simulated(nodes, random, noise, racks_of(nodes) if size >= 16 else {}), seed


def slow_node_table(noise: float, share: float) -> dict[float, dict[str, Tally]]:
    """Slow nodes of each effect at every size: ours beside the peers."""
    table: dict[float, dict[str, Tally]] = {}
    for slower in SLOWER:
        tallies: dict[str, Tally] = defaultdict(Tally)
        for size in SIZES:
            for cluster, seed in clusters(size, f"slow {slower}", noise, share):
                slow_nodes(cluster, slower, cluster.random)
                analysis, rounds, _ = ours(cluster, seed)
                tallies["clusterproof"].add(cluster, accused_of(analysis), rounds)
                for name, rule in RULES.items():
                    if noise == GOAL_NOISE and (size <= MOST_FOR_A_SWEEP or "sweep" not in name):
                        tallies[name].add(cluster, *rule(cluster))
        table[slower] = tallies
    return table


@dataclass(frozen=True)
class Fault:
    """One kind of trouble: how it is put into a cluster, and which kinds of findings name it rightly."""

    name: str
    put: Callable[[Simulated, Random, list[Measurement]], bool]
    right: frozenset[Kind]


def _healthy(_cluster: Simulated, _random: Random, _told: Sequence[Measurement]) -> bool:
    return True


def _slow_rack(cluster: Simulated, random: Random, _told: Sequence[Measurement]) -> bool:
    racks = sorted(set(cluster.racks.values()))
    if len(racks) < 3:
        return False
    cluster.slow_racks = {random.choice(racks): 1 - random.choice(SLOWER[2:])}
    return True


def _contention(cluster: Simulated, random: Random, _told: Sequence[Measurement]) -> bool:
    cluster.spine = random.uniform(0.5, 0.9)
    return True


def _dead(cluster: Simulated, random: Random, _told: Sequence[Measurement]) -> bool:
    cluster.dead = set(random.sample(cluster.nodes, random.randint(1, max(1, len(cluster.nodes) // 20))))
    return True


def _whole(cluster: Simulated, random: Random, _told: Sequence[Measurement]) -> bool:
    cluster.whole = random.uniform(0.1, 0.7)
    return True


def _slow_link(cluster: Simulated, random: Random, told: Sequence[Measurement]) -> bool:
    """Of those that the first rounds measure: of others nothing can be known."""
    measured = sorted({one.pair for one in told if one.round < 4})
    cluster.slow_links = {random.choice(measured): 1 - random.choice(SLOWER[3:])}
    return True


FAULTS = (
    Fault("nothing", _healthy, frozenset()),
    Fault("a slow link", _slow_link, frozenset({Kind.SLOW_LINK})),
    Fault("a slow rack", _slow_rack, frozenset({Kind.SLOW_GROUP})),
    Fault("contention", _contention, frozenset({Kind.CONTENTION})),
    Fault("failing nodes", _dead, frozenset({Kind.FAILING_NODE})),
    Fault("everything slow", _whole, frozenset({Kind.CONFIGURATION})),
)
NO_ACCUSATION = frozenset({Kind.INTERMITTENT, Kind.INCONCLUSIVE})  # says what it does not know


def kinds_table(noise: float, share: float) -> dict[str, Tally]:
    """How often each kind of trouble is called by its name, and nothing else is."""
    found: dict[str, Tally] = {}
    for fault in FAULTS:
        tally = found.setdefault(fault.name, Tally())
        for size in SIZES:
            for cluster, seed in clusters(size, fault.name, noise, share):
                told = ours(cluster, seed)[2] if fault.put is _slow_link else []
                if not fault.put(cluster, cluster.random, told):
                    continue
                analysis, rounds, _ = ours(cluster, seed, FLOOR)
                tally.add(cluster, accused_of(analysis), rounds)
                kinds = {one.kind for one in analysis.findings} - NO_ACCUSATION
                tally.kinds += 1
                tally.kinds_right += kinds == fault.right
                if kinds != fault.right:
                    tally.wrong[", ".join(sorted(kinds)) or "nothing"] += 1
    return found


def main(share: float = 1.0) -> None:
    """Print the tables, and the figures as one JSON object. `share` makes fewer clusters, or more."""
    goal = slow_node_table(GOAL_NOISE, share)
    print(
        f"slow nodes, {GOAL_NOISE:.0%} noise, 5 % outliers, {SIZES[0]} to {SIZES[-1]} nodes: detected / falsely accused"
    )
    for slower, tallies in goal.items():
        for name, tally in tallies.items():
            print(
                f"{slower:5.0%}  {name:28} {tally.detection:8.3%}  {tally.accused} of {tally.healthy}"
                f"  {tally.rounds} rounds"
            )
    for noise in NOISES:
        if noise != GOAL_NOISE:
            for slower, tallies in slow_node_table(noise, share / 4).items():
                tally = tallies["clusterproof"]
                print(f"{noise:.0%} noise {slower:5.0%}: {tally.detection:8.3%}  {tally.accused} of {tally.healthy}")
    kinds = kinds_table(GOAL_NOISE, share)
    for name, tally in kinds.items():
        print(
            f"{name:16} called so {tally.kinds_right} of {tally.kinds}; accused {tally.accused} of {tally.healthy}"
            f"; {tally.rounds} rounds; else {dict(tally.wrong)}"
        )
    print(json.dumps(figures(goal, kinds)))


def figures(goal: dict[float, dict[str, Tally]], kinds: dict[str, Tally]) -> dict[str, object]:
    """The figures that count."""
    own = [tallies["clusterproof"] for tallies in goal.values()]
    accused = sum(tally.accused for tally in [*own, *kinds.values()])
    healthy = sum(tally.healthy for tally in [*own, *kinds.values()])
    of_node = goal[0.07]["clusterproof"]
    right = sum(tally.kinds_right for tally in kinds.values()) + of_node.found
    return {
        "detected_7pct": round(of_node.detection, 5),
        "false_accusation": round(accused / healthy, 7),
        "kind_right": round(right / (sum(tally.kinds for tally in kinds.values()) + of_node.slow), 5),
        "rounds_max": max(tally.rounds for tally in [*own, *kinds.values()]),
        "peers": {
            name: {
                "detected_7pct": round(goal[0.07][name].detection, 5),
                "false_accusation": round(
                    sum(tallies[name].accused for tallies in goal.values())
                    / sum(tallies[name].healthy for tallies in goal.values()),
                    7,
                ),
                "rounds_max": max(tallies[name].rounds for tallies in goal.values()),
            }
            for name in RULES
        },
    }


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
