"""Pairs that stay slow, or fail, though both nodes are well with others; and what it takes to be sure of that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import hypot
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.failures import failing_link
from clusterproof.plugins.benchmarks.pairwise.likelihood import ONE_SIDED, SURE, noise_of_both, own_noise, surely
from clusterproof.plugins.benchmarks.pairwise.normal import Normal
from clusterproof.plugins.benchmarks.pairwise.screen import Screened
from clusterproof.plugins.benchmarks.pairwise.view import Settings, Value, by_pair, slow_together
from clusterproof.plugins.core.robust import location, location_error
from clusterproof.plugins.evidence.pairwise.findings import Finding, Kind, estimated
from clusterproof.plugins.evidence.pairwise.model import Measurement, Pair

FEWEST_NODES = 3  # with two, a slow link cannot be distinguished from a slow node
RETESTS = 2  # beside other pairs than before
OTHER_PARTNERS = 2  # with whom each end of a slow link is well
LIKELY = 0.5  # that an end has the usual noise: below it that is what leaves a slow link open


def link_findings(
    screened: Screened,
    measurements: Sequence[Measurement],
    found_nodes: Collection[str],
    settings: Settings,
    nodes: int,
) -> list[Finding]:
    """Pairs that stay slow, or fail, though both nodes are well with others."""
    assert screened.usual is not None
    of_pair = by_pair(screened.values)
    found = []
    for one in screened.links:
        if set(found_nodes) & set(one.nodes) or nodes < FEWEST_NODES:
            continue
        tried = [each for each in measurements if each.pair == one]
        failed = sum(not each.reading.busbw_gb_per_s for each in tried)
        if failed:
            found.append(failing_link(one, failed, len(tried)))
            continue
        is_known = all(_is_well_with_others(node, one, screened, settings) for node in one.nodes)
        noise = noise_of_both(*(_noise_with_others(node, one, screened) for node in one.nodes))
        pairs = max(len({value.pair for value in screened.of_node[node]}) for node in one.nodes)
        slow = _slow_link(one, of_pair, is_known, noise, pairs, screened.usual, settings)
        if slow:
            found.append(slow)
    return found


def _is_well_with_others(node: str, one: Pair, screened: Screened, settings: Settings) -> bool:
    """Whether a node of this pair was measured with other good partners, and was not slow with any."""
    others = [value for value in screened.own_values(node) if value.pair != one]
    partners = {value.pair for value in others}
    return len(partners) >= OTHER_PARTNERS and median(value.x for value in others) > -settings.min_effect / 2


def _noise_with_others(node: str, one: Pair, screened: Screened) -> dict[float, float]:
    """How noisy a node of this pair is with other good partners, also in pairs that are suspect themselves."""
    assert screened.usual is not None
    xs = [value.x for value in screened.with_good_partners(node) if value.pair != one]
    return own_noise(xs, screened.usual)


def _slow_link(
    one: Pair,
    of_pair: Mapping[Pair, Sequence[Value]],
    is_known: bool,
    noise: Mapping[float, float],
    pairs: int,
    usual: Normal,
    settings: Settings,
) -> Finding | None:
    """The pair, where it is slow each time; surely, among so many pairs, and at other times beside other pairs.

    Whether it is known that its nodes are well with others, is said.
    """
    data = sorted(of_pair[one], key=lambda value: value.round)
    xs = [value.x for value in data]
    again = xs[1:]
    error = hypot(location_error(len(xs), usual.sigma), usual.error)
    is_slow = location(xs) <= -settings.min_effect + ONE_SIDED * error
    if not again or max(again) > -settings.min_effect / 2 or not is_slow:
        return None
    chance = surely(xs, replace(usual, sample=()), len(of_pair), noise, pairs)
    estimate = estimated(location(xs), error, len(xs), 1, chance)
    rounds = {value.round for value in data[1:]}
    words = _more_of_a_link(rounds, is_known, slow_together(one, of_pair, settings))
    if not words and chance < SURE:
        words = _by_chance(noise)
    if not words:
        return Finding(Kind.SLOW_LINK, one.nodes, estimate=estimate, pairs=(one,))
    if max(xs) > -settings.min_effect:
        return None
    return Finding(Kind.INCONCLUSIVE, one.nodes, estimate=estimate, words=words, pairs=(one,))


def _more_of_a_link(retests: Collection[int], is_known: bool, together: Mapping[Pair, Collection[int]]) -> str:
    """What is missing to report a link as slow; empty where nothing is."""
    if len(retests) < RETESTS:
        return f"slow again {len(retests)} time; expected {RETESTS} times beside other pairs: measure it again"
    if not is_known:
        return "slow each time, but too little shows that both its nodes are well: measure them with more partners"
    shared = [other for other, rounds in together.items() if len(set(retests) - set(rounds)) < RETESTS]
    if shared:
        return f"slow each time, and so is {min(shared)} beside it: measure each without the other"
    return ""


def _by_chance(noise: Mapping[float, float]) -> str:
    """Why a pair of nodes with such noise may be slow each time by chance."""
    if noise[1.0] < LIKELY:
        return "slow each time, but a node of it is now faster and now slower with others too; measure it more often"
    return "slow each time, as with such noise one of so many pairs is by chance; measure it more often"
