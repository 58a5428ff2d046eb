"""Where each node stands, as precisely as is known: the path between two nodes of one place is short."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.placement import lowest_layers, network_layers, ultraservers, zones
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes import facts_cluster as by_labels

Places = Mapping[str, str | None]


def places_of(cluster: ClusterFacts, targets: Sequence[Target]) -> dict[str, str]:
    """The place of each node: its UltraServer, network node, switch or zone, else its group; the first that divides."""
    names = [target.name for target in targets]
    for read in READ:
        data = _known(read, cluster)
        found = {name: data.get(name) or "" for name in names}
        if _divides(found):
            return found
    return {target.name: target.group for target in targets}


def _divides(found: Mapping[str, str]) -> bool:
    """Whether there are several places, and at least one has several nodes."""
    places = [place for place in found.values() if place]
    return 1 < len(set(places)) < len(places)


def _known(read: Callable[[ClusterFacts], Places], cluster: ClusterFacts) -> Places:
    try:
        return read(cluster)
    except (Incomplete, NotApplicable):
        return {}


def _network_nodes(cluster: ClusterFacts) -> Places:
    return lowest_layers(network_layers(cluster))


def _switches(cluster: ClusterFacts) -> Places:
    return cluster.slurm.switches


def _labelled(cluster: ClusterFacts) -> Places:
    return lowest_layers(by_labels.network_layers(cluster))


READ: tuple[Callable[[ClusterFacts], Places], ...] = (
    *(ultraservers, by_labels.ultraservers),
    *(_network_nodes, _labelled, _switches),
    *(zones, by_labels.zones),
)
