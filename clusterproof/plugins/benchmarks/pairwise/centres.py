"""What is normal for pairs, from those not suspected: their centres, their noise, and the relief of fewer at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import hypot
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.benchmarks.pairwise.likelihood import MIN_SIGMA, normal_part
from clusterproof.plugins.benchmarks.pairwise.normal import (
    AnalysisSettings,
    Normal,
    is_relaxed,
    log_of,
    succeeded,
    tails,
)
from clusterproof.plugins.benchmarks.pairwise.round_effects import (
    ENOUGH,
    by_round,
    common_effects,
    difference,
    in_common,
)
from clusterproof.plugins.core.robust import MAX_VALUES, location, location_error
from clusterproof.plugins.evidence.pairs import Measurement, Pair

ENOUGH_RELAXED = 2  # measurements of pairs of which at most half run at once, to know the effect of that
MIN_FOR_SIGMA = 6
MAX_PLACES = 8  # with more places, a slow one affects too few pairs to move their median


def normal(
    measurements: Sequence[Measurement],
    without: Collection[str],
    settings: AnalysisSettings,
    untypical: Sequence[Measurement] = (),
    placed: Collection[str] = (),
) -> Normal | None:
    """What is normal among nodes that are not suspected; None if nothing succeeded.

    From suspects, and from atypical measurements, it takes only the relief, if too few others show that: a slow node
    can only hide it. `placed` are nodes of slow places, whose pairs do not show a round's common effect.
    """
    succeeding = succeeded(measurements)
    if not succeeding:
        return None
    most = max(measurement.at_once for measurement in measurements)
    trusted = [measurement for measurement in succeeding if not set(measurement.pair) & set(without)] or succeeding
    first = [measurement for measurement in trusted if not is_relaxed(measurement, most)] or trusted
    shared = common_effects(first, settings)
    logs: dict[bool, list[tuple[Pair, float]]] = defaultdict(list)
    for measurement in first:
        x = log_of(measurement) - shared.of_round.get(measurement.round, 0.0)
        logs[is_inside(measurement.pair, settings.places)].append((measurement.pair, x))
    whole, _ = normal_part([x for logs_of_kind in logs.values() for _, x in logs_of_kind])
    inside = normal_part([x for _, x in logs[True]])[0] if len(logs[True]) >= ENOUGH else whole
    across = _across(logs[False], settings) if len(logs[False]) >= ENOUGH else whole
    reference = Normal(inside, across, 0.0, rounds=shared.of_round)
    rest = [x - reference.of(kind) for kind, logs_of_kind in logs.items() for _, x in logs_of_kind]
    reference = _with_noise(reference, rest, _sigma(rest, succeeding, without, reference, settings))
    relaxed = [measurement for measurement in trusted if is_relaxed(measurement, most)]
    all_succeeding = [*succeeding, *succeeded(untypical)]
    if len(relaxed) < ENOUGH_RELAXED:
        relaxed = [measurement for measurement in all_succeeding if is_relaxed(measurement, most)]
    not_relaxed = (measurement for measurement in succeeding if not is_relaxed(measurement, most))
    excluded = {*placed, *_low(not_relaxed, reference, settings)}
    first_rounds = _first_rounds(measurement for measurement in all_succeeding if not excluded & set(measurement.pair))
    full = {measurement.round for measurement in first}
    return _with_relief(reference, relaxed, first_rounds, full, shared.differ, settings)


def _with_noise(reference: Normal, rest: Sequence[float], sigma: float) -> Normal:
    return replace(
        reference,
        sigma=sigma,
        error=location_error(len(rest), sigma),
        sample=tuple(rest) if len(rest) <= MAX_VALUES else (),
        tails=tails(rest, sigma),
    )


def _low(measurements: Iterable[Measurement], reference: Normal, settings: AnalysisSettings) -> set[str]:
    """Nodes that were slow at first: they are most of a retest round, which is not slow for that reason."""
    beyond_by_node: dict[str, list[float]] = defaultdict(list)
    for measurement in measurements:
        for node in measurement.pair:
            beyond_by_node[node].append(_beyond(measurement, reference, settings))
    return {node for node, xs in beyond_by_node.items() if median(xs) < -settings.min_effect / 2}


def _beyond(measurement: Measurement, reference: Normal, settings: AnalysisSettings) -> float:
    """A measurement relative to what is normal for its kind and round."""
    return (
        log_of(measurement)
        - reference.of(is_inside(measurement.pair, settings.places))
        - reference.rounds.get(measurement.round, 0.0)
    )


def _first_rounds(measurements: Iterable[Measurement]) -> dict[Pair, int]:
    """The round in which each pair was first measured."""
    first_rounds: dict[Pair, int] = {}
    for measurement in measurements:
        first_rounds[measurement.pair] = min(measurement.round, first_rounds.get(measurement.pair, measurement.round))
    return first_rounds


def _with_relief(
    reference: Normal,
    measurements: Sequence[Measurement],
    first: Mapping[Pair, int],
    full: Collection[int],
    differ: float,
    settings: AnalysisSettings,
) -> Normal:
    """The same with the relief of running at most half of the pairs at once, and those rounds' common effect.

    `full` are the rounds in which all run, `differ` by how much those differ.
    """
    gained: dict[bool, list[tuple[Measurement, float]]] = {True: [], False: []}
    for measurement in measurements:
        kind = is_inside(measurement.pair, settings.places)
        gained[kind].append((measurement, log_of(measurement) - reference.of(kind)))
    rounds = len({measurement.round for measurement in measurements})
    chance = 4 * differ * (1 / max(rounds, 1) + 1 / max(len(full), 1)) ** 0.5
    relief = {
        kind: _relief([x for _, x in of_kind], reference.sigma, chance, settings) for kind, of_kind in gained.items()
    }
    fresh = (
        (measurement, x - relief[kind])
        for kind, of_kind in gained.items()
        for measurement, x in of_kind
        if measurement.round == first.get(measurement.pair)
    )
    left = by_round(fresh)  # pairs that are retested were slow before
    differ = max(differ, difference(left, reference.sigma, about=0.0))
    relaxed_rounds = {number: x for number, x in in_common(left, reference.sigma, differ).items() if number not in full}
    return replace(
        reference,
        relief_inside=relief[True],
        relief_across=relief[False],
        rounds={**reference.rounds, **relaxed_rounds},
    )


def _sigma(
    rest: Sequence[float],
    measurements: Sequence[Measurement],
    suspects: Collection[str],
    reference: Normal,
    settings: AnalysisSettings,
) -> float:
    """The spread of good pairs; in a small cluster also that of each suspect's values about their own median."""
    if len(rest) > MAX_VALUES:
        return normal_part(rest)[1]
    of_suspects: dict[str, list[float]] = defaultdict(list)
    for measurement in measurements:
        mine = [node for node in measurement.pair.nodes if node in suspects]
        if len(mine) == 1:
            of_suspects[mine[0]].append(_beyond(measurement, reference, settings))
    about = [x - location(xs) for xs in of_suspects.values() if len(xs) >= ENOUGH for x in xs]
    both = [*rest, *about]
    return normal_part(both)[1] if len(both) >= MIN_FOR_SIGMA else MIN_SIGMA * 2


def _relief(gained: Sequence[float], sigma: float, chance: float, settings: AnalysisSettings) -> float:
    """The relief of fewer pairs at once, if it exceeds noise and random differences between rounds."""
    if len(gained) < ENOUGH_RELAXED:
        return 0.0
    middle = median(gained)
    sure = middle > max(settings.min_effect / 2, hypot(4 * sigma / len(gained) ** 0.5, chance))
    return middle if sure else 0.0


def _across(logs: Sequence[tuple[Pair, float]], settings: AnalysisSettings) -> float:
    """The centre of pairs across places; if one place is slow, without its pairs."""
    plain, _ = normal_part([x for _, x in logs])
    touching: dict[str, list[int]] = defaultdict(list)
    for number, (pair, _) in enumerate(logs):
        for node in pair.nodes:
            touching[settings.places.get(node, "")].append(number)
    if len(touching) > MAX_PLACES:
        return plain
    without = [
        median(x for number, (_, x) in enumerate(logs) if number not in skipped)
        for numbers in touching.values()
        if len(logs) - len(skipped := set(numbers)) >= ENOUGH
    ]
    best = max(without, default=plain)
    return best if best - plain > settings.min_effect / 2 else plain
