"""How often the pairwise test names what is wrong, and how often it flags what is healthy.

Simulates clusters of 8 to 2048 nodes with known faults, beside four peers' rules on the same clusters, and clusters
under noise that is nobody's fault. The last line is one JSON object. `scripts/simulate stragglers` simulates training
runs; `scripts/simulate real_runs` runs PyTorch.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import log
from random import Random

from bench.clusters import NOMINAL_GB_PER_S, Simulated, names, racks_of
from bench.faults import FAULTS, SLOWER, Fault, slow_nodes
from bench.noisy import under_noise
from bench.peer_rules import RULES
from bench.tables import GOAL_EFFECT, GOAL_NOISE, OURS, Tallies, figures, noise_table, tables
from bench.tally import Tally
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, next_round, plan
from clusterproof.plugins.evidence.pairs import Kind, Measurement
from scripts.arguments import share_asked

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
NOISES = (GOAL_NOISE, 0.01, 0.04)
MIN_EFFECT = -log(0.95)
FLOOR = 0.8 * NOMINAL_GB_PER_S
NODES_A_CELL = 2048  # simulated for each size and fault, over as many clusters as it takes
GOAL_SHARE = 3  # factor where the goal is measured
OTHER_SHARE = 0.5
MAX_FOR_A_SWEEP = 256  # nodes; a full sweep of 2048 takes two million measurements per cluster
PROCESSES = 2


@dataclass(frozen=True)
class Cell:
    """Clusters of one size with one fault; `slower` is set where nodes are slow, otherwise the fault's name."""

    what: str
    size: int
    noise: float
    share: float
    slower: float | None = None


def cells(share: float, sizes: Sequence[int]) -> Iterator[Cell]:
    """All cells, the most expensive first, so that no process is left waiting at the end."""
    for size in reversed(sizes):
        for fault in FAULTS:
            more: float = GOAL_SHARE if fault.name == "nothing" else 1
            yield Cell(fault.name, size, GOAL_NOISE, share * more)
        for noise in NOISES:
            for slower in SLOWER:
                is_goal = (noise, slower) == (GOAL_NOISE, GOAL_EFFECT)
                more = GOAL_SHARE if is_goal else 1 if noise == GOAL_NOISE else OTHER_SHARE
                yield Cell("slow nodes", size, noise, share * more, slower)


def clusters(cell: Cell) -> Iterator[tuple[Simulated, PairPlan]]:
    """Healthy clusters, with racks from 16 nodes on; deterministic."""
    nodes = names(cell.size)
    for number in range(max(1, round(cell.share * NODES_A_CELL / cell.size))):
        seed = number * 100_003 + cell.size
        random = Random(f"{cell.what} {cell.slower} {cell.noise} {seed}")
        cluster = Simulated(nodes, random, cell.noise, racks_of(nodes) if cell.size >= 16 else {})
        yield cluster, plan(cluster.nodes, cluster.racks, MIN_EFFECT, seed=seed)


def ours(cluster: Simulated, made: PairPlan, floor: float | None = None) -> tuple[Analysis, int]:
    """A campaign as a real run makes it: its conclusion and its rounds."""
    measurements: list[Measurement] = []
    while True:
        number, pairs = next_round(made, measurements)
        if not pairs:
            return analyse(measurements, made.settings, floor), number
        measurements += cluster.measure(pairs, number)


def flagged_in(analysis: Analysis) -> set[str]:
    """The nodes that the analysis flags as slow or failing."""
    return {
        node
        for finding in analysis.findings
        if finding.kind in (Kind.SLOW_NODE, Kind.FAILING_NODE)
        for node in finding.nodes
    }


def run(cell: Cell) -> tuple[Cell, dict[str, Tally]]:
    """Apply each rule to a cell."""
    if cell.slower is not None:
        return cell, _slow_nodes(cell, cell.slower)
    return cell, _kinds(cell, next(fault for fault in FAULTS if fault.name == cell.what))


def _rules(cell: Cell) -> Iterable[str]:
    return (name for name in RULES if cell.size <= MAX_FOR_A_SWEEP or "sweep" not in name)


def _slow_nodes(cell: Cell, slower: float) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    for cluster, made in clusters(cell):
        slow_nodes(cluster, slower)
        analysis, rounds = ours(cluster, made)
        tallies[OURS].nodes(cluster, flagged_in(analysis), rounds)
        if cell.noise == GOAL_NOISE:
            for name in _rules(cell):
                tallies[name].nodes(cluster, *RULES[name](cluster))
    return tallies


def _kinds(cell: Cell, fault: Fault) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    undecided = {Kind.INTERMITTENT, Kind.INCONCLUSIVE}  # these admit that they do not know
    for cluster, made in clusters(cell):
        if not fault.put(cluster, cluster.random, [finding for pairs in made.first for finding in pairs]):
            continue
        analysis, rounds = ours(cluster, made, FLOOR)
        kinds = {finding.kind for finding in analysis.findings} - undecided
        tallies[OURS].nodes(cluster, flagged_in(analysis), rounds)
        tallies[OURS].kind(kinds == fault.right, ", ".join(sorted(finding.value for finding in kinds)))
        for name in _rules(cell):
            flagged, rounds = RULES[name](cluster)
            tallies[name].nodes(cluster, flagged, rounds)
            is_right = flagged == set(cluster.dead) and fault.right <= {Kind.FAILING_NODE}  # the rules know only these
            tallies[name].kind(is_right, "slow nodes" if flagged else "nothing")
    return tallies


def simulate(share: float, sizes: Sequence[int] = SIZES, processes: int = PROCESSES) -> Tallies:
    """Simulate every cell, in parallel processes."""
    cells_of_all = list(cells(share, sizes))
    if processes < 2:
        by_cell: Mapping[Cell, dict[str, Tally]] = dict(map(run, cells_of_all))
    else:
        with ProcessPoolExecutor(processes) as pool:
            by_cell = dict(pool.map(run, cells_of_all))
    all_tallies = Tallies()
    for cell, tallies in by_cell.items():
        for name, tally in tallies.items():
            all_tallies.add((cell.what, cell.slower, cell.noise, cell.size), name, tally)
    return all_tallies


def main(arguments: Sequence[str]) -> int:
    """Print the tables and the figures as one JSON object; return 0 if each fault was simulated."""
    share = share_asked("scripts/simulate", __doc__, arguments)
    tallies = simulate(share)
    noises = under_noise(share, processes=PROCESSES)
    print(tables(tallies, MAX_FOR_A_SWEEP), noise_table(noises), sep="\n\n")
    tried = {fault.name: tallies.sum(OURS, fault.name).kinds for fault in FAULTS}
    print("clusters simulated:", ", ".join(f"{count} with {name}" for name, count in tried.items()))
    print(json.dumps({**figures(tallies), "noises": {name: asdict(of) for name, of in noises.items()}}))
    return 0 if all(tried.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
