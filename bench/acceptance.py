"""How often an acceptance rejects a good node, and how often it accepts a bad one.

Simulated clusters of 64 to 4,096 nodes under the noises of bench/noises, each with weak nodes of eight kinds; some have
a rack or batch that is slower or faster as a whole, or become slower all together. The last line is one JSON object.
Both shares have 95 % intervals (Wilson). A declared rate holds if its interval ends below it and is broken if the
interval begins above it; otherwise there were too few nodes to say. The seeds were set aside while the rules were
written; `--writing` uses the seeds that the rules were written with.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from math import sqrt
from random import Random

from bench.accepted_clusters import DRIFT, KINDS, MEASURES, SHARED, Cluster, made
from bench.faults import slow_nodes
from bench.noises import NOISES, Noise
from bench.noisy import LEAVES_OPEN, OF_NODES, concluded, disturbed
from clusterproof.plugins.accept.population import Errors
from clusterproof.plugins.accept.sequential import Decision, Population, decision_of, to_measure
from clusterproof.plugins.catalog.acceptance import default_errors
from clusterproof.plugins.evidence.pairs import Kind
from scripts.arguments import Arguments, share

SIZES = {64: 16, 256: 5, 1024: 1, 4096: 1}  # nodes: how many clusters under each noise
IN_COMMON = {64: 9, 256: 3}  # the same where nodes of a rack, of a batch, or all have something in common
OF_PAIRS = {64: 8, 256: 2}  # the same where a network is measured, which takes far longer
ON_THE_NETWORK = 0.10  # slower: the pairwise test promises to miss no such node
PROCESSES = 2
TRIES = sum(MEASURES.values())
NETWORK = "its network is slow"
Z = 1.96
HELD_ASIDE = "held aside "  # prefix of each cluster's seed


@dataclass(frozen=True)
class Tally:
    """How many good and bad nodes were accepted or rejected."""

    clusters: int = 0
    good: int = 0
    good_rejected: int = 0
    good_open: int = 0
    bad: int = 0
    bad_accepted: int = 0
    bad_open: int = 0
    shared: int = 0  # measurements of a cluster in which nodes have something in common,
    shared_said: int = 0  # and how often that is reported
    measured: int = 0  # measurements of a cluster,
    wrongly_said: int = 0  # of which a rack or batch was wrongly reported to differ

    def __add__(self, other: Tally) -> Tally:
        """Add the counts."""
        return Tally(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


Tallies = dict[str, Tally]  # by kind of weak node; "good" for the others


def accepted(cluster: Cluster, errors: Errors) -> tuple[dict[str, Decision], Sequence[Population]]:
    """Each node's state after the stages that test nodes alone, as an acceptance runs them."""
    wrong = {node for _ in range(errors.least_runs) for node in cluster.nodes if cluster.is_wrong(node)}
    populations = {name: Population(errors, TRIES, levels=cluster.levels) for name in MEASURES}
    decisions = {node: Decision.BAD if node in wrong else Decision.OPEN for node in cluster.nodes}
    runs: Counter[str] = Counter()
    most = default_errors().most_runs
    while nodes := to_measure(decisions, runs, most, errors):
        number = runs.total()
        for name, population in populations.items():
            population.add(number, dict(cluster.run(name, number, nodes)))
            population.learn()
        runs.update(nodes)
        decisions |= {node: _decision_on(node, populations) for node in nodes}
    return decisions, [*populations.values()]


def _decision_on(node: str, populations: Mapping[str, Population]) -> Decision:
    units = (
        (population, (node, str(device)))
        for name, population in populations.items()
        for device in range(MEASURES[name])
    )
    return decision_of(
        population.judged[unit].decision if unit in population.judged else Decision.OPEN for population, unit in units
    )


def declared() -> Errors:
    """What a plan declares by default."""
    own = default_errors()
    return Errors(own.good_rejected, own.bad_accepted, own.slower, own.shows_in)


Cell = tuple[str, int, int, str]  # noise, number of nodes, number of the cluster, prefix of its seed


def alone(cell: Cell) -> Tallies:
    """The outcome for each node of one cluster."""
    name, size, number, aside = cell
    return _alone(made(size, _noise(name), f"{aside}{name} {size} {number}"))


def in_common(cell: Cell) -> Tallies:
    """The same for clusters whose nodes have something in common."""
    name, size, number, aside = cell
    shared = SHARED[(number + [noise.name for noise in NOISES].index(name)) % len(SHARED)]
    return _alone(made(size, _noise(name), f"{aside}{name} {size} {number} in common", shared))


def _alone(cluster: Cluster) -> Tallies:
    decisions, populations = accepted(cluster, declared())
    tallies = tallied(decisions, {node: KINDS[kind] for node, (kind, _) in cluster.weak.items()})
    differ = [{level for shift in population.shifts for level in shift.levels} for population in populations]
    wrong = sum(bool(of - {cluster.level}) for of in differ)
    tallies["good"] += Tally(measured=len(populations), wrongly_said=wrong)
    if cluster.shared:
        as_it_is = sum(
            population.drift is not None if cluster.shared == DRIFT else cluster.level in of
            for population, of in zip(populations, differ, strict=True)
        )
        tallies[cluster.shared] = Tally(shared=len(populations), shared_said=as_it_is)
    return tallies


def on_the_network(cell: Cell) -> Tallies:
    """The same for the pairwise test, where some nodes are slow with all partners."""
    name, size, number, aside = cell
    cluster = disturbed(_noise(name), size, Random(f"{aside}{name} {size} {number} network"))
    slow_nodes(cluster, ON_THE_NETWORK)
    analysis = concluded(cluster, number)
    rejected = {node for finding in analysis.findings if finding.kind in OF_NODES for node in finding.nodes}
    of_all = {node for finding in analysis.findings if finding.kind is Kind.INCONCLUSIVE for node in finding.nodes}
    left_open = {
        node for finding in analysis.findings if finding.kind in LEAVES_OPEN for node in finding.nodes
    } | of_all
    decisions = {
        node: Decision.BAD if node in rejected else Decision.OPEN if node in left_open else Decision.GOOD
        for node in cluster.nodes
    }
    return tallied(decisions, dict.fromkeys(cluster.slow_nodes, NETWORK))


def tallied(decisions: Mapping[str, Decision], kinds: Mapping[str, str]) -> Tallies:
    """The outcomes, by kind of weak node."""
    of_good = [decision for node, decision in decisions.items() if node not in kinds]
    tallies = {"good": Tally(1, len(of_good), of_good.count(Decision.BAD), of_good.count(Decision.OPEN))}
    for kind in dict.fromkeys(kinds.values()):
        of_kind = [decisions[node] for node, fault in kinds.items() if fault == kind]
        tallies[kind] = Tally(
            0, bad=len(of_kind), bad_accepted=of_kind.count(Decision.GOOD), bad_open=of_kind.count(Decision.OPEN)
        )
    return tallies


def _noise(name: str) -> Noise:
    return next(noise for noise in NOISES if noise.name == name)


def interval(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval."""
    if not whole:
        return 0.0, 1.0
    share, z2 = part / whole, Z * Z / whole
    middle = (share + z2 / 2) / (1 + z2)
    apart = Z * sqrt(share * (1 - share) / whole + z2 / (4 * whole)) / (1 + z2)
    return max(0.0, middle - apart), min(1.0, middle + apart)


def in_words(part: int, whole: int) -> str:
    """`3 of 400 (0.75 %; 0.26 to 2.2 %)`."""
    low, high = interval(part, whole)
    return f"{part} of {whole:,} ({part / whole if whole else 0:.3%}; {low:.3%} to {high:.3%})"


def table(tallies: Mapping[str, Tally]) -> str:
    """A row for good nodes and for each kind of weak node."""
    good = tallies.get("good", Tally())
    rows = [f"{'good nodes':<36} rejected {in_words(good.good_rejected, good.good)}, open {good.good_open}"]
    for kind in (*KINDS, NETWORK):
        of = tallies.get(kind, Tally())
        rows.append(f"{kind:<36} accepted {in_words(of.bad_accepted, of.bad)}, open {of.bad_open}")
    rows.append(f"{'what is not in common':<36} said {in_words(good.wrongly_said, good.measured)}")
    for shared in SHARED:
        of = tallies.get(shared, Tally())
        rows.append(f"{shared:<36} said {in_words(of.shared_said, of.shared)}")
    return "\n".join(rows)


def figures(tallies_of_cells: Sequence[Tallies]) -> dict[str, Tally]:
    """All counts together, by kind."""
    summed: dict[str, Tally] = {}
    for tallies in tallies_of_cells:
        for kind, tally in tallies.items():
            summed[kind] = summed.get(kind, Tally()) + tally
    return summed


def main(arguments: Sequence[str]) -> int:
    """Print the outcomes by noise and kind; return 1 unless both declared rates hold."""
    line = Arguments("scripts/simulate acceptance", __doc__)
    line.add_argument("share", type=share, nargs="?", default=1.0, help="0.1: a tenth of the clusters")
    line.add_argument("--writing", action="store_true", help="use the seeds that the rules were written with")
    option = line.parse_args(arguments)
    aside = "" if option.writing else HELD_ASIDE
    tallies_by_noise: dict[str, list[Tallies]] = {noise.name: [] for noise in NOISES}
    made_of: Counter[int] = Counter()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for part, sizes in ((alone, SIZES), (in_common, IN_COMMON), (on_the_network, OF_PAIRS)):
            cells = list(_cells(sizes, option.share, aside))
            for cell, tallies in zip(cells, pool.map(part, cells), strict=True):
                tallies_by_noise[cell[0]].append(tallies)
                made_of[cell[1]] += 1
    for name, of_noise in tallies_by_noise.items():
        print(f"{name}\n{table(figures(of_noise))}\n")
    whole = figures([tally for of_noise in tallies_by_noise.values() for tally in of_noise])
    print(f"all noises\n{table(whole)}\n")
    says = said_of(sum(whole.values(), Tally()))
    print(json.dumps(says | {"clusters_of": dict(made_of), "seeds": "writing" if option.writing else "held aside"}))
    return 0 if says["holds"] == {"good_rejected": HOLDS, "bad_accepted": HOLDS} else 1


def _cells(sizes: Mapping[int, int], share_of: float, aside: str) -> Iterator[Cell]:
    for size, count in reversed(list(sizes.items())):
        for noise in NOISES:
            drawn = Random(f"{aside}{noise.name} {size} sample").random()  # for the fractional part of their number
            for number in range(int(share_of * count + drawn)):
                yield noise.name, size, number, aside


HOLDS, BROKEN, TOO_FEW = "yes", "no", "too few nodes to say"


def said_of(every: Tally) -> dict[str, object]:
    """The last line: both shares beside the declared rates, and whether those hold."""
    own = default_errors()
    return {
        "clusters": every.clusters,
        "good_rejected": _rate(every.good_rejected, every.good),
        "bad_accepted": _rate(every.bad_accepted, every.bad),
        "good_open": round(every.good_open / max(1, every.good), 5),
        "bad_open": round(every.bad_open / max(1, every.bad), 5),
        "in_common_said": _rate(every.shared_said, every.shared),
        "wrongly_said": _rate(every.wrongly_said, every.measured),
        "declared": {"good_rejected": own.good_rejected, "bad_accepted": own.bad_accepted},
        "holds": {
            "good_rejected": _holds(every.good_rejected, every.good, own.good_rejected),
            "bad_accepted": _holds(every.bad_accepted, every.bad, own.bad_accepted),
        },
    }


def _holds(part: int, whole: int, most: float) -> str:
    low, high = interval(part, whole)
    return HOLDS if high <= most else BROKEN if low > most else TOO_FEW


def _rate(part: int, whole: int) -> dict[str, object]:
    low, high = interval(part, whole)
    return {
        "count": part,
        "of": whole,
        "share": round(part / max(1, whole), 6),
        "from": round(low, 6),
        "to": round(high, 6),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
