"""The locations of nodes: availability zones, network layers and UltraServers, on the page and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.placement import (
    JobGroup,
    job_groups,
    lowest_layers,
    network_layers,
    spreads,
    ultraservers,
    zones,
)
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes import facts_cluster as by_labels

T = TypeVar("T")

MAX_ROWS = 200  # of the page's table
MAX_LINES = 4  # in the terminal
_LABEL = "topology".ljust(12)


@dataclass(frozen=True, slots=True)
class Topology:
    """The locations of each job group's nodes, as far as known: each node's place, by kind of place."""

    groups: tuple[JobGroup, ...]
    zones: Mapping[str, str | None]
    layers: Mapping[str, tuple[str, ...]]
    ultraservers: Mapping[str, str | None]


def topology(cluster: ClusterFacts) -> Topology | None:
    """The known locations in this run, None if there are none."""
    known = Topology(
        _known(job_groups, cluster, ()),
        _known(zones, cluster, {}) or _known(by_labels.zones, cluster, {}),
        _known(network_layers, cluster, {}) or _known(by_labels.network_layers, cluster, {}),
        _known(ultraservers, cluster, {}) or _known(by_labels.ultraservers, cluster, {}),
    )
    return known if known.zones or known.layers or known.ultraservers else None


def _known(read: Callable[[ClusterFacts], T], cluster: ClusterFacts, otherwise: T) -> T:
    try:
        return read(cluster)
    except (Incomplete, NotApplicable):
        return otherwise


def lines(topology: Topology) -> Iterator[str]:
    """A line for each job group that spans several places, a few at most."""
    kinds: tuple[tuple[str, Mapping[str, str | None]], ...] = (
        ("availability zones", topology.zones),
        ("network nodes", lowest_layers(topology.layers)),
        ("UltraServers", topology.ultraservers),
    )
    spread_lines = [
        f"{_LABEL}{spread.group or 'nodes'} in {len(spread.places)} {what}: {_shown(spread.places)}"
        for what, place_of in kinds
        for spread in spreads(topology.groups, place_of)
        if len(spread.places) > 1
    ]
    for line in spread_lines[:MAX_LINES]:  # nodes report their network layers themselves
        yield printable(line).replace("\n", " ")
    if len(spread_lines) > MAX_LINES:
        yield f"{_LABEL}… and {len(spread_lines) - MAX_LINES} more; --html has all"


def _shown(places: Mapping[str, tuple[str, ...]], most: int = 3) -> str:
    counts = [f"{len(nodes)} in {place}" for place, nodes in places.items()]
    return ", ".join([*counts[:most], *([f"{len(counts) - most} more"] if len(counts) > most else [])])


def section(topology: Topology) -> str:
    """The section of the page: one row for the nodes of a group in one place. Names are escaped."""
    depth = max(map(len, topology.layers.values()), default=0)
    head = ["group", "zone", *(f"layer {number}" for number in range(1, depth + 1)), "UltraServer", "count", "nodes"]
    rows = list(_rows(topology, depth))
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows[:MAX_ROWS])
    more = f"<p>… and {len(rows) - MAX_ROWS} more places</p>" if len(rows) > MAX_ROWS else ""
    return (
        '<details class="topology"><summary><b>topology</b> where the nodes stand</summary><div class="scroll"><table>'
        f"<tr>{_cells(head, 'th')}</tr>{body}</table></div>{more}</details>"
    )


def _rows(topology: Topology, depth: int) -> Iterator[list[str]]:
    for group in topology.groups:
        nodes_by_location: dict[tuple[str, ...], list[str]] = {}
        for node in group.nodes:
            layers = topology.layers.get(node, ())
            padded = (*layers, *[""] * (depth - len(layers)))
            location = (topology.zones.get(node) or "", *padded, topology.ultraservers.get(node) or "")
            nodes_by_location.setdefault(location, []).append(node)
        for location, nodes in sorted(nodes_by_location.items()):
            yield [group.name, *(word or "–" for word in location), str(len(nodes)), fold(nodes)]


def _cells(texts: list[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(word)}</{tag}>" for word in texts)
