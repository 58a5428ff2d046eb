"""Who is to be looked at again: nodes, pairs and places that the measurements so far make suspect, and who is good."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from clusterproof.plugins.pairwise.groups import SlowPlace, residuals, slow_places
from clusterproof.plugins.pairwise.model import Measurement, Pair
from clusterproof.plugins.pairwise.view import Normal, Settings, Value, by_node, normal, values

PASSES = 5  # over who is suspect, so that what is normal is taken from those who are not
SUSPECT = 1 / 3  # of the minimum effect: from there on a node is measured again
LINK_SIGMAS = 2.5  # and a pair
CLEARED_AFTER = 2  # good retests
ENOUGH_PARTNERS = 3  # to leave the worst one out
FEWEST_OWN = 2  # values with partners that are not slow, to judge a node by those alone


@dataclass(frozen=True, slots=True)
class Screened:
    """What the measurements so far suggest."""

    usual: Normal | None
    values: Sequence[Value]  # without what slow places explain
    slow: Mapping[str, float]  # nodes that may be slow, and by how much; those cleared by retests are not here
    failing: tuple[str, ...]  # nodes in failed measurements that no partner explains
    links: tuple[Pair, ...]  # slow or failed pairs that neither of their nodes explains, the worst first
    places: tuple[SlowPlace, ...]
    of_node: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def own_values(self, node: str) -> Sequence[Value]:
        """A node's values that no suspect partner and no suspect link explains."""
        told = [value for value in self.of_node[node] if value.pair not in self.links]
        return unexplained(told or self.of_node[node], node, self.slow)


def screen(measurements: Sequence[Measurement], settings: Settings) -> Screened:
    """Look through all measurements so far."""
    failing = failing_nodes(measurements)
    slow: dict[str, float] = {}
    usual, found, places = None, list[Value](), list[SlowPlace]()
    for _ in range(PASSES):
        usual = normal(measurements, slow, settings)
        if usual is None:
            return Screened(None, (), {}, failing, _failed_links(measurements, failing), ())
        found = values(measurements, usual, settings)
        places = slow_places(found, usual, settings)
        found = residuals(found, places, settings)
        again = slow_nodes(found, slow, settings)
        if again.keys() == slow.keys():
            break
        slow = again
    assert usual is not None
    links = (*_failed_links(measurements, failing), *slow_links(found, slow, usual, settings))
    return Screened(usual, found, slow, failing, links, tuple(places), by_node(found))


def slow_nodes(found: Sequence[Value], suspects: Collection[str], settings: Settings) -> dict[str, float]:
    """Nodes whose middle value is low, less what partners among the suspects so far explain, and retests cleared."""
    of_node = by_node(found)
    found_slow = {}
    for node, told in of_node.items():
        if _score(told) >= -settings.min_effect * SUSPECT:
            continue
        own = unexplained(told, node, suspects)
        score = _score(own)
        if score < -settings.min_effect * SUSPECT and not _is_cleared(own, settings):
            found_slow[node] = score
    return found_slow


def _score(told: Sequence[Value]) -> float:
    """The middle over partners but the worst: one slow link makes no slow node, however often it is measured."""
    of_partner: dict[Pair, list[float]] = defaultdict(list)
    for value in told:
        of_partner[value.pair].append(value.x)
    middles = sorted(median(xs) for xs in of_partner.values())
    return median(middles[1:] if len(middles) >= ENOUGH_PARTNERS else middles)


def unexplained(told: Sequence[Value], node: str, suspects: Collection[str]) -> Sequence[Value]:
    """A node's values with partners that are not suspects; all of its values where those are too few."""
    own = [value for value in told if value.pair.other(node) not in suspects]
    return own if len(own) >= FEWEST_OWN else told


def _is_cleared(own: Sequence[Value], settings: Settings) -> bool:
    again = [value for value in own if value.is_retest]
    return len({value.pair for value in again}) >= CLEARED_AFTER and _score(again) > -settings.min_effect / 4


def slow_links(
    found: Sequence[Value], slow: Mapping[str, float], usual: Normal, settings: Settings
) -> tuple[Pair, ...]:
    """Pairs that are slow though neither node is suspect, unless retests cleared them; the slowest first."""
    cut = -max(settings.min_effect, LINK_SIGMAS * usual.sigma)
    of_pair: dict[Pair, list[Value]] = defaultdict(list)
    for value in found:
        if not slow.keys() & set(value.pair.nodes):
            of_pair[value.pair].append(value)
    suspects = {
        one: median(value.x for value in told)
        for one, told in of_pair.items()
        if min(value.x for value in told) < cut and not _is_well_again(told, settings)
    }
    return tuple(sorted(suspects, key=lambda one: (suspects[one], one)))


def _is_well_again(told: Sequence[Value], settings: Settings) -> bool:
    again = [value.x for value in told if value.is_retest]
    well = sum(x > -settings.min_effect / 2 for x in again)
    return well >= CLEARED_AFTER or any(x > -settings.min_effect / 4 for x in again)


def failing_nodes(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """Nodes whose measurements failed and that are not cleared by enough that succeeded, those that failed most first.

    A failure with a partner that fails more often than oneself says nothing of oneself.
    """
    failed: dict[str, int] = defaultdict(int)
    told: dict[str, int] = defaultdict(int)
    for one in measurements:
        for node in one.pair.nodes:
            told[node] += 1
            failed[node] += not one.reading.busbw_gb_per_s
    own: dict[str, int] = defaultdict(int)
    for one in measurements:
        if one.reading.busbw_gb_per_s:
            continue
        rates = {node: failed[node] / told[node] for node in one.pair.nodes}
        for node in one.pair.nodes:
            own[node] += rates[node] >= rates[one.pair.other(node)]
    suspects = [node for node, count in own.items() if count > 1 or (count and 2 * failed[node] >= told[node])]
    return tuple(sorted(suspects, key=lambda node: (-own[node], node)))


def _failed_links(measurements: Sequence[Measurement], failing: Sequence[str]) -> tuple[Pair, ...]:
    found: dict[Pair, list[bool]] = defaultdict(list)
    for one in measurements:
        if not set(failing) & set(one.pair.nodes):
            found[one.pair].append(bool(one.reading.busbw_gb_per_s))
    return tuple(one for one, told in found.items() if not all(told) and sum(told) < CLEARED_AFTER)
