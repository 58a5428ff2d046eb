"""The pairwise test under noise that is nobody's fault: what it names, flags wrongly, and leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from math import log
from random import Random

from bench.clusters import Simulated, campaign, names
from bench.faults import slow_nodes
from bench.noises import NOISES, Noise
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.evidence.pairs import Kind

SIZES = (16, 64, 256)
CLUSTERS = {None: 2.0, 0.07: 1.0, 0.10: 2.0}  # factor on the number of nodes, by how much slower the slow nodes are
NODES_A_CELL = 2048
MIN_EFFECT = -log(0.95)
OF_NODES = {Kind.SLOW_NODE, Kind.FAILING_NODE}
OF_LINKS = {Kind.SLOW_LINK, Kind.FAILING_LINK}
LEAVES_OPEN = {Kind.INCONCLUSIVE, Kind.INTERMITTENT}


@dataclass(frozen=True)
class NoisyCell:
    """Clusters of one size under one noise; `slower` is set where nodes are slow."""

    noise: str
    size: int
    slower: float | None
    share: float


@dataclass(frozen=True)
class Borne:
    """Findings about nodes in clusters without a slow link, and in how many clusters a link was flagged."""

    slow: int = 0
    named: int = 0
    unsaid: int = 0  # slow nodes neither named nor left open
    healthy: int = 0
    flagged: int = 0
    left_open: int = 0  # healthy ones
    clusters: int = 0
    with_link: int = 0

    def __add__(self, other: Borne) -> Borne:
        """Add the counts."""
        return Borne(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Figures:
    """Shares under one noise."""

    named_7pct: float
    named_10pct: float
    unsaid_10pct: float
    false_positive_rate: float
    link_flagged: float
    left_open: float


def cells(share: float, sizes: Sequence[int]) -> Iterator[NoisyCell]:
    """All cells, the most expensive first."""
    for size in sorted(sizes, reverse=True):
        for noise in NOISES:
            for slower, times in CLUSTERS.items():
                yield NoisyCell(noise.name, size, slower, share * times)


def borne(cell: NoisyCell) -> Borne:
    """The findings about these clusters; deterministic."""
    noise = next(candidate for candidate in NOISES if candidate.name == cell.noise)
    total = Borne()
    for number in range(max(1, round(cell.share * NODES_A_CELL / cell.size))):
        seed = number * 100_003 + cell.size
        cluster = disturbed(noise, cell.size, Random(f"{cell.noise} {cell.slower} {seed}"))
        if cell.slower is not None:
            slow_nodes(cluster, cell.slower)
        total += _borne(cluster, concluded(cluster, seed))
    return total


def disturbed(noise: Noise, size: int, random: Random) -> Simulated:
    """A healthy cluster under this noise, whose racks are in no inventory."""
    nodes = names(size)
    return Simulated(nodes, random, noise.plain, disturbed=noise.of(nodes, random))


def concluded(cluster: Simulated, seed: int) -> Analysis:
    """The conclusion of a whole campaign."""
    made = plan(cluster.nodes, {}, MIN_EFFECT, seed=seed)
    return analyse(campaign(made, cluster.measure), made.settings)


def _borne(cluster: Simulated, analysis: Analysis) -> Borne:
    slow = set(cluster.slow_nodes)
    flagged = {node for finding in analysis.findings if finding.kind in OF_NODES for node in finding.nodes}
    of_all = {finding.nodes for finding in analysis.findings if finding.kind is Kind.INCONCLUSIVE and not finding.pairs}
    by_itself = {
        finding.nodes for finding in analysis.findings if finding.kind in LEAVES_OPEN and len(finding.nodes) == 1
    }
    left_open = {node for nodes in (*of_all, *by_itself) for node in nodes} - flagged
    return Borne(
        slow=len(slow),
        named=len(flagged & slow),
        unsaid=len(slow - flagged - left_open),
        healthy=len(cluster.nodes) - len(slow),
        flagged=len(flagged - slow),
        left_open=len(left_open - slow),
        clusters=1,
        with_link=any(finding.kind in OF_LINKS for finding in analysis.findings),
    )


def under_noise(share: float, sizes: Sequence[int] = SIZES, processes: int = 1) -> dict[str, Figures]:
    """The figures for each noise."""
    cells_of_noise = list(cells(share, sizes))
    if processes < 2:
        by_cell = dict(zip(cells_of_noise, map(borne, cells_of_noise), strict=True))
    else:
        with ProcessPoolExecutor(processes) as pool:
            by_cell = dict(zip(cells_of_noise, pool.map(borne, cells_of_noise), strict=True))
    return {
        noise.name: _figures({cell: of_cell for cell, of_cell in by_cell.items() if cell.noise == noise.name})
        for noise in NOISES
    }


def _figures(by_cell: dict[NoisyCell, Borne]) -> Figures:
    def of(slower: float) -> Borne:
        return sum((of_cell for cell, of_cell in by_cell.items() if cell.slower == slower), Borne())

    whole = sum(by_cell.values(), Borne())
    return Figures(
        named_7pct=_share(of(0.07).named, of(0.07).slow),
        named_10pct=_share(of(0.10).named, of(0.10).slow),
        unsaid_10pct=_share(of(0.10).unsaid, of(0.10).slow),
        false_positive_rate=_share(whole.flagged, whole.healthy),
        link_flagged=_share(whole.with_link, whole.clusters),
        left_open=_share(whole.left_open, whole.healthy),
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
