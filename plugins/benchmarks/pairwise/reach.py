"""Whether the noise leaves anybody to be named: where it does not, nobody is proven well."""

from __future__ import annotations

from math import log
from statistics import NormalDist

from clusterproof.plugins.benchmarks.pairwise.campaign import RETEST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.jitter import TO_BE_NAMED
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, surely
from clusterproof.plugins.benchmarks.pairwise.screen import Screened
from clusterproof.plugins.benchmarks.pairwise.view import Settings
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairwise.findings import Finding, Kind

UNLUCKY = 2.0  # by so many standard errors, whoever is slow enough is to be named
FEWEST_NODES = 8  # to know the noise
_NORMAL = NormalDist()


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
