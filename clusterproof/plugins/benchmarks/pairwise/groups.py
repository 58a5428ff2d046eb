"""Places (racks, UltraServers, zones) whose pairs are slow together, so that none of their nodes is at fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.normal import Normal, Settings, Value
from clusterproof.plugins.core.robust import location_error

FEWEST_NODES = 3
SHARE_OF_NODES = 0.75  # that must be slow, each by itself, before the place is and not they
FEWEST_VALUES = 4


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """One place. Effects are differences of logarithms, 0.0 where those pairs are normal."""

    name: str
    nodes: tuple[str, ...]
    across: float
    inside: float


def slow_places(found: Sequence[Value], reference: Normal, settings: Settings) -> list[SlowPlace]:
    """The slow places, the slowest first; what touches one that is named already does not count for the next."""
    named: list[SlowPlace] = []
    left = [value for value in found if not value.is_inside]
    inside = _by_place([value for value in found if value.is_inside], settings)
    while True:
        candidates = [
            place
            for name, data in _by_place(left, settings).items()
            if name and (place := _slow(name, data, inside.get(name, []), reference, settings))
        ]
        if not candidates:
            return named
        worst = min(candidates, key=lambda place: place.across)
        named.append(worst)
        gone = set(worst.nodes)
        left = [value for value in left if not gone & set(value.pair.nodes)]


def residuals(found: Sequence[Value], places: Sequence[SlowPlace], settings: Settings) -> list[Value]:
    """The values without what slow places explain."""
    if not places:
        return list(found)
    slow = {place.name: place for place in places}
    return [replace(value, x=value.x - _explained(value, slow, settings.places)) for value in found]


def _explained(value: Value, slow: Mapping[str, SlowPlace], places: Mapping[str, str]) -> float:
    of_ends = [slow[place] for node in value.pair.nodes if (place := places.get(node, "")) in slow]
    if value.is_inside:
        return of_ends[0].inside if of_ends else 0.0
    return min((place.across for place in of_ends), default=0.0)


def _by_place(found: Sequence[Value], settings: Settings) -> dict[str, list[Value]]:
    data: dict[str, list[Value]] = defaultdict(list)
    for value in found:
        for place in {settings.places.get(node, "") for node in value.pair.nodes}:
            data[place].append(value)
    return data


def _slow(
    name: str, across: Sequence[Value], inside: Sequence[Value], reference: Normal, settings: Settings
) -> SlowPlace | None:
    """The place, where its pairs with other places are slow and most of its nodes are so by themselves."""
    of_nodes: dict[str, list[float]] = defaultdict(list)
    for value in across:
        for node in value.pair.nodes:
            if settings.places.get(node, "") == name:
                of_nodes[node].append(value.x)
    if len(across) < FEWEST_VALUES or len(of_nodes) < FEWEST_NODES:
        return None
    middle = median(value.x for value in across)
    if middle > -settings.min_effect + location_error(len(across), reference.sigma):
        return None
    slow_by_itself = sum(median(data) < -settings.min_effect / 2 for data in of_nodes.values())
    if slow_by_itself < SHARE_OF_NODES * len(of_nodes):
        return None
    within = median(value.x for value in inside) if len(inside) >= FEWEST_VALUES else 0.0
    is_slow_inside = within < -settings.min_effect / 2
    return SlowPlace(name, tuple(sorted(of_nodes)), middle, within if is_slow_inside else 0.0)
