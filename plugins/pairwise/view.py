"""Measurements as differences of logarithms from what is normal: 0.0 is normal, log(0.93) is 7 % slower."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from clusterproof.plugins.pairwise.likelihood import LEAST_SIGMA, normal_part
from clusterproof.plugins.pairwise.model import Measurement, Pair
from clusterproof.plugins.pairwise.normal import Normal
from clusterproof.plugins.pairwise.robust import MOST_VALUES, location, location_error
from clusterproof.plugins.pairwise.schedule import is_inside

ENOUGH = 4  # measurements for a normal of their own
ENOUGH_WITH_ROOM = 2  # measurements of pairs of which at most half run at once, to say what that brings
FEWEST_FOR_SIGMA = 6
MOST_PLACES = 8  # of more places one that is slow touches too few pairs to move their median


@dataclass(frozen=True, slots=True)
class Value:
    """One successful measurement of a pair, beside what is normal for pairs like it."""

    pair: Pair
    x: float
    is_inside: bool
    is_relaxed: bool  # at most half as many pairs ran at once as in the first rounds
    is_retest: bool  # of a round that was chosen after a look at the first ones


@dataclass(frozen=True, slots=True)
class Settings:
    """What an analysis takes for granted; the numbers are catalog/busbw.toml's."""

    min_effect: float  # difference of logarithms from which slowness matters: -log(0.95)
    places: Mapping[str, str]  # rack, UltraServer or zone of a node, where it is known
    first_rounds: int  # rounds whose pairs do not depend on any measurement


def succeeded(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those that brought a bandwidth."""
    return [one for one in measurements if one.reading.busbw_gb_per_s]


def normal(
    measurements: Sequence[Measurement],
    without: Collection[str],
    settings: Settings,
    untypical: Sequence[Measurement] = (),
) -> Normal | None:
    """What is normal among nodes that are not suspected; None where nothing succeeded.

    Of those without, and of what is untypical, it takes only what room brings, where too few others tell that: a slow
    one can but hide it.
    """
    told = succeeded(measurements)
    if not told:
        return None
    most = max(one.at_once for one in measurements)
    trusted = [one for one in told if not set(one.pair.nodes) & set(without)] or told
    first = [one for one in trusted if not is_relaxed(one, most)] or trusted
    logs: dict[bool, list[tuple[Pair, float]]] = defaultdict(list)
    for one in first:
        logs[is_inside(one.pair, settings.places)].append((one.pair, _log(one)))
    whole, _ = normal_part([x for told_logs in logs.values() for _, x in told_logs])
    inside = normal_part([x for _, x in logs[True]])[0] if len(logs[True]) >= ENOUGH else whole
    across = _across(logs[False], settings) if len(logs[False]) >= ENOUGH else whole
    found = Normal(inside, across, 0.0)
    rest = [x - found.of(kind) for kind, told_logs in logs.items() for _, x in told_logs]
    sigma = _sigma(rest, told, without, found, settings)
    relaxed: dict[bool, list[float]] = {True: [], False: []}
    with_room = [one for one in trusted if is_relaxed(one, most)]
    if len(with_room) < ENOUGH_WITH_ROOM:
        with_room = [one for one in (*told, *succeeded(untypical)) if is_relaxed(one, most)]
    for one in with_room:
        kind = is_inside(one.pair, settings.places)
        relaxed[kind].append(_log(one) - found.of(kind))
    return replace(
        found,
        sigma=sigma,
        error=location_error(len(rest), sigma),
        sample=tuple(rest) if len(rest) <= MOST_VALUES else (),
        relief_inside=_relief(relaxed[True], sigma, settings),
        relief_across=_relief(relaxed[False], sigma, settings),
    )


def _sigma(
    rest: Sequence[float], told: Sequence[Measurement], suspects: Collection[str], usual: Normal, settings: Settings
) -> float:
    """The spread of good pairs; in a small cluster also that of each suspect's values about their own middle."""
    if len(rest) > MOST_VALUES:
        return normal_part(rest)[1]
    of_suspects: dict[str, list[float]] = defaultdict(list)
    for one in told:
        mine = [node for node in one.pair.nodes if node in suspects]
        if len(mine) == 1:
            of_suspects[mine[0]].append(_log(one) - usual.of(is_inside(one.pair, settings.places)))
    about = [x - location(xs) for xs in of_suspects.values() if len(xs) >= ENOUGH for x in xs]
    both = [*rest, *about]
    return normal_part(both)[1] if len(both) >= FEWEST_FOR_SIGMA else LEAST_SIGMA * 2


def _relief(relaxed: Sequence[float], sigma: float, settings: Settings) -> float:
    if len(relaxed) < ENOUGH_WITH_ROOM:
        return 0.0
    gained = median(relaxed)
    sure = gained > max(settings.min_effect / 2, 4 * sigma / len(relaxed) ** 0.5)
    return gained if sure else 0.0


def _across(logs: Sequence[tuple[Pair, float]], settings: Settings) -> float:
    """The centre of pairs across places. Where one place is slow, it is that of the pairs without it."""
    plain, _ = normal_part([x for _, x in logs])
    touching: dict[str, list[int]] = defaultdict(list)
    for number, (one, _) in enumerate(logs):
        for node in one.nodes:
            touching[settings.places.get(node, "")].append(number)
    if len(touching) > MOST_PLACES:
        return plain
    without = [
        median(x for number, (_, x) in enumerate(logs) if number not in skipped)
        for numbers in touching.values()
        if len(logs) - len(skipped := set(numbers)) >= ENOUGH
    ]
    best = max(without, default=plain)
    return best if best - plain > settings.min_effect / 2 else plain


def is_relaxed(one: Measurement, most_at_once: int) -> bool:
    """Whether at most half as many pairs ran at once as ever did."""
    return 2 * one.at_once <= most_at_once


def values(measurements: Sequence[Measurement], usual: Normal, settings: Settings) -> list[Value]:
    """Every successful measurement beside its normal."""
    most = max((one.at_once for one in measurements), default=1)
    found = []
    for one in succeeded(measurements):
        inside = is_inside(one.pair, settings.places)
        relaxed = is_relaxed(one, most)
        is_retest = one.round >= settings.first_rounds
        x = _log(one) - usual.of(inside) - (usual.relief(inside) if relaxed else 0.0)
        found.append(Value(one.pair, x, inside, relaxed, is_retest))
    return found


def by_node(found: Iterable[Value]) -> dict[str, list[Value]]:
    """The values of each node."""
    told: dict[str, list[Value]] = defaultdict(list)
    for value in found:
        for node in value.pair.nodes:
            told[node].append(value)
    return told


def _log(one: Measurement) -> float:
    return log(one.reading.busbw_gb_per_s or 1.0)
