"""Nodes in the order of the places where they stand, and folded where they are many."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.placement import lowest_layers, network_layers, ultraservers, zones
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.section import Section
from clusterproof.reports.run import Run

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


MAX_NAME = 80  # characters
MAX_OF_DOMAIN = 12  # characters of a UUID
UNKNOWN = -1  # in place of a number, where the place is not reported

_MAP = """<p class="tools" hidden><label>by <select id="map-by"></select></label></p>
<div id="map-places"></div>
<p id="map-detail" class="detail" aria-live="polite"></p>"""


def map_section(run: Run) -> Section | None:
    """The map, which the page's script draws; None where there is nothing to lay out."""
    is_drawn = len(run.nodes) > 1 and any(result.is_of_node for result in run.results)
    return Section("map", "Map of the nodes", _MAP) if is_drawn else None


def places(run: Run) -> list[list[Any]]:
    """`[kind, names, number of each node's name]` for each kind of place, the narrowest first."""
    nodes = [*run.nodes]
    return [entry for kind, place_of in _kinds(run) if (entry := _numbered(kind, place_of, nodes))]


def _kinds(run: Run) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    kinds: tuple[tuple[str, Callable[[ClusterFacts], Mapping[str, str | None]]], ...] = (
        ("UltraServer", ultraservers),
        ("network node", lambda cluster: lowest_layers(network_layers(cluster))),
        ("Slurm switch", lambda cluster: cluster.slurm.switches),
        ("availability zone", zones),
    )
    for kind, read in kinds:
        yield kind, _known(read, run.facts)
    yield "place", dict(run.between.campaigns[0].journal.plan.places) if run.between and run.between.campaigns else {}
    yield "NVLink domain", {name: _nvlink_domain(node) for name, node in run.nodes.items()}
    yield "group", {name: node.target.group for name, node in run.nodes.items()}


def _nvlink_domain(node: Node) -> str:
    """Of GPUs whose NVLinks leave the node, as in a rack of GB200: the cluster that their driver names."""
    collected = node.evidence.collectors.get("nvml")
    gpus = collected.value.get("gpus") if collected and isinstance(collected.value, dict) else None
    for gpu in gpus if isinstance(gpus, list) else ():
        fabric = gpu.get("fabric") if isinstance(gpu, dict) else None
        name = fabric.get("cluster_uuid") if isinstance(fabric, dict) else None
        if isinstance(name, str) and name.strip("0-"):
            return name[:MAX_OF_DOMAIN]
    return ""


def _known(read: Callable[[ClusterFacts], Mapping[str, str | None]], cluster: ClusterFacts) -> Mapping[str, str | None]:
    try:
        return read(cluster)
    except (Incomplete, NotApplicable):
        return {}


def _numbered(kind: str, place_of: Mapping[str, str | None], nodes: Sequence[str]) -> list[Any]:
    """Nothing where all nodes stand in one place, or each in its own."""
    where = [place_of.get(node) or "" for node in nodes]
    names = sorted({place for place in where if place})
    if not 1 < len(names) < len([place for place in where if place]):
        return []
    numbers = {name: number for number, name in enumerate(names)}
    shown = [printable(name, MAX_NAME) for name in names]
    return [kind, shown, [numbers.get(place, UNKNOWN) for place in where]]
