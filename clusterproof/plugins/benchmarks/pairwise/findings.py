"""Findings on pairs that stay slow or fail, and on nodes that fail with all others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import hypot
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import by_node, by_pair, pairs_of, partners_of
from clusterproof.plugins.benchmarks.pairwise.in_words import estimate_text
from clusterproof.plugins.benchmarks.pairwise.likelihood import (
    ONE_SIDED,
    SURE,
    confidence,
    noise_of_both,
    own_noise,
)
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal, Value, slow_together
from clusterproof.plugins.benchmarks.pairwise.screen import Suspicion, failing_nodes
from clusterproof.plugins.core.robust import location, location_error
from clusterproof.plugins.evidence.pairs import Failure, Kind, Measurement, Pair, PairFault, estimated

MIN_NODES = 3  # with two, a slow link and a slow node cannot be distinguished
MIN_LINK_RETESTS = 2  # concurrently with other pairs than before
OTHER_PARTNERS = 2  # with which each end of a slow link is normal
SAYS_NOTHING = (Failure.NO_PROGRAM, Failure.NOT_AT_FAULT)  # failures that count against no node and no link
LIKELY = 0.5  # that an end has the usual noise: below this, a slow link stays open for that reason


def link_findings(
    screened: Suspicion,
    measurements: Sequence[Measurement],
    named_nodes: Collection[str],
    settings: AnalysisSettings,
    nodes: int,
) -> list[PairFault]:
    """Pairs that stay slow, or fail, though both nodes are fine with others."""
    assert screened.reference is not None
    of_pair, measurements_of = by_pair(screened.values), by_pair(measurements)
    findings = []
    for pair in dict.fromkeys(screened.links):  # a pair may be slow and fail
        if set(named_nodes) & set(pair.nodes) or nodes < MIN_NODES:
            continue
        tried = measurements_of[pair]
        failed = [measurement for measurement in tried if not measurement.reading.busbw_gb_per_s]
        if failed and (len(_against(failed)) > 1 or pair not in of_pair):
            findings.append(failing_link(pair, failed, len(tried)))
            continue
        is_known = all(_is_well_with_others(node, pair, screened, settings) for node in pair.nodes)
        noise = noise_of_both(*(_noise_with_others(node, pair, screened) for node in pair.nodes))
        pairs = max(len({value.pair for value in screened.values_by_node[node]}) for node in pair.nodes)
        slow = _slow_link(pair, of_pair, is_known, noise, pairs, screened.reference, settings)
        if slow and failed:
            findings.append(_with_failures(slow, len(failed), len(tried), failed[0].reading.problem))
        elif slow or failed:
            findings.append(slow or failing_link(pair, failed, len(tried)))
    return findings


def _is_well_with_others(node: str, pair: Pair, screened: Suspicion, settings: AnalysisSettings) -> bool:
    """Whether a node of this pair was measured with other good partners, and was not slow with any."""
    others = [value for value in screened.own_values(node) if value.pair != pair]
    partners = {value.pair for value in others}
    return len(partners) >= OTHER_PARTNERS and median(value.x for value in others) > -settings.min_effect / 2


def _noise_with_others(node: str, pair: Pair, screened: Suspicion) -> dict[float, float]:
    """How noisy a node of this pair is with other good partners, also in pairs that are suspect themselves."""
    assert screened.reference is not None
    xs = [value.x for value in screened.with_good_partners(node) if value.pair != pair]
    return own_noise(xs, screened.reference)


def _slow_link(
    pair: Pair,
    of_pair: Mapping[Pair, Sequence[Value]],
    is_known: bool,
    noise: Mapping[float, float],
    pairs: int,
    reference: Normal,
    settings: AnalysisSettings,
) -> PairFault | None:
    """The pair if it is slow each time, significantly among so many pairs, and also in rounds with other pairs.

    The finding says whether its nodes are known to be fine with others.
    """
    values = sorted(of_pair[pair], key=lambda value: value.round)
    xs = [value.x for value in values]
    again = xs[1:]
    error = hypot(location_error(len(xs), reference.sigma), reference.error)
    is_slow = location(xs) <= -settings.min_effect + ONE_SIDED * error
    if not again or max(again) > -settings.min_effect / 2 or not is_slow:
        return None
    chance = confidence(xs, replace(reference, sample=()), len(of_pair), noise, pairs)
    estimate = estimated(location(xs), error, len(xs), 1, chance)
    rounds = {value.round for value in values[1:]}
    message = _more_of_a_link(rounds, is_known, slow_together(pair, of_pair, settings))
    if not message and chance < SURE:
        message = _by_chance(noise)
    if not message:
        return PairFault(Kind.SLOW_LINK, pair.nodes, estimate=estimate, pairs=(pair,))
    if max(xs) > -settings.min_effect:
        return None
    return PairFault(Kind.INCONCLUSIVE, pair.nodes, estimate=estimate, words=message, pairs=(pair,))


def _more_of_a_link(retests: Collection[int], is_known: bool, together: Mapping[Pair, Collection[int]]) -> str:
    """What is missing to report a link as slow; empty if nothing is."""
    if len(retests) < MIN_LINK_RETESTS:
        return f"slow again {len(retests)} time; expected {MIN_LINK_RETESTS} times beside other pairs: measure it again"
    if not is_known:
        return "slow each time, but too little shows that both its nodes are well: measure them with more partners"
    shared = [other for other, rounds in together.items() if len(set(retests) - set(rounds)) < MIN_LINK_RETESTS]
    if shared:
        return f"slow each time, and so is {min(shared)} beside it: measure each without the other"
    return ""


def _by_chance(noise: Mapping[float, float]) -> str:
    """Why a pair of nodes with such noise may be slow each time by chance."""
    if noise[1.0] < LIKELY:
        return "slow each time, but a node of it is now faster and now slower with others too; measure it more often"
    return "slow each time, as with such noise one of so many pairs is by chance; measure it more often"


def failing_link(pair: Pair, failed: Sequence[Measurement], attempts: int) -> PairFault:
    """A pair with these failures of so many attempts, although each end works with others."""
    against = _against(failed)
    if len(against) < 2:
        once = "it failed once, and was not measured again often enough; measure it again"
        message = once if against else failed[0].reading.problem
        return PairFault(
            Kind.INCONCLUSIVE, pair.nodes, failures=len(failed), attempts=attempts, words=message, pairs=(pair,)
        )
    attempts -= len(failed) - len(against)
    message = "each end works with others"
    return PairFault(
        Kind.FAILING_LINK, pair.nodes, failures=len(against), attempts=attempts, words=message, pairs=(pair,)
    )


def _against(failed: Iterable[Measurement]) -> list[Measurement]:
    """The failures that count against a node or a link."""
    return [measurement for measurement in failed if measurement.reading.failure not in SAYS_NOTHING]


def failing_or_suspect(measurements: Sequence[Measurement]) -> list[PairFault]:
    """Nodes with which measurements fail, whatever the partner; if that holds for most, no node is named."""
    findings = []
    failing = failing_nodes(measurements)
    measurements_of = by_node(measurements)
    for node in failing:
        own = measurements_of[node]
        failed = [measurement for measurement in own if not measurement.reading.busbw_gb_per_s]
        against = _against(failed)
        partners = partners_of(node, against)
        named = sum(measurement.reading.culprit == node for measurement in against)
        problems = (measurement.reading.problem for measurement in against or failed)
        attempts = len(own) - len(failed) + len(against)
        is_sure = len(against) >= 2 and len(partners) >= 2 and 2 * len(against) >= attempts
        is_named = named > 1 or (is_sure and 2 * len(failing) <= len(measurements_of))
        kind = Kind.FAILING_NODE if is_named else Kind.INCONCLUSIVE
        failures, attempts = (len(against), attempts) if is_named else (len(failed), len(own))
        words = next(filter(None, problems), "")
        findings.append(
            PairFault(kind, (node,), failures=failures, attempts=attempts, words=words, pairs=pairs_of(failed))
        )
    return findings


def deduplicated(slow: Iterable[PairFault], failing: Iterable[PairFault]) -> list[PairFault]:
    """One finding per node: if it is surely slow, that is reported with its failures."""
    by_nodes = {fault.nodes: fault for fault in failing}
    for fault in slow:
        other = by_nodes.get(fault.nodes)
        if other is None:
            by_nodes[fault.nodes] = fault
        elif fault.kind is Kind.SLOW_NODE and other.kind is Kind.FAILING_NODE:
            slowness = f"besides, it is {estimate_text(fault.estimate)}" if fault.estimate else ""
            message = "; ".join(filter(None, (other.words, slowness)))
            by_nodes[fault.nodes] = replace(other, words=message, pairs=_joined(other, fault))
        elif fault.kind is Kind.SLOW_NODE:
            both = _with_failures(fault, other.failures, other.attempts, other.words)
            by_nodes[fault.nodes] = replace(both, pairs=_joined(fault, other))
    return list(by_nodes.values())


def _with_failures(slow: PairFault, failures: int, attempts: int, problem: str) -> PairFault:
    """A finding of slowness, and which measurements failed besides."""
    besides = f"besides, {failures} of {attempts} measurements failed: {problem}"
    words = "; ".join(filter(None, (slow.words, besides)))
    return replace(slow, failures=failures, attempts=attempts, words=words)


def _joined(first: PairFault, second: PairFault) -> tuple[Pair, ...]:
    return tuple(dict.fromkeys((*first.pairs, *second.pairs)))
