"""What noise leaves open: nodes that may be slow, are so now and then, or could not be named at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import comb, exp, log
from statistics import NormalDist

from clusterproof.plugins.benchmarks.pairwise.campaign import RETEST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, at_least, confidence
from clusterproof.plugins.benchmarks.pairwise.normal import Normal, Settings
from clusterproof.plugins.benchmarks.pairwise.screen import Screened
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairs import Estimate, Finding, Kind

TO_BE_NAMED = 0.10  # slower: whoever is, and is a little unlucky, is to be named
SURE_ENOUGH = 0.95  # that it is not so slow: from there on nothing is said of a node
FEWEST = 2  # values, to know a node's own noise
FEWEST_NODES = 8  # to know that of all
UNLUCKY = 2.0  # by so many standard errors, whoever is slow enough is to be named
_NORMAL = NormalDist()
CERTAIN = 0.99  # from which on it is reported; it faults no node


def left_open(
    screened: Screened, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: Settings
) -> list[Finding]:
    """The findings for those of these nodes that have no other."""
    found = []
    for node in sorted(screened.of_node.keys() & set(nodes)):
        data = screened.with_good_partners(node)
        if not _may_be_slow([value.x for value in data], screened.reference, settings):
            continue
        slowest, fastest = (pick(exp(value.x) for value in data) * 100 for pick in (min, max))
        words = (
            f"its measurements lie between {slowest:.0f} and {fastest:.0f} % of normal, and it may be "
            f"{TO_BE_NAMED * 100:.0f} % slower: measure it with more partners, or with --pairs full"
        )
        pairs = tuple({value.pair: None for value in data})
        found.append(Finding(Kind.INCONCLUSIVE, (node,), estimate=estimates.get(node), words=words, pairs=pairs))
    return found


def _may_be_slow(xs: Sequence[float], reference: Normal | None, settings: Settings) -> bool:
    """Whether a node, some value of which is slow, may be far slower than matters, for all that its values show."""
    if reference is None or len(xs) < FEWEST or min(xs) > -settings.min_effect:
        return False
    return at_least(-log(1 - TO_BE_NAMED), xs, reference) > 1 - SURE_ENOUGH


def too_noisy(screened: Screened, settings: Settings) -> tuple[Finding, ...]:
    """That among so many nodes, with this noise, a node far slower than matters might well not be named."""
    reference, nodes = screened.reference, tuple(sorted(screened.of_node))
    if reference is None or len(nodes) < FEWEST_NODES:
        return ()
    count = settings.first_rounds + RETEST_ROUNDS
    unlucky = log(1 - TO_BE_NAMED) + UNLUCKY * location_error(count, reference.sigma)
    values = [unlucky + reference.sigma * _NORMAL.inv_cdf((number + 0.5) / count) for number in range(count)]
    if confidence(values, reference, len(nodes)) >= SURE:
        return ()
    words = (
        f"with noise of {reference.sigma * 100:.2g} % a node {TO_BE_NAMED * 100:.0f} % slower might not be named: "
        "measure with a larger size, or all pairs with --pairs full"
    )
    return (Finding(Kind.INCONCLUSIVE, nodes, attempts=len(screened.values), words=words),)


def slow_now_and_then(
    screened: Screened, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: Settings
) -> list[Finding]:
    """Those of these nodes, none of which is named for anything else."""
    first = [value.x for value in screened.values if not value.is_retest]
    share_slow = (sum(x <= -settings.min_effect for x in first) + 1) / (len(first) + 2)
    found = []
    for node in sorted(nodes):
        own = screened.of_node.get(node, ())
        low = [value for value in own if value.x <= -settings.min_effect]
        if len({value.pair for value in low}) < 2:
            continue
        if len(screened.of_node) * tail(len(low), len(own), share_slow) > 1 - CERTAIN:
            continue
        worst = 1 - exp(min(value.x for value in low))
        words = f"{len(low)} of {len(own)} measurements are slow, by up to {worst:.0%}, the others are well"
        found.append(Finding(Kind.INTERMITTENT, (node,), estimate=estimates.get(node), words=words))
    return found


def tail(least: int, of: int, chance: float) -> float:
    """The chance of at least so many of `of`, each having this chance."""
    return sum(comb(of, count) * chance**count * (1 - chance) ** (of - count) for count in range(least, of + 1))
