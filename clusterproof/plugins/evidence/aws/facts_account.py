"""What a cluster needs from its account: subnets and security groups, endpoints, service quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.aws import (
    ALWAYS,
    INTERFACES,
    NODES,
    PER_TYPE,
    SAGEMAKER,
    VOLUME,
    interfaces,
    quotas,
    vpc_endpoint_rows,
)
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, incomplete, part
from clusterproof.plugins.evidence.aws.facts_ec2 import Endpoint, Instance, RouteTable, SecurityGroup, Subnet
from clusterproof.plugins.evidence.aws.facts_hyperpod import InstanceGroup, Network
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import each

AVAILABLE = "available"
MAX_LOST = 5  # ids in words
T = TypeVar("T", Subnet, SecurityGroup)


def instances_of(cluster: ClusterFacts) -> tuple[Instance, ...]:
    """Its EC2 instances. Where AWS describes only some, that part of a check is incomplete. Raises Incomplete."""
    instances = cluster.ec2_instances
    if cluster.instances:
        due = {*cluster.instances.identities, *cluster.instances.nameless}
    else:
        due = {target.name for target in cluster.cluster.targets if target.address}
    named = [*each(instances, lambda instance: instance.hostname)]
    lost = due.difference(named) if len(named) == len(instances) else set()
    with part:
        if lost:
            message = f"AWS describes no instance of {fold(lost)}; expected all in this account and region"
            incomplete(message, cause="AWS describes no such instance")
    return instances


def efa_security_groups(cluster: ClusterFacts) -> list[SecurityGroup]:
    """The security groups of all nodes whose type has EFA. Raises Incomplete, NotApplicable."""
    return _reported(_ids_of_efa(cluster), cluster.security_groups, "security group")


def subnets_used(cluster: ClusterFacts) -> list[Subnet]:
    """The subnets of all instance groups. Raises Incomplete, NotApplicable."""
    if not cluster.is_hyperpod:
        return _reported({instance.subnet_id for instance in instances_of(cluster)}, cluster.vpc_subnets, "subnet")
    networks = _networks(cluster, cluster.hyperpod.groups)
    return _reported(
        {subnet_id for network in networks for subnet_id in network.subnet_ids}, cluster.vpc_subnets, "subnet"
    )


def table_of(subnet: Subnet, tables: Iterable[RouteTable]) -> RouteTable:
    """The route table of a subnet: its own, else its VPC's main one. Raises Incomplete if neither was reported."""
    of_vpc = [table for table in tables if table.vpc_id == subnet.vpc_id]
    own = [table for table in of_vpc if subnet.id in table.subnet_ids]
    candidates = [*own, *(table for table in of_vpc if table.is_main)]
    if not candidates:
        raise Incomplete(f"AWS reports no route table of {subnet.id}", cause="no route table reported")
    return candidates[0]


def missing_endpoints(cluster: ClusterFacts) -> list[str]:
    """The endpoints that the nodes' subnets lack, in words; that of a subnet without a route table is incomplete."""
    tables, endpoints = cluster.route_tables, cluster.vpc_endpoints
    of_each = each(subnets_used(cluster), lambda subnet: list(_lacking(subnet, table_of(subnet, tables), endpoints)))
    return list(dict.fromkeys(lacking for of_subnet in of_each for lacking in of_subnet))


def _lacking(subnet: Subnet, table: RouteTable, endpoints: Iterable[Endpoint]) -> Iterator[str]:
    own = [endpoint for endpoint in endpoints if endpoint.vpc_id == subnet.vpc_id]
    for row in vpc_endpoint_rows():
        if row.needed != ALWAYS and table.default_ways:
            continue
        named = [endpoint for endpoint in own if endpoint.service == row.service]
        if any(_serves(endpoint, table) for endpoint in named):
            continue
        if not named:
            yield f"{subnet.vpc_id} has no endpoint for {row.service} ({row.needed_for})"
        elif all(endpoint.state.lower() != AVAILABLE for endpoint in named):
            yield f"the endpoint for {row.service} is {named[0].state} ({row.needed_for})"
        else:
            yield f"{table.id} does not lead to the endpoint for {row.service} ({row.needed_for})"


def _serves(endpoint: Endpoint, table: RouteTable) -> bool:
    is_reached = endpoint.kind != "Gateway" or table.id in endpoint.route_table_ids
    return endpoint.state.lower() == AVAILABLE and is_reached


def _ids_of_efa(cluster: ClusterFacts) -> set[str]:
    if cluster.is_hyperpod:
        groups = [group for group in cluster.hyperpod.groups if _has_efa(group.counts, cluster.catalog)]
        ids = {group_id for network in _networks(cluster, groups) for group_id in network.security_group_ids}
    else:
        instances = [instance for instance in instances_of(cluster) if _has_efa([instance.ec2_type], cluster.catalog)]
        ids = {group for instance in instances for group in instance.security_group_ids}
    if not ids:
        raise NotApplicable("no node of it has EFA")
    return ids


def _networks(cluster: ClusterFacts, groups: Iterable[InstanceGroup]) -> list[Network]:
    """The networks of those groups that are in one of the account. Raises NotApplicable if none is."""
    networks: list[Network] = []
    without: list[NotApplicable] = []
    for group in groups:
        try:
            networks.append(cluster.hyperpod.network_of(group))
        except NotApplicable as why:
            without.append(why)
    if without and not networks:
        raise without[0]
    return networks


def _has_efa(types: Iterable[str], catalog: Catalog) -> bool:
    """Whether a node of these types may have EFA; a type that is not in the catalogue may."""
    return any(_may_have_efa(name, catalog) for name in types)


def _may_have_efa(name: str, catalog: Catalog) -> bool:
    devices = catalog.efa_devices(name)
    return catalog.accelerators(name) != 0 if devices is None else devices > 0


def _reported(ids: set[str], reported: Iterable[T], what: str) -> list[T]:
    """The items that AWS reported for these ids; where one is missing, that part of a check is incomplete.

    Raises Incomplete if there is no id.
    """
    if not ids:
        raise Incomplete(f"AWS names no {what} of its nodes", cause=f"no {what} was reported")
    by_id = {resource.id: resource for resource in reported}
    lost = sorted(ids - by_id.keys())
    more = f" and {len(lost) - MAX_LOST} more" if len(lost) > MAX_LOST else ""
    with part:
        if lost:
            message = f"AWS reports nothing about the {what} {', '.join(lost[:MAX_LOST])}{more}"
            incomplete(message, cause=f"a {what} was not reported")
    return [by_id[resource_id] for resource_id in sorted(ids & by_id.keys())]


@dataclass(frozen=True, slots=True)
class Need:
    """What one quota must allow; `amount` is None if an instance type is not in the catalogue."""

    service: str
    name: str
    amount: int | None

    @property
    def key(self) -> tuple[str, str]:
        """The key for finding the quota."""
        return self.service, self.name


def needs(cluster: ClusterFacts) -> Iterator[Need]:
    """Every quota that the cluster depends on, without duplicates. Raises Incomplete."""
    counts = _counts(cluster)
    for row in quotas():
        if row.service == SAGEMAKER and not cluster.is_hyperpod:
            continue
        if row.needs == PER_TYPE:
            for name, count in sorted(counts.items()):
                yield Need(row.service, row.name.format(type=f"ml.{name}"), count)
        else:
            yield Need(row.service, row.name, _amount(row.needs, cluster, counts))


def _counts(cluster: ClusterFacts) -> Counter[str]:
    """The actual or desired number of nodes of each instance type, including controllers."""
    if not cluster.is_hyperpod:
        return Counter(member.ec2_type for member in cluster.members)
    counts: Counter[str] = Counter()
    for group in cluster.hyperpod.groups:
        counts.update(group.counts)
    return counts


def _amount(what: str, cluster: ClusterFacts, counts: Counter[str]) -> int | None:
    if what == NODES:
        return counts.total()
    if what == VOLUME:
        sizes = (size for group in cluster.hyperpod.groups for size in group.volumes_gb)
        return max([int(cluster.threshold("quotas.ebs_gb")), *sizes])
    if what == INTERFACES:
        each = {name: interfaces(name, cluster.catalog) for name in counts}
        known = {name: number for name, number in each.items() if number is not None}
        return sum(known[name] * count for name, count in counts.items()) if len(known) == len(each) else None
    return 1
