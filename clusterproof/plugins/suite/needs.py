"""What the selected checks need: collectors of the nodes, collectors of the control plane, pairs of nodes measured."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from clusterproof.plugins.core.cluster import Cluster, is_of_aws, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.evaluation.needs import PAIRWISE, needs_of, of_nodes
from clusterproof.plugins.evidence.cluster import SLURM_COLLECTOR, is_of_instances
from clusterproof.plugins.evidence.ec2.by_evidence import may_be_on_ec2
from clusterproof.plugins.evidence.kubernetes.facts import NODES
from clusterproof.plugins.suite.check_item import CheckItem
from clusterproof.plugins.suite.collect import asks_for_node

ALWAYS = frozenset({"boot", "platform"})  # what every report says of a node, whatever is checked
OF_PLACES = frozenset({"hyperpod_nodes", "zones", "instances", "instance_topology"})  # where nodes stand
OF_INSTANCES = frozenset({"imds", "platform"})  # whether they are EC2's, and which
OF_TYPES = frozenset({"imds", "platform", "resource_config", "rdma", "nvml", "versions"})  # and of what kind they are


def one_of_each(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The first item of each check that runs, and every other item: what a check needs is the same on each node."""
    first: dict[int, pytest.Item] = {}
    for item in items:
        first.setdefault(id(item.check if isinstance(item, CheckItem) else item), item)
    return [item for item in first.values() if not (isinstance(item, CheckItem) and item.why_not_asked)]


def collectors_of_nodes(items: list[pytest.Item], cluster: Cluster) -> frozenset[str]:
    """The collectors that nodes are asked for; none where every check is of the cluster and looks at no node."""
    collectors = frozenset[str]().union(*(collectors_of(item) for item in items))
    if may_be_on_ec2(cluster) and is_of_instances(collectors_of_control_plane(items, cluster)):
        collectors |= OF_INSTANCES
    if any(needs_pairs(item) for item in items):
        collectors |= OF_TYPES
    looks_at_nodes = any(
        not (isinstance(item, CheckItem) and (item.check.is_of_cluster or item.check.is_of_run)) for item in items
    )
    return collectors | ALWAYS if collectors or looks_at_nodes else collectors


def collectors_of_control_plane(items: list[pytest.Item], cluster: Cluster) -> frozenset[str]:
    """What the control plane is asked for, where nodes stand included if pairs of them are measured."""
    asked = frozenset[str]().union(*(item.check.control_collectors for item in items if isinstance(item, CheckItem)))
    if any(needs_pairs(item) for item in items):
        asked |= OF_PLACES if is_of_aws(cluster) else frozenset[str]()
        asked |= frozenset({SLURM_COLLECTOR}) if is_of_slurm(cluster) else frozenset[str]()
        asked |= frozenset({NODES}) if is_of_kubernetes(cluster) else frozenset[str]()
    return asked


def collectors_of(item: pytest.Item) -> frozenset[str]:
    """The collectors of evidence that an item needs."""
    if isinstance(item, CheckItem):
        return item.check.collectors
    if asks_for_node(item):
        return needs_of(item.name, "node", item.function) & of_nodes()  # type: ignore[attr-defined]
    return frozenset()


def needs_pairs(item: pytest.Item) -> bool:
    """Whether pairs of nodes are to be measured for an item."""
    if isinstance(item, CheckItem):
        return item.check.needs_pairs
    return PAIRWISE in getattr(item, "fixturenames", ()) or (
        asks_for_node(item) and PAIRWISE in needs_of(item.name, "node", item.function)  # type: ignore[attr-defined]
    )
