"""Four peers' methods of finding a slow node, reimplemented from their descriptions (reference/peers.md, section 3).

Each measures the same simulated cluster and returns the nodes it flags and the rounds it took.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from bench.clusters import NOMINAL_GB_PER_S, Simulated
from clusterproof.plugins.benchmarks.pairwise import circle
from clusterproof.plugins.evidence.pairs import Pair, pair

FLOOR = 0.8 * NOMINAL_GB_PER_S  # CHS: 150 GB/s where about 190 is usual
TIMES_THE_MEDIAN = 2.0  # dlrover
UNDER_THE_MEAN = 0.95

Flagged = tuple[set[str], int]


def two_passes_with_a_floor(cluster: Simulated) -> Flagged:
    """Random pairs; pairs below a fixed floor again, each node with one that passed, good nodes in turn."""
    nodes = cluster.random.sample(cluster.nodes, len(cluster.nodes))
    first = _measure(cluster, _neighbours(nodes), 0)
    suspects = sorted({node for measured, busbw in first.items() if busbw < FLOOR for node in measured.nodes})
    good = [node for node in nodes if node not in set(suspects)]
    if not suspects or not good:
        return set(suspects), 1
    again = [pair(node, good[number % len(good)]) for number, node in enumerate(suspects)]
    uses = Counter(node for measured in again for node in measured.nodes)  # a good node may be in several pairs at once
    second = _measure(cluster, again, 1, uses)
    return {node for node, measured in zip(suspects, again, strict=True) if second[measured] < FLOOR}, 2


def neighbours_and_best_of(cluster: Simulated) -> Flagged:
    """Neighbours; then the bad nodes one by one with good nodes in turn; a node's best measurement counts."""
    best: dict[str, float] = defaultdict(float)
    first = _measure(cluster, _neighbours(cluster.nodes), 0)
    _keep_best(best, first)
    bad = sorted({node for measured, busbw in first.items() if busbw < FLOOR for node in measured.nodes})
    good = [node for node in cluster.nodes if node not in set(bad)]
    for number, node in enumerate(bad):
        partner = good[number % len(good)] if good else bad[number - 1]
        if partner != node:
            _keep_best(best, _measure(cluster, [pair(node, partner)], number + 1))
    return {node for node in cluster.nodes if best[node] < FLOOR}, 1 + len(bad)


def twice_the_median(cluster: Simulated) -> Flagged:
    """Neighbours, then fastest with slowest; a node is slow if its better time exceeds twice the median."""
    first = _measure(cluster, _neighbours(cluster.nodes), 0)
    best: dict[str, float] = defaultdict(float)
    _keep_best(best, first)
    ordered = sorted(cluster.nodes, key=lambda node: best[node])
    half = len(ordered) // 2
    second = [
        pair(first_node, other) for first_node, other in zip(ordered[:half], reversed(ordered[half:]), strict=False)
    ]
    _keep_best(best, _measure(cluster, second, 1))
    times = {node: 1 / max(best[node], 1e-9) for node in cluster.nodes}
    middle = median(times.values())
    return {node for node in cluster.nodes if times[node] > TIMES_THE_MEDIAN * middle}, 2


def sweep_and_mean(cluster: Simulated) -> Flagged:
    """All pairs; a node is slow if its mean is 5 % below the overall mean."""
    busbw_by_node: dict[str, list[float]] = defaultdict(list)
    rounds = circle(cluster.nodes)
    for number, pairs in enumerate(rounds):
        for link, busbw in _measure(cluster, pairs, number).items():
            for node in link.nodes:
                busbw_by_node[node].append(busbw)
    means = {node: fmean(values) for node, values in busbw_by_node.items()}
    mean_of_all = fmean(means.values())
    return {node for node, mean in means.items() if mean < UNDER_THE_MEAN * mean_of_all}, len(rounds)


RULES: Mapping[str, Callable[[Simulated], Flagged]] = {
    "two passes, fixed floor": two_passes_with_a_floor,
    "neighbours, best of": neighbours_and_best_of,
    "twice the median": twice_the_median,
    "full sweep, 5 % of the mean": sweep_and_mean,
}


def _neighbours(nodes: Sequence[str]) -> list[Pair]:
    return [pair(first, other) for first, other in zip(nodes[::2], nodes[1::2], strict=False)]


def _measure(
    cluster: Simulated, pairs: Sequence[Pair], number: int, uses: Mapping[str, int] | None = None
) -> dict[Pair, float]:
    return {
        measurement.pair: measurement.reading.busbw_gb_per_s or 0.0
        for measurement in cluster.measure(pairs, number, uses)
    }


def _keep_best(best: dict[str, float], busbw_by_pair: Mapping[Pair, float]) -> None:
    for link, busbw in busbw_by_pair.items():
        for node in link.nodes:
            best[node] = max(best[node], busbw)
