"""Chooses what to measure again: suspected nodes, pairs and places, and known good nodes as their partners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import by_node, by_pair, partners_of
from clusterproof.plugins.benchmarks.pairwise.centres import normal
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal, Value, succeeded, values
from clusterproof.plugins.benchmarks.pairwise.slow_places import SlowPlace, residuals, slow_places
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairs import Measurement, Pair

PASSES = 4  # iterations of who is suspect, so that normal is computed from the others
SUSPECT = 1 / 3  # of the minimum effect: from here on a node is retested
LINK_SIGMAS = 2.0  # and a pair
SHARE_OF_PARTNERS = 0.5  # with which a node must fail, to be suspect after one failure
CLEARED_AFTER = 2  # good retests
ENOUGH_PARTNERS = 3  # to leave the worst one out
EXPLAINS = 0.5  # of the minimum effect: from here on a suspect node explains its slow pairs,
EXPLAINED_TIMES = 3  # up to so many times as slow; and from the minimum effect on, all of them
OUTLIER_ERRORS = 2.0  # standard errors
MIN_OWN = 2  # values with partners that are not slow, to evaluate a node by those alone


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The suspects so far."""

    reference: Normal | None
    values: Sequence[Value]  # without the effects of slow places
    slow: Mapping[str, float]  # nodes that may be slow, and by how much; without those cleared by retests
    failing: tuple[str, ...]  # nodes in failed measurements that no partner explains
    links: tuple[Pair, ...]  # slow or failed pairs that neither of their nodes explains, the worst first
    places: tuple[SlowPlace, ...]
    values_by_node: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def own_values(self, node: str) -> Sequence[Value]:
        """A node's values that no suspect partner or link explains."""
        values = [value for value in self.values_by_node[node] if value.pair not in self.links] or list(
            self.values_by_node[node]
        )
        return unexplained(values, node, self.slow, _score(values))

    def with_good_partners(self, node: str) -> list[Value]:
        """A node's values with partners that are not suspect, including in suspect pairs."""
        return [value for value in self.values_by_node[node] if value.pair.other(node) not in self.slow]


def screen(measurements: Sequence[Measurement], settings: AnalysisSettings) -> Suspicion:
    """Look through all measurements so far."""
    failing = failing_nodes(measurements)
    often = Counter(measurement.pair for measurement in measurements)
    slow: dict[str, float] = {}
    excluded: set[str] = set()
    repeated: set[Pair] = set()
    placed: set[str] = set()
    for number in range(PASSES):
        typical = (
            [measurement for measurement in measurements if measurement.pair not in repeated]
            if repeated
            else measurements
        )
        untypical = [measurement for measurement in measurements if measurement.pair in repeated]
        reference = normal(typical, excluded, settings, untypical, placed)
        if reference is None:
            break
        all_values = values(measurements, reference, settings)
        places = slow_places(all_values, reference, settings)
        all_values = residuals(all_values, places, settings)
        values_by_node = by_node(all_values)
        slow = slow_nodes(values_by_node, slow, settings)
        links = slow_links(all_values, slow, reference, settings)
        before = excluded, repeated, placed
        excluded = _outliers(slow, values_by_node, reference) | (set() if number else _lowest(values_by_node))
        repeated = {link for link in links if often[link] > 1}
        placed = {node for place in places for node in place.nodes}
        if (excluded, repeated, placed) == before:
            break
    failed = _failed_links(measurements, failing)
    if reference is None:
        return Suspicion(None, (), {}, failing, failed, ())
    return Suspicion(reference, all_values, slow, failing, (*failed, *links), tuple(places), values_by_node)


def _lowest(values_by_node: Mapping[str, Sequence[Value]]) -> set[str]:
    """The lowest eighth in any case: at first they may hide in a normal that includes them."""
    scores = {node: _score(values_of_node) for node, values_of_node in values_by_node.items()}
    return set(sorted(scores, key=lambda node: (scores[node], node))[: max(1, len(scores) // 8)])


def _outliers(slow: Mapping[str, float], values_by_node: Mapping[str, Sequence[Value]], reference: Normal) -> set[str]:
    """Suspects that noise hardly explains: excluding nodes that were merely unlucky would bias the normal."""
    return {
        node
        for node, score in slow.items()
        if score < -OUTLIER_ERRORS * location_error(len(values_by_node[node]), reference.sigma)
    }


def slow_nodes(
    values_by_node: Mapping[str, Sequence[Value]], suspects: Mapping[str, float], settings: AnalysisSettings
) -> dict[str, float]:
    """Nodes with a low median, without what suspect partners explain, and without nodes cleared by retests."""
    slow = {}
    cut = -settings.min_effect * SUSPECT
    for node, values_of_node in values_by_node.items():
        if all(value.x >= cut for value in values_of_node) or (whole := _score(values_of_node)) >= cut:
            continue
        own = unexplained(values_of_node, node, suspects, whole)
        score = _score(own)
        if score < cut and not _is_cleared(own, settings):
            slow[node] = score
    return slow


def _score(values: Sequence[Value]) -> float:
    """The median over partners except the worst, however often that one was measured."""
    middles = sorted(_middles(values).values())
    return median(middles[1:] if len(middles) >= ENOUGH_PARTNERS else middles)


def but_the_worst(values: Sequence[Value]) -> Sequence[Value]:
    """The values with all partners except the worst, if there are enough: one slow link makes no slow node."""
    middles = _middles(values)
    if len(middles) < ENOUGH_PARTNERS:
        return values
    worst = min(middles, key=lambda pair: (middles[pair], pair))
    return [value for value in values if value.pair != worst]


def _middles(values: Sequence[Value]) -> dict[Pair, float]:
    of_partner: dict[Pair, list[float]] = {}
    for value in values:
        of_partner.setdefault(value.pair, []).append(value.x)
    return {pair: xs[0] if len(xs) == 1 else median(xs) for pair, xs in of_partner.items()}


def unexplained(values: Sequence[Value], node: str, suspects: Mapping[str, float], score: float) -> Sequence[Value]:
    """A node's values except those explained by a partner at least half as slow; all if too few remain.

    A good value is evidence for both ends, whoever the partner is.
    """
    own = [value for value in values if suspects.get(value.pair.other(node), 0.0) >= score / 2 or value.x > score / 2]
    return own if len(own) >= MIN_OWN else values


def _is_cleared(own: Sequence[Value], settings: AnalysisSettings) -> bool:
    again = [value for value in own if value.is_retest]
    return len({value.pair for value in again}) >= CLEARED_AFTER and _score(again) > -settings.min_effect / 4


def slow_links(
    values: Sequence[Value], slow: Mapping[str, float], reference: Normal, settings: AnalysisSettings
) -> tuple[Pair, ...]:
    """Pairs far slower than their nodes are with others, unless cleared by retests; the slowest first."""
    cut = -max(settings.min_effect, LINK_SIGMAS * reference.sigma)
    low = {value.pair for value in values if value.x < cut}
    suspects = {}
    for pair, own in by_pair(value for value in values if value.pair in low).items():
        score, middle = min(slow.get(node, 0.0) for node in pair.nodes), median(value.x for value in own)
        if _explains(score, middle, settings):
            continue
        beyond = [replace(value, x=value.x - score) for value in own]
        if min(value.x for value in beyond) < cut and not _is_well_again(beyond, settings):
            suspects[pair] = middle
    return tuple(sorted(suspects, key=lambda suspect: (suspects[suspect], suspect)))


def _explains(score: float, middle: float, settings: AnalysisSettings) -> bool:
    """Whether a node of this score explains a pair that slow: a barely suspect one does not explain far more."""
    if score > -settings.min_effect:
        return score < -settings.min_effect * EXPLAINS and middle > score * EXPLAINED_TIMES
    return True


def _is_well_again(values: Sequence[Value], settings: AnalysisSettings) -> bool:
    again = [value.x for value in values if value.is_retest]
    well = sum(x > -settings.min_effect / 2 for x in again)
    return well >= CLEARED_AFTER or any(x > -settings.min_effect / 4 for x in again)


def failing_nodes(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """Nodes with failures that are not cleared by successes with the same partners; the worst first.

    A failure with a partner that fails more often says nothing about a node, and a pair that fails repeatedly counts
    only once.
    """
    failed: dict[str, set[str]] = {}
    rates: dict[str, float] = {}
    for node, of_node in by_node(measurements).items():
        failed[node] = partners_of(node, (each for each in of_node if not each.reading.busbw_gb_per_s))
        rates[node] = len(failed[node]) / len(partners_of(node, of_node))
    own = {node: sum(rates[node] >= rates[other] for other in failed[node]) for node in rates}
    suspects = [node for node, count in own.items() if count > 1 or (count and rates[node] >= SHARE_OF_PARTNERS)]
    return tuple(sorted(suspects, key=lambda node: (-own[node], node)))


def _failed_links(measurements: Sequence[Measurement], failing: Sequence[str]) -> tuple[Pair, ...]:
    links = []
    for pair, tried in by_pair(measurements).items():
        well = len(succeeded(tried))
        if well < len(tried) and well < CLEARED_AFTER and not set(failing) & set(pair):
            links.append(pair)
    return tuple(links)
