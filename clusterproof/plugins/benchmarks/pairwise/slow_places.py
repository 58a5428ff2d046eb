"""Places whose pairs are slow together, so that none of their nodes is at fault: racks, UltraServers and zones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal, Value
from clusterproof.plugins.core.robust import location_error

MIN_NODES = 3
SHARE_OF_NODES = 0.75  # that must each be slow by itself, before the place is blamed instead
MIN_VALUES = 4


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """A suspected place. Effects are logarithmic differences, 0.0 where its pairs are normal."""

    name: str
    nodes: tuple[str, ...]
    across: float
    inside: float


def slow_places(values: Sequence[Value], reference: Normal, settings: AnalysisSettings) -> list[SlowPlace]:
    """The slow places, the slowest first; pairs of places already named do not count for the next."""
    named: list[SlowPlace] = []
    left = [value for value in values if not value.is_inside]
    inside = _by_place([value for value in values if value.is_inside], settings)
    while True:
        candidates = [
            place
            for name, across in _by_place(left, settings).items()
            if name and (place := _slow(name, across, inside.get(name, []), reference, settings))
        ]
        if not candidates:
            return named
        worst = min(candidates, key=lambda place: place.across)
        named.append(worst)
        gone = set(worst.nodes)
        left = [value for value in left if not gone & set(value.pair.nodes)]


def residuals(values: Sequence[Value], places: Sequence[SlowPlace], settings: AnalysisSettings) -> list[Value]:
    """The values without the effects of slow places."""
    if not places:
        return list(values)
    slow = {place.name: place for place in places}
    return [replace(value, x=value.x - _explained(value, slow, settings.places)) for value in values]


def _explained(value: Value, slow: Mapping[str, SlowPlace], places: Mapping[str, str]) -> float:
    of_pair = [slow[place] for node in value.pair.nodes if (place := places.get(node, "")) in slow]
    if value.is_inside:
        return of_pair[0].inside if of_pair else 0.0
    return min((place.across for place in of_pair), default=0.0)


def _by_place(values: Sequence[Value], settings: AnalysisSettings) -> dict[str, list[Value]]:
    values_by_place: dict[str, list[Value]] = defaultdict(list)
    for value in values:
        for place in {settings.places.get(node, "") for node in value.pair.nodes}:
            values_by_place[place].append(value)
    return values_by_place


def _slow(
    name: str, across: Sequence[Value], inside: Sequence[Value], reference: Normal, settings: AnalysisSettings
) -> SlowPlace | None:
    """The place, if its pairs with other places are slow and most of its nodes are slow by themselves."""
    of_nodes: dict[str, list[float]] = defaultdict(list)
    for value in across:
        for node in value.pair.nodes:
            if settings.places.get(node, "") == name:
                of_nodes[node].append(value.x)
    if len(across) < MIN_VALUES or len(of_nodes) < MIN_NODES:
        return None
    middle = median(value.x for value in across)
    if middle > -settings.min_effect + location_error(len(across), reference.sigma):
        return None
    slow_by_itself = sum(median(xs) < -settings.min_effect / 2 for xs in of_nodes.values())
    if slow_by_itself < SHARE_OF_NODES * len(of_nodes):
        return None
    within = median(value.x for value in inside) if len(inside) >= MIN_VALUES else 0.0
    is_slow_inside = within < -settings.min_effect / 2
    return SlowPlace(name, tuple(sorted(of_nodes)), middle, within if is_slow_inside else 0.0)
