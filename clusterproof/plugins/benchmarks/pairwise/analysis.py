"""Analyses measurements of pairs; the only module that names a node as slow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import by_pair, named_in, nodes_of, pairs_of
from clusterproof.plugins.benchmarks.pairwise.findings import (
    deduplicated,
    failing_or_suspect,
    link_findings,
)
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal, succeeded
from clusterproof.plugins.benchmarks.pairwise.screen import Suspicion, screen
from clusterproof.plugins.benchmarks.pairwise.slow_places import SlowPlace
from clusterproof.plugins.benchmarks.pairwise.suspects import (
    RETESTS,
    estimates_of,
    left_open,
    slow_now_and_then,
    suspected,
    too_noisy,
)
from clusterproof.plugins.core.message import format_speeds
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairs import (
    Estimate,
    Kind,
    Measurement,
    Pair,
    PairFault,
    estimated,
)

SHARE_UNDER_FLOOR = 0.5  # of all pairs: from this share on no node is named
SLOWER_STILL = "most pairs are under the floor, and their cause may be its own; measure it again once they reach it"
FAR_FASTER = 2.0  # times the minimum effect,
FAR_FASTER_SIGMAS = 4.0  # and standard deviations, by which a pair is far faster than normal
MIN_FAR_FASTER = 2  # measurements of such pairs
TOO_FEW = 3  # nodes: with two, nobody can say which is slow


@dataclass(frozen=True, slots=True)
class Analysis:
    """The findings and estimates that the measurements lead to."""

    findings: tuple[PairFault, ...] = ()
    normal: Normal | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # for every measured node


def analyse(
    measurements: Sequence[Measurement], settings: AnalysisSettings, floor_gb_per_s: float | None = None
) -> Analysis:
    """The findings from these measurements. The floor is in busbw; None if unknown."""
    screened = screen(measurements, settings)
    nodes = nodes_of(measurements)
    failing = failing_or_suspect(measurements)
    if screened.reference is None:
        named = tuple(finding for finding in failing if finding.kind is Kind.FAILING_NODE)
        return Analysis(named or (_nothing(measurements),))
    estimates = estimates_of(screened, len(nodes))
    contention = _contention(screened.reference, settings)
    by_speed = sorted(screened.slow, key=lambda node: screened.slow[node])
    slow = [*filter(None, (suspected(node, screened, estimates[node], settings) for node in by_speed))]
    configuration = None if contention else _configuration(measurements, floor_gb_per_s, screened.reference, settings)
    if configuration:
        unproven = [replace(fault, kind=Kind.INCONCLUSIVE, words=SLOWER_STILL) for fault in slow]
        unproven += _slow_like_most(screened, nodes - screened.slow.keys(), estimates, settings)
        return Analysis((configuration, *deduplicated(unproven, failing)), screened.reference, estimates)
    places = [_slow_place(place, screened, settings) for place in screened.places]
    of_nodes = deduplicated(slow, failing)
    named_nodes = named_in(of_nodes)
    links = link_findings(screened, measurements, named_nodes, settings, len(nodes))
    blamed = named_nodes | named_in(link for link in links if link.kind is not Kind.INCONCLUSIVE)
    intermittent = slow_now_and_then(screened, nodes - blamed, estimates, settings)
    reported = blamed | named_in(intermittent)
    like_most = _slow_like_most(screened, nodes - reported, estimates, settings)
    reported |= named_in(like_most)
    unclear = _too_few(screened, floor_gb_per_s, settings) or too_noisy(screened, settings)
    jittery = [] if unclear else left_open(screened, nodes - reported, estimates, settings)
    return Analysis(
        (*contention, *places, *of_nodes, *links, *intermittent, *like_most, *jittery, *unclear),
        screened.reference,
        estimates,
    )


def _nothing(measurements: Sequence[Measurement]) -> PairFault:
    nodes = tuple(sorted(nodes_of(measurements)))
    return PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(measurements), words="nothing was measured")


def _too_few(screened: Suspicion, floor_gb_per_s: float | None, settings: AnalysisSettings) -> tuple[PairFault, ...]:
    """A finding that so few nodes cannot be distinguished: two have no third to compare with; of three, each is in
    most pairs.
    """
    nodes = tuple(sorted(screened.values_by_node))
    if len(nodes) < TOO_FEW and floor_gb_per_s is None:
        message = "two nodes have nobody to be compared with: measure them with a third, or give --baseline"
        return (PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(screened.values), words=message),)
    xs = [value.x for value in screened.values]
    if len(nodes) == TOO_FEW and max(xs) - min(xs) > 2 * settings.min_effect:
        spread_percent = (1 - exp(min(xs) - max(xs))) * 100
        message = f"pairs of three nodes differ by up to {spread_percent:.0f} %: measure them with a fourth"
        return (PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(xs), words=message),)
    return ()


def _slow_like_most(
    screened: Suspicion, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: AnalysisSettings
) -> list[PairFault]:
    """Findings for those of these nodes that may all be slow: half of all or more are far faster with one another.

    If most pairs have a slow node, what is normal is slow. Nobody is named, as these pairs may be fast for a reason.
    """
    assert screened.reference is not None
    of_pair = by_pair(screened.values)
    middles = {pair: median(value.x for value in values) for pair, values in of_pair.items()}
    least = max(FAR_FASTER * settings.min_effect, FAR_FASTER_SIGMAS * screened.reference.sigma)
    fast = {pair: x for pair, x in middles.items() if x > least}
    well, known = {node for pair in fast for node in pair}, {node for pair in of_pair for node in pair}
    is_of_most = 2 * len(well) >= len(known) > TOO_FEW and len(known - well) > 1
    are_alike = all(pair in fast for pair in of_pair if well.issuperset(pair))
    if not is_of_most or not are_alike or sum(len(of_pair[pair]) for pair in fast) < MIN_FAR_FASTER:
        return []
    percent = (exp(median(fast.values())) - 1) * 100
    faster = f"pairs of {fold(well)} with one another are {percent:.0f} % faster than all others"
    words = f"{faster}: measure it with more nodes, or give --baseline"
    return [
        PairFault(Kind.INCONCLUSIVE, (node,), estimate=estimates.get(node), words=words, pairs=_pairs_of(node, of_pair))
        for node in sorted((known - well) & set(nodes))
    ]


def _pairs_of(node: str, pairs: Collection[Pair]) -> tuple[Pair, ...]:
    return tuple(pair for pair in pairs if node in pair)


def _configuration(
    measurements: Sequence[Measurement], floor_gb_per_s: float | None, reference: Normal, settings: AnalysisSettings
) -> PairFault | None:
    """A finding that most pairs are under the floor: no single node causes that. Contended pairs are not used.

    Nor is it found where pairs of nodes that are not suspected reach the floor. Retests do not count: most of them are
    of suspects.
    """
    floor, succeeding = floor_gb_per_s or 0.0, succeeded(measurements)
    if exp(min(reference.inside, reference.across)) >= floor:
        return None
    first = [measurement for measurement in succeeding if measurement.round < settings.first_rounds] or succeeding
    busbw = [measurement.reading.busbw_gb_per_s or 0.0 for measurement in first]
    count = sum(value < floor for value in busbw)
    if count <= SHARE_UNDER_FLOOR * len(first):
        return None
    middle, least = format_speeds(median(busbw), floor)
    message = f"{count} of {len(first)} measurements are under the floor of {least}, their median is {middle}"
    under = [measurement for measurement in succeeding if (measurement.reading.busbw_gb_per_s or 0.0) < floor]
    return PairFault(Kind.CONFIGURATION, tuple(sorted(nodes_of(under))), words=message, pairs=pairs_of(under))


def _contention(reference: Normal, settings: AnalysisSettings) -> list[PairFault]:
    """A finding that pairs are faster when fewer run at once."""
    findings = []
    for relief, what in ((reference.relief_inside, "inside places"), (reference.relief_across, "across places")):
        if relief >= settings.min_effect:
            which_pairs = f"pairs {what} are" if settings.places else "pairs are"
            gained = f"{which_pairs} {1 - exp(-relief):.0%} slower when all run at once than when at most half do"
            findings.append(PairFault(Kind.CONTENTION, estimate=estimated(-relief, 0.0, 0), words=gained))
        if not settings.places and findings:
            break
    return findings


def _slow_place(place: SlowPlace, screened: Suspicion, settings: AnalysisSettings) -> PairFault:
    """A slow place; contention there, where its pairs are well when at most half run at once."""
    assert screened.reference is not None
    of_it = set(place.nodes)
    touching = [value for value in screened.values if not value.is_inside and of_it & set(value.pair.nodes)]
    again = [value.x + place.across for value in touching if value.is_retest and value.is_relaxed]
    estimate = estimated(place.across, location_error(len(touching), screened.reference.sigma), len(touching))
    recovered = len(again) >= RETESTS and median(again) > -settings.min_effect / 2
    kind = Kind.CONTENTION if recovered else Kind.SLOW_GROUP
    where = "inside too" if place.inside else "and well inside: what joins it to the others is slow"
    message = "well with at most half the pairs at once" if recovered else where
    return PairFault(kind, place.nodes, place.name, estimate, words=message, pairs=pairs_of(touching))
