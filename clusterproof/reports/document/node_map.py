"""A map of nodes ordered by place, condensed if they are many; and a circle of slow pairs as SVG.

On the circle, nodes are grouped by rack, with a line for each slow pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import cos, pi, sin
from typing import Any

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.aws.placement import known_places, lowest_layers, network_layers, ultraservers, zones
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document import Section, of_nodes
from clusterproof.reports.document.heat import MAX_TITLE, label_of, step
from clusterproof.reports.run import Run

MAX_BLOCKS = 32
NOWHERE = "place unknown"
_PARTS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes shown together: of one place, of a few neighbouring places, or consecutive ones."""

    name: str
    nodes: tuple[str, ...]


def in_order(nodes: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """Sorted by place, then by name; numbers in names are compared as numbers."""
    return sorted(nodes, key=lambda node: (not places.get(node, ""), _natural(places.get(node, "")), _natural(node)))


def groups(ordered: Sequence[str], places: Mapping[str, str]) -> list[Block]:
    """The nodes of each place; one unnamed block if no place is known."""
    runs = ((place, tuple(nodes)) for place, nodes in groupby(ordered, key=lambda node: places.get(node, "")))
    blocks = [Block(place or NOWHERE, nodes) for place, nodes in runs]
    return blocks if len(blocks) > 1 or blocks[0].name != NOWHERE else [Block("", blocks[0].nodes)]


def blocks(ordered: Sequence[str], places: Mapping[str, str], alone: Container[str] = ()) -> list[Block]:
    """A few blocks: places, groups of neighbouring places, or runs of nodes without known places.

    A place in `alone` is always its own block.
    """
    of_places = groups(ordered, places)
    if len(of_places) == 1:
        size = -(-len(ordered) // MAX_BLOCKS)
        chunks = [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]
        return [Block(fold(nodes), nodes) for nodes in chunks]
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
UNKNOWN = -1  # number for a place that is not reported

_MAP = """<p class="tools" hidden><label>by <select id="map-by"></select></label></p>
<div id="map-places"></div>
<p id="map-detail" class="detail" aria-live="polite"></p>"""


def map_section(run: Run) -> Section | None:
    """The map, which the page's script draws; None if there is nothing to show."""
    is_drawn = len(run.nodes) > 1 and any(result.is_of_node for result in run.results)
    return Section("map", "Map of the nodes", _MAP) if is_drawn else None


def places(run: Run) -> list[list[Any]]:
    """`[kind, names, number of each node's name]` for each kind of place, the smallest first."""
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
        yield kind, known_places(read, run.facts)
    campaigns = run.between.campaigns if run.between else ()
    yield "place", {node: place for campaign in campaigns for node, place in campaign.journal.plan.places.items()}
    yield "NVLink domain", {name: _nvlink_domain(node) for name, node in run.nodes.items()}
    yield "group", {name: node.target.group for name, node in run.nodes.items()}


def _nvlink_domain(node: Node) -> str:
    """For GPUs whose NVLinks leave the node, as in a GB200 rack: the cluster that their driver reports."""
    collected = node.evidence.collectors.get("nvml")
    gpus = collected.value.get("gpus") if collected and isinstance(collected.value, dict) else None
    for gpu in gpus if isinstance(gpus, list) else ():
        fabric = gpu.get("fabric") if isinstance(gpu, dict) else None
        name = fabric.get("cluster_uuid") if isinstance(fabric, dict) else None
        if isinstance(name, str) and name.strip("0-"):
            return name[:MAX_OF_DOMAIN]
    return ""


def _numbered(kind: str, place_of: Mapping[str, str | None], nodes: Sequence[str]) -> list[Any]:
    """Empty if all nodes are in one place, or each in its own."""
    where = [place_of.get(node) or "" for node in nodes]
    names = sorted({place for place in where if place})
    if not 1 < len(names) < len([place for place in where if place]):
        return []
    numbers = {name: number for number, name in enumerate(names)}
    shown = [printable(name, MAX_NAME) for name in names]
    return [kind, shown, [numbers.get(place, UNKNOWN) for place in where]]


MAX_NODES = 512  # on one circle
MAX_NAMED = 48  # nodes up to which names are shown
MAX_LINES = 300  # the slowest
RADIUS = 200  # px
BEYOND_NAMES, BEYOND_DOTS = 64, 14  # px from the nodes to the arcs of their places
PLACE_WIDTH = 66  # px for the names of places
GAP = 0.6  # between two places, in units of nodes


@dataclass(frozen=True, slots=True)
class SlowPair:
    """Two nodes and the share of normal measured between them; None if all measurements failed."""

    nodes: tuple[str, str]
    share: float | None
    title: str


def drawn(groups: Sequence[Block], slow: Sequence[SlowPair], marked: Sequence[str]) -> str:
    """The circle, with the slowest pairs on top. `marked` are the nodes that findings name."""
    angles = _angles(groups)
    size = 2 * (RADIUS + _to_arcs(angles) + PLACE_WIDTH)
    worst = sorted(slow, key=lambda pair: pair.share if pair.share is not None else -1.0)[:MAX_LINES]
    more = f"; the {MAX_LINES} slowest of them are drawn" if len(slow) > MAX_LINES else ""
    caption = f"{number_of(len(slow), 'slow pair')} of {len(angles)} nodes on a circle, place beside place{more}"
    lines = "".join(_line(pair, angles) for pair in reversed(worst))
    return (
        f'<figure class="chords"><figcaption>{escape(caption)}</figcaption><div class="scroll">'
        f'<svg role="img" aria-label="{escape(caption)}" viewBox="{-size // 2} {-size // 2} {size} {size}" '
        f'width="{size}" height="{size}"><g fill="none">{lines}</g>'
        f"{''.join(_places(groups, angles))}{''.join(_nodes(angles, set(marked)))}</svg></div></figure>"
    )


def _angles(groups: Sequence[Block]) -> dict[str, float]:
    """The angle of each node, clockwise from the top."""
    gap = GAP if len(groups) > 1 else 0.0
    total = sum(len(block.nodes) + gap for block in groups)
    angles: dict[str, float] = {}
    at = 0.0
    for block in groups:
        for node in block.nodes:
            angles[node] = 2 * pi * (at + 0.5) / total
            at += 1
        at += gap
    return angles


def _to_arcs(angles: Mapping[str, float]) -> int:
    return BEYOND_NAMES if len(angles) <= MAX_NAMED else BEYOND_DOTS


def _point(angle: float, radius: float) -> tuple[float, float]:
    return radius * sin(angle), -radius * cos(angle)


def _line(pair: SlowPair, angles: Mapping[str, float]) -> str:
    """A curve that bends towards the centre, so that lines of neighbours can be distinguished."""
    begin, end = (_point(angles[node], RADIUS - 5) for node in pair.nodes)
    bend = ((begin[0] + end[0]) / 6, (begin[1] + end[1]) / 6)
    path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    title = escape(pair.title[:MAX_TITLE], quote=False)
    return f'<path class="{step(pair.share)}"{of_nodes(pair.nodes)} d="{path}"><title>{title}</title></path>'


def _nodes(angles: Mapping[str, float], marked: set[str]) -> Iterator[str]:
    for node, angle in angles.items():
        x, y = _point(angle, RADIUS)
        name = " marked" if node in marked else ""
        size = 5 if node in marked else 3.5
        title = escape(node[:MAX_TITLE], quote=False)
        yield f'<circle class="dot{name}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{title}</title></circle>'
        if len(angles) <= MAX_NAMED or node in marked:
            yield _label(node, angle, RADIUS + 9, f"at{name}")


def _places(groups: Sequence[Block], angles: Mapping[str, float]) -> Iterator[str]:
    """An arc for each place, with its name outside."""
    for block in groups:
        if not block.name:
            continue
        half = pi / len(angles) * 0.8
        first, last = angles[block.nodes[0]] - half, angles[block.nodes[-1]] + half
        radius = RADIUS + _to_arcs(angles)
        begin, end = _point(first, radius), _point(last, radius)
        path = (
            f"M{begin[0]:.1f} {begin[1]:.1f}A{radius} {radius} 0 {int(last - first > pi)} 1 {end[0]:.1f} {end[1]:.1f}"
        )
        yield f'<path class="arc" d="{path}"/>'
        yield _label(block.name, (first + last) / 2, radius + 8, "place")


def _label(name: str, angle: float, radius: float, kind: str) -> str:
    """A name that reads outwards on the right half and inwards on the left half."""
    x, y = _point(angle, radius)
    is_left = angle > pi
    turn = angle * 180 / pi - 90 + (180 if is_left else 0)
    anchor = ' text-anchor="end"' if is_left else ""
    shown = escape(label_of(name))
    where = f"translate({x:.1f} {y:.1f}) rotate({turn:.1f})"
    return f'<text class="{kind}" transform="{where}"{anchor} dy="4">{shown}</text>'
