"""Numbers of rails that are the same on all nodes: a pair counts only the devices that its two nodes have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterproof.plugins.evidence.exchanges import Exchange
from clusterproof.plugins.evidence.pairs import Measurement


@dataclass
class _Model:
    """Nodes most of whose devices are at the same places, and all places that any of them has."""

    places: set[str]
    nodes: list[str] = field(default_factory=list)

    def has(self, places: set[str]) -> bool:
        """Whether a node with devices at these places is one of them."""
        return 2 * len(places & self.places) > min(len(places), len(self.places))

    def numbers(self) -> Mapping[str, int]:
        """The rail of each place."""
        return {place: number for number, place in enumerate(sorted(self.places, key=lambda one: (len(one), one)))}


def numbered(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The same, each exchange with the number of its rail among all nodes of a model.

    An exchange of two models that was made by the order of devices, one of which lacks some, is of no rail, and left
    out. Where no places are known, as in older recordings, the numbers stay.
    """
    of_node = _numbers(measurements)
    return [
        replace(one, reading=replace(one.reading, exchanges=tuple(_renumbered(one, of_node)))) for one in measurements
    ]


def _renumbered(measurement: Measurement, of_node: Mapping[str, Mapping[str, int]]) -> Iterator[Exchange]:
    for one in measurement.reading.exchanges:
        numbers = {of_node[node][place] for node, place in zip(measurement.pair, one.places, strict=True) if place}
        if len(numbers) < 2:
            yield replace(one, rail=numbers.pop()) if numbers else one


def _numbers(measurements: Sequence[Measurement]) -> Mapping[str, Mapping[str, int]]:
    """The rails of each node by place."""
    places: dict[str, set[str]] = {}
    for measurement in measurements:
        for one in measurement.reading.exchanges:
            for node, place in zip(measurement.pair, one.places, strict=True):
                places.setdefault(node, set()).update({place} - {""})
    models: list[_Model] = []
    for node in sorted(places, key=lambda node: (-len(places[node]), node)):
        model = next((model for model in models if model.has(places[node])), None)
        if model is None:
            models.append(model := _Model(set()))
        model.places |= places[node]
        model.nodes.append(node)
    return {node: numbers for model in models for numbers in [model.numbers()] for node in model.nodes}
