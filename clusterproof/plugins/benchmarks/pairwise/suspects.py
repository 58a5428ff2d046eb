"""Whether a suspected node is slow: by how much, how certain, and whether more measurements would decide it."""

from __future__ import annotations

from math import hypot
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import pairs_of, partners_of
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, at_least, confidence
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings
from clusterproof.plugins.benchmarks.pairwise.screen import Suspicion, but_the_worst
from clusterproof.plugins.core.robust import location, location_error, spread
from clusterproof.plugins.evidence.pairs import Estimate, Kind, PairFault, estimated

RETESTS = 3  # required before a node is named
MIN_GOOD_PAIRS = 2  # that define what is normal: with three nodes, the other two's link may just be fast
MAX_ALLOWED = 0.2  # of the minimum effect: a node may miss it by this, if within the error
BUT_FOR_ONE = 0.75  # of the minimum effect: required even without the worst partner
UNLIKELY = 0.05  # that a node is slower by the minimum effect: below this it is not measured again


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
