"""What noise leaves open: nodes whose own noise might hide slowness, and whether any node could be named at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp, log
from statistics import NormalDist

from clusterproof.plugins.benchmarks.pairwise.campaign import RETEST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, at_least, surely
from clusterproof.plugins.benchmarks.pairwise.normal import Normal
from clusterproof.plugins.benchmarks.pairwise.screen import Screened
from clusterproof.plugins.benchmarks.pairwise.view import Settings
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairwise.findings import Estimate, Finding, Kind

TO_BE_NAMED = 0.10  # slower: whoever is, and is a little unlucky, is to be named
SURE_ENOUGH = 0.95  # that it is not so slow: from there on nothing is said of a node
FEWEST = 2  # values, to know a node's own noise
FEWEST_NODES = 8  # to know that of all
UNLUCKY = 2.0  # by so many standard errors, whoever is slow enough is to be named
_NORMAL = NormalDist()


def left_open(
    screened: Screened, nodes: Collection[str], estimates: Mapping[str, Estimate], settings: Settings
) -> list[Finding]:
    """The findings for those of these nodes that have no other."""
    found = []
    for node in sorted(screened.of_node.keys() & set(nodes)):
        data = screened.with_good_partners(node)
        if not _may_be_slow([value.x for value in data], screened.usual, settings):
            continue
        slowest, fastest = (pick(exp(value.x) for value in data) * 100 for pick in (min, max))
        words = (
            f"its measurements lie between {slowest:.0f} and {fastest:.0f} % of normal, and it may be "
            f"{TO_BE_NAMED * 100:.0f} % slower: measure it with more partners, or with --pairs full"
        )
        pairs = tuple({value.pair: None for value in data})
        found.append(Finding(Kind.INCONCLUSIVE, (node,), estimate=estimates.get(node), words=words, pairs=pairs))
    return found


def _may_be_slow(xs: Sequence[float], usual: Normal | None, settings: Settings) -> bool:
    """Whether a node, some value of which is slow, may be far slower than matters, for all that its values show."""
    if usual is None or len(xs) < FEWEST or min(xs) > -settings.min_effect:
        return False
    return at_least(-log(1 - TO_BE_NAMED), xs, usual) > 1 - SURE_ENOUGH


def too_noisy(screened: Screened, settings: Settings) -> tuple[Finding, ...]:
    """That among so many nodes, with this noise, a node far slower than matters might well not be named."""
    usual, nodes = screened.usual, tuple(sorted(screened.of_node))
    if usual is None or len(nodes) < FEWEST_NODES:
        return ()
    count = settings.first_rounds + RETEST_ROUNDS
    unlucky = log(1 - TO_BE_NAMED) + UNLUCKY * location_error(count, usual.sigma)
    values = [unlucky + usual.sigma * _NORMAL.inv_cdf((number + 0.5) / count) for number in range(count)]
    if surely(values, usual, len(nodes)) >= SURE:
        return ()
    words = (
        f"with noise of {usual.sigma * 100:.2g} % a node {TO_BE_NAMED * 100:.0f} % slower might not be named: "
        "measure with a larger size, or all pairs with --pairs full"
    )
    return (Finding(Kind.INCONCLUSIVE, nodes, attempts=len(screened.values), words=words),)
