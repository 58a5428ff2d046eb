"""Plans pair measurements: which nodes, with which meter and launcher, in which rounds, given their locations."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import log

import pytest

from clusterproof.plugins.benchmarks.launchers import Launcher, MeterCampaign
from clusterproof.plugins.benchmarks.launchers.client_server import ssh
from clusterproof.plugins.benchmarks.launchers.mpirun import mpirun, pods
from clusterproof.plugins.benchmarks.launchers.srun import srun
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.benchmarks.meters.baseline import Stack
from clusterproof.plugins.benchmarks.meters.selection import METERS, key_of, meter_for
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.mesh import MeshLimits
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.catalog.busbw import size_bytes_for
from clusterproof.plugins.core.cluster import Target, is_loaded_by_pods
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.placement import (
    Places,
    known_places,
    lowest_layers,
    network_layers,
    ultraservers,
    zones,
)
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.kubernetes import facts_cluster as by_labels
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import RDMA_MESH
from clusterproof.plugins.evidence.perf.gpu_peers import computing_of
from clusterproof.plugins.options.perf_table import FULL
from clusterproof.plugins.suite.perf.pairs_options import PairOptions, pairs_among
from clusterproof.plugins.transport import Unusable
from clusterproof.plugins.transport.srun import SETTING

MESH_SHARES = ("rail_share", "switch_share")


def parts(nodes: Sequence[Node], named_pairs: Sequence[tuple[str, str]] = ()) -> list[list[Node]]:
    """The nodes to compare, by instance type or GPUs: only those with accelerators, if any has them.

    Who names pairs decides which nodes without a type are compared. Raises pytest.UsageError for other pairs.
    """
    accelerated = [node for node in nodes if node.catalog.accelerators(node.type_name) != 0]
    by_kind: dict[str, list[Node]] = {}
    for node in accelerated or nodes:
        by_kind.setdefault(node.type_name if named_pairs else _kind(node), []).append(node)
    unknown = by_kind.pop("", [])
    if unknown and by_kind:  # mostly nodes that were not reached: they are counted with the largest kind
        max(by_kind.values(), key=len).extend(unknown)
    elif unknown:
        by_kind[""] = unknown
    for pair in named_pairs:
        if not any({*pair} <= {node.name for node in members} for members in by_kind.values()):
            raise pytest.UsageError(
                f"--pairs names {'~'.join(pair):.160}, nodes that are not measured together; expected two of one "
                "instance type, and with accelerators if others of the run have any"
            )
    position = {node.name: at for at, node in enumerate(nodes)}
    ordered = sorted(by_kind.values(), key=lambda members: min(position[node.name] for node in members))
    return [members for members in ordered if len(members) > 1]  # in the same order if a node is silent when resumed


def _kind(node: Node) -> str:
    """The instance type; of a node without one, how many GPUs it should have, and their models; empty if unknown."""
    if node.type_name:
        return node.type_name
    on_bus, models = readings(node, "gpus_on_bus")[0].get("gpus_on_bus"), {*computing_of(node)}
    is_known = on_bus is not None and bool(on_bus) == bool(models)
    return f"{_expected(node, 'gpus')}: {', '.join(sorted(models))}" if is_known else ""


def planned(
    nodes: Sequence[Node], options: PairOptions, cluster: ClusterFacts, unavailable: Mapping[str, str]
) -> Journal:
    """The measurements for nodes of one type, except unavailable ones. Raises pytest.UsageError."""
    meter, settings = meter_of(nodes, options)
    absent = {node.name: why for node in nodes if (why := _absence(node) or unavailable.get(node.name))}
    first = next((node for node in nodes if node.name not in absent), nodes[0])
    names = [node.name for node in nodes]
    slower = cluster.threshold("pairwise.slower")
    if not 0 < slower < 1:
        raise pytest.UsageError(f"pairwise.slower is {slower:g}; expected a share above 0 and below 1 in the policy")
    made = plan(
        names,
        places_of(cluster, [node.target for node in nodes]),
        -log(1 - slower),
        is_full=options.which == FULL,
        named_pairs=pairs_among(options.named_pairs, cluster.nodes.keys()) if options.named_pairs else (),
        seed=options.seed if options.seed is not None else secrets.randbelow(10**6),
    )
    if meter.name == RDMA_MESH:
        made = replace(made, mesh=MeshLimits(*(cluster.threshold(f"rdma_mesh.{name}") for name in MESH_SHARES)))
    if made.asked:
        made = replace(made, asked=tuple(pair for pair in made.asked if set(pair) <= set(names)))
    key = key_of(meter, settings, settings.size_bytes, first.type_name, _efa(nodes), settings.ranks_per_node)
    about = {"meter": meter.name, "key": asdict(key), "stack": asdict(_stack(first))}
    if options.groups:
        two_ends = f"{meter.name} measures two nodes; expected --meter nccl-tests or nccom-test"
        about |= {"groups": options.groups, "no_groups": "" if meter.is_collective else two_ends}
    return Journal(replace(made, absent=frozenset(absent)), about, absent)


def meter_of(nodes: Sequence[Node], options: PairOptions) -> tuple[Meter, MeterSettings]:
    """The meter for nodes of one type, and its settings."""
    first = next((node for node in nodes if not node.evidence.unreached), nodes[0])
    gpus, neuron = _expected(first, "gpus"), _expected(first, "neuron_devices")
    meter = METERS[options.meter] if options.meter else meter_for(gpus, neuron)
    settings = options.settings
    ranks = settings.ranks_per_node or (
        (gpus or neuron or 1) if meter.is_collective else gpus if meter.has_a_rank_for_each_gpu else 1
    )
    size = settings.size_bytes
    if meter.is_collective and not size:
        size = size_bytes_for(first.type_name, _efa(nodes), ranks, first.catalog, settings.collective)
    return meter, replace(settings, ranks_per_node=ranks, size_bytes=size)


def _expected(node: Node, what: str) -> int:
    try:
        return node.expected(what)
    except (Incomplete, NotApplicable):
        pass
    return (node.catalog.accelerators(node.type_name) or 0) if what == "gpus" else 0


def _efa(nodes: Sequence[Node]) -> int:
    """How many EFA devices most of those that were reached have; of two numbers that as many have, the larger."""
    present = [node for node in nodes if not node.evidence.unreached] or nodes
    counts = Counter(map(_efa_of, present))
    return max(counts, key=lambda count: (counts[count], count))


def _efa_of(node: Node) -> int:
    try:
        return len(node.efa_devices)
    except (Incomplete, NotApplicable):
        return _expected(node, "efa")


def _stack(node: Node) -> Stack:
    """The network software stack, as a node reports it."""

    def version(component: str) -> str:
        try:
            return node.software.version(component) or ""
        except (Incomplete, NotApplicable):
            return ""

    return Stack(**{column.name: version(column.name)[:200] for column in fields(Stack)})


def _absence(node: Node) -> str:
    if node.evidence.unreached is None:
        return ""
    return f"it was not reached ({node.evidence.unreached.value.replace('_', ' ')})"


def places_of(cluster: ClusterFacts, targets: Sequence[Target]) -> dict[str, str]:
    """Each node's place: UltraServer, network node, switch or zone, else its group; the first that divides them."""
    names = [target.name for target in targets]
    for read in READ:
        known = known_places(read, cluster)
        place_by_node = {name: known.get(name) or "" for name in names}
        if _divides(place_by_node):
            return place_by_node
    return {target.name: target.group for target in targets}


def _divides(place_by_node: Mapping[str, str]) -> bool:
    """Whether there are several places, at least one of them with several nodes."""
    places = [place for place in place_by_node.values() if place]
    return 1 < len(set(places)) < len(places)


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


LAUNCHERS: Mapping[str, Callable[[MeterCampaign], Launcher]] = {
    "srun": srun,
    "mpirun": mpirun,
    "ssh": ssh,
    "pods": pods,
}


def launcher_for(campaign: MeterCampaign, name: str = "") -> Launcher:
    """The named launcher; else srun for Slurm, pods for Kubernetes, mpirun for ranks, ssh for ends. Raises Unusable."""
    if name and name not in LAUNCHERS:
        raise Unusable(f"no launcher is called {name!r:.40}; expected {', '.join(LAUNCHERS)}")
    return LAUNCHERS[name or _chosen(campaign)](campaign)


def _chosen(campaign: MeterCampaign) -> str:
    if SETTING in campaign.cluster.settings:
        return "srun"
    if is_loaded_by_pods(campaign.cluster):
        return "pods"
    return "mpirun" if campaign.meter.is_collective else "ssh"
