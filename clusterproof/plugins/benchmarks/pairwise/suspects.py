"""Whether a node is slow, always or now and then: by how much, how certain, and what more measurements would decide."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import comb, exp, hypot, log
from statistics import NormalDist, median

from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS, pairs_of, partners_of
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, at_least, confidence
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal
from clusterproof.plugins.benchmarks.pairwise.screen import Suspicion, but_the_worst
from clusterproof.plugins.core.robust import location, location_error, spread
from clusterproof.plugins.evidence.pairs import Estimate, Kind, PairFault, estimated

RETESTS = 3  # required before a node is named
MIN_GOOD_PAIRS = 2  # that define what is normal: with three nodes, the other two's link may just be fast
MAX_ALLOWED = 0.2  # of the minimum effect: a node may miss it by this, if within the error
BUT_FOR_ONE = 0.75  # of the minimum effect: required even without the worst partner
UNLIKELY = 0.05  # that a node is slower by the minimum effect: below this it is not measured again
TO_BE_NAMED = 0.10  # slower: a node this slow and slightly unlucky must still be named
SURE_ENOUGH = 0.95  # that it is not that slow: from here on nothing is reported
FEWEST = 2  # values, to know a node's own noise
MIN_OF_ALL = 8  # to know that of all nodes
UNLUCKY = 2.0  # standard errors of bad luck with which a slow node must still be named
CERTAIN = 0.99  # that a node is slow now and then: from here on that is reported, and does not fault it
STANDARD_NORMAL = NormalDist()


def suspected(node: str, screened: Suspicion, estimate: Estimate, settings: AnalysisSettings) -> PairFault | None:
    """The finding against a suspect: slow enough, sure enough, and slow again when measured again."""
    assert screened.reference is not None
    own = screened.own_values(node)
    again = [value.x for value in own if value.is_retest]
    all_of_them = [value.x for value in own]
    error = hypot(location_error(len(own), screened.reference.sigma), screened.reference.error)
    middle = location(all_of_them)
    pairs = pairs_of(own)
    allowance = min(error, MAX_ALLOWED * settings.min_effect)
    rest = location([value.x for value in but_the_worst(own)])
    is_slow = middle <= -settings.min_effect + allowance and rest <= -settings.min_effect * BUT_FOR_ONE
    is_slow_again = bool(again) and location(again) <= -settings.min_effect / 2
    partners = partners_of(node, own)
    good_pairs = {value.pair for value in screened.values if not screened.slow.keys() & set(value.pair)}
    sure = estimate.confidence >= SURE and len(own) >= RETESTS and len(again) >= RETESTS
    if is_slow and is_slow_again and sure and len(partners) > 1 and len(good_pairs) >= MIN_GOOD_PAIRS:
        return PairFault(Kind.SLOW_NODE, (node,), estimate=estimate, pairs=pairs)
    if is_slow and (is_slow_again or not again):
        return PairFault(
            Kind.INCONCLUSIVE,
            (node,),
            estimate=estimate,
            words=_more(len(again), len(partners), len(good_pairs)),
            pairs=pairs,
        )
    return None


def _more(retests: int, partners: int, good_pairs: int) -> str:
    if partners < 2:
        return "only one partner was measured, and it may be that one; measure it with a third node"
    if good_pairs < MIN_GOOD_PAIRS:
        return "too few pairs without it say what is normal; measure it with more nodes"
    if retests < RETESTS:
        return f"measured again {retests} times with good partners; expected {RETESTS} times: measure it with more"
    return "the noise is too large to be sure; measure it again with more partners or a larger size"


def estimates_of(screened: Suspicion, nodes: int) -> dict[str, Estimate]:
    """How slow each node is, and how sure that is, among so many."""
    return {node: _estimate(node, screened, nodes) for node in screened.values_by_node}


def _estimate(node: str, screened: Suspicion, nodes: int) -> Estimate:
    """How slow it is, and how sure that is: the chance that none of so many healthy nodes looks like this."""
    assert screened.reference is not None
    own = screened.own_values(node)
    xs = [value.x for value in own]
    partners = len(partners_of(node, own))
    if node in screened.slow:
        middle, chance = location(xs), confidence(xs, screened.reference, nodes)
    else:
        middle, chance = median(xs), 0.0
    sigma = max(screened.reference.sigma, spread(xs))  # its own may be slow to a varying degree
    return estimated(middle, location_error(len(xs), sigma), len(xs), partners, chance)


def decided(screened: Suspicion, nodes: int, settings: AnalysisSettings) -> set[str]:
    """The suspects that are certainly slow, among so many nodes: they need no further measurement."""
    findings = (suspected(node, screened, _estimate(node, screened, nodes), settings) for node in screened.slow)
    return {finding.nodes[0] for finding in findings if finding and finding.kind is Kind.SLOW_NODE}


def undecided(screened: Suspicion, nodes: int, settings: AnalysisSettings) -> set[str]:
    """The suspects that are neither certainly slow nor certainly well."""
    assert screened.reference is not None
    left = set()
    for node in screened.slow.keys() - decided(screened, nodes, settings):
        xs = [value.x for value in screened.own_values(node)]
        if at_least(settings.min_effect, xs, screened.reference) > UNLIKELY:
            left.add(node)
    return left


def left_open(
    screened: Suspicion, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: AnalysisSettings
) -> list[PairFault]:
    """Findings for those of these nodes that have no other."""
    findings = []
    for node in sorted(screened.values_by_node.keys() & set(nodes)):
        values = screened.with_good_partners(node)
        if not _may_be_slow([value.x for value in values], screened.reference, settings):
            continue
        slowest, fastest = (pick(exp(value.x) for value in values) * 100 for pick in (min, max))
        more = (
            "again with a larger size" if _is_full(screened, settings) else "with more partners, or with --pairs full"
        )
        message = (
            f"its measurements lie between {slowest:.0f} and {fastest:.0f} % of normal, and it may be "
            f"{TO_BE_NAMED * 100:.0f} % slower: measure it {more}"
        )
        findings.append(
            PairFault(Kind.INCONCLUSIVE, (node,), estimate=estimates.get(node), words=message, pairs=pairs_of(values))
        )
    return findings


def _is_full(screened: Suspicion, settings: AnalysisSettings) -> bool:
    """Whether each node has been measured with every other."""
    return settings.first_rounds >= len(screened.values_by_node) - 1


def _may_be_slow(xs: Sequence[float], reference: Normal | None, settings: AnalysisSettings) -> bool:
    """Whether a node with some slow value may be far slower than acceptable, despite its other values."""
    if reference is None or len(xs) < FEWEST or min(xs) > -settings.min_effect:
        return False
    return at_least(-log(1 - TO_BE_NAMED), xs, reference) > 1 - SURE_ENOUGH


def too_noisy(screened: Suspicion, settings: AnalysisSettings) -> tuple[PairFault, ...]:
    """A finding that among so many nodes, with this noise, a node far slower than matters might well not be named."""
    reference, nodes = screened.reference, tuple(sorted(screened.values_by_node))
    if reference is None or len(nodes) < MIN_OF_ALL:
        return ()
    count = settings.first_rounds + RETEST_ROUNDS
    unlucky = log(1 - TO_BE_NAMED) + UNLUCKY * location_error(count, reference.sigma)
    values = [unlucky + reference.sigma * STANDARD_NORMAL.inv_cdf((number + 0.5) / count) for number in range(count)]
    if confidence(values, reference, len(nodes)) >= SURE:
        return ()
    more = "" if _is_full(screened, settings) else ", or all pairs with --pairs full"
    message = (
        f"with noise of {reference.sigma * 100:.2g} % a node {TO_BE_NAMED * 100:.0f} % slower might not be named: "
        f"measure with a larger size{more}"
    )
    return (PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(screened.values), words=message),)


def slow_now_and_then(
    screened: Suspicion, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: AnalysisSettings
) -> list[PairFault]:
    """Those of these nodes that have no other finding."""
    first = [value.x for value in screened.values if not value.is_retest]
    share_slow = (sum(x <= -settings.min_effect for x in first) + 1) / (len(first) + 2)
    findings = []
    for node in sorted(nodes):
        own = screened.values_by_node.get(node, ())
        low = [value for value in own if value.x <= -settings.min_effect]
        if len({value.pair for value in low}) < 2:
            continue
        if len(screened.values_by_node) * binomial_tail(len(low), len(own), share_slow) > 1 - CERTAIN:
            continue
        worst = 1 - exp(min(value.x for value in low))
        message = f"{len(low)} of {len(own)} measurements are slow, by up to {worst:.0%}, the others are well"
        findings.append(PairFault(Kind.INTERMITTENT, (node,), estimate=estimates.get(node), words=message))
    return findings


def binomial_tail(least: int, of: int, chance: float) -> float:
    """The chance of at least so many of `of`, each having this chance."""
    return sum(comb(of, count) * chance**count * (1 - chance) ** (of - count) for count in range(least, of + 1))
