"""Nodes in the order of the places where they stand, and folded where they are many."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from clusterproof.plugins.core.nodeset import fold

MAX_BLOCKS = 32
NOWHERE = "place unknown"
_PARTS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes that stand together: in one place, in a few that are next to each other, or one after another."""

    name: str
    nodes: tuple[str, ...]


def in_order(nodes: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """Place by place, in each by name; numbers in names count as such."""
    return sorted(nodes, key=lambda node: (not places.get(node, ""), _natural(places.get(node, "")), _natural(node)))


def groups(ordered: Sequence[str], places: Mapping[str, str]) -> list[Block]:
    """The nodes of each place; one block without a name where no place is known."""
    runs = ((place, tuple(nodes)) for place, nodes in groupby(ordered, key=lambda node: places.get(node, "")))
    data = [Block(place or NOWHERE, nodes) for place, nodes in runs]
    return data if len(data) > 1 or data[0].name != NOWHERE else [Block("", data[0].nodes)]


def blocks(ordered: Sequence[str], places: Mapping[str, str], alone: Container[str] = ()) -> list[Block]:
    """A few blocks: places, neighbouring places together, or stretches of nodes where no place is known.

    A place of `alone` is a block of its own.
    """
    of_places = groups(ordered, places)
    if len(of_places) == 1:
        size = -(-len(ordered) // MAX_BLOCKS)
        stretches = [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]
        return [Block(fold(nodes), nodes) for nodes in stretches]
    together = -(-len(of_places) // MAX_BLOCKS)
    bunches: list[list[Block]] = [[]]
    for block in of_places:
        is_alone = block.name in alone
        if bunches[-1] and (is_alone or len(bunches[-1]) == together or bunches[-1][0].name in alone):
            bunches.append([])
        bunches[-1].append(block)
    return [_joined(bunch) for bunch in bunches]


def _joined(bunch: Sequence[Block]) -> Block:
    nodes = tuple(node for block in bunch for node in block.nodes)
    return Block(bunch[0].name if len(bunch) == 1 else f"{bunch[0].name} … {bunch[-1].name}", nodes)


def _natural(name: str) -> list[tuple[str, int, str]]:
    parts = _PARTS.split(name)  # text, number, text, …
    numbers = [part.lstrip("0") for part in (*parts[1::2], "")]
    return [(text, len(number), number) for text, number in zip(parts[::2], numbers)]  # noqa: B905
