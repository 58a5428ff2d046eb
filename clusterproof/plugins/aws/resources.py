"""Facts about a cluster that several collectors need, requested from AWS once; and the FSx systems that it mounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.aws import Account
from clusterproof.plugins.core.cluster import Cluster, is_of_hyperpod
from clusterproof.plugins.evidence.aws.by_evidence import SETTING
from clusterproof.plugins.evidence.aws.mounted_fsx import SETTING as MOUNTED
from clusterproof.plugins.evidence.aws.mounted_fsx import Source

Description = Mapping[str, Any]

PAGE = 100
AT_ONCE = 500  # instance ids in one call
IN_A_FILTER = 200
FSX_PAGE = 100


@dataclass(frozen=True, slots=True)
class Network:
    """The subnets and security groups of one instance group, by their ids."""

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]


def described(account: Account, cluster: Cluster) -> Description:
    """The HyperPod cluster. Raises AwsError."""
    arn = cluster.settings["arn"]
    return account.once("cluster", lambda: account.call("sagemaker", "describe_cluster", ClusterName=arn))


def instance_groups(description: Description) -> list[Description]:
    """The instance groups of a described cluster, including restricted ones."""
    return [*description.get("InstanceGroups", ()), *description.get("RestrictedInstanceGroups", ())]


def types_of(group: Description) -> Mapping[str, int]:
    """The instance types of a group, and the actual or desired number of each; flexible groups have several."""
    if group.get("InstanceType"):
        return {str(group["InstanceType"]): max(int(group.get("CurrentCount", 0)), int(group.get("TargetCount", 0)))}
    return {
        str(detail["InstanceType"]): int(detail.get("CurrentCount", 0))
        for detail in group.get("InstanceTypeDetails", ())
    }


def nodes(account: Account, cluster: Cluster) -> Sequence[Description]:
    """Every node of the HyperPod cluster. Raises AwsError."""
    parameters = {"ClusterName": cluster.settings["arn"], "PaginationConfig": {"PageSize": PAGE}}
    return account.once(
        "nodes", lambda: list(account.listed("sagemaker", "list_cluster_nodes", "ClusterNodeSummaries", **parameters))
    )


def instances(account: Account, cluster: Cluster) -> Sequence[Description]:
    """The cluster's EC2 instances. Raises AwsError."""

    def ask() -> list[Description]:
        return [instance for parameters in _by_id(cluster) for instance in reserved(account, **parameters)]

    return account.once("instances", ask)


def reserved(account: Account, **parameters: Any) -> Iterator[Description]:
    """EC2 instances by id, from their reservations. Raises AwsError."""
    for reservation in account.listed("ec2", "describe_instances", "Reservations", **parameters):
        yield from reservation["Instances"]


def _by_id(cluster: Cluster) -> Iterable[Mapping[str, Any]]:
    """The request for the cluster's instances; ids from nodes may be of another account, and then are missing."""
    ids = instance_ids(cluster)
    if SETTING not in cluster.settings:
        return ({"InstanceIds": some} for some in portions(ids, AT_ONCE))
    return ({"Filters": [{"Name": "instance-id", "Values": some}]} for some in portions(ids, IN_A_FILTER))


def networks(account: Account, cluster: Cluster) -> Mapping[str, Network]:
    """The network of each instance group; for EC2 instances, one for all, without a name. Raises AwsError."""
    if not is_of_hyperpod(cluster):
        own = instances(account, cluster)
        groups = {group for instance in own for group in security_groups_of(instance)}
        subnets_used = {str(instance["SubnetId"]) for instance in own if instance.get("SubnetId")}
        return {"": Network(tuple(sorted(subnets_used)), tuple(sorted(groups)))}
    description = described(account, cluster)
    return {
        str(group["InstanceGroupName"]): _network(group.get("OverrideVpcConfig") or description.get("VpcConfig") or {})
        for group in instance_groups(description)
    }


def security_groups_of(instance: Description) -> set[str]:
    """The security groups of all network interfaces of an EC2 instance."""
    interfaces = instance.get("NetworkInterfaces", ())
    every = [
        *instance.get("SecurityGroups", ()),
        *(group for interface in interfaces for group in interface.get("Groups", ())),
    ]
    return {str(group["GroupId"]) for group in every}


def subnets(account: Account, cluster: Cluster) -> Sequence[Description]:
    """The subnets of all instance groups; none if SageMaker runs the cluster in its own network.

    Raises AwsError.
    """

    def ask() -> list[Description]:
        ids = sorted({subnet for network in networks(account, cluster).values() for subnet in network.subnets})
        return list(existing(account, "describe_subnets", "Subnets", "subnet-id", ids))

    return account.once("subnets", ask)


def existing(account: Account, operation: str, key: str, name: str, ids: Sequence[str]) -> Iterator[Description]:
    """Those of EC2's resources with these ids that exist: asked by id, one that is gone would fail the whole call."""
    for some in portions(ids, IN_A_FILTER):
        yield from account.listed("ec2", operation, key, Filters=[{"Name": name, "Values": some}])


def in_vpcs(account: Account, cluster: Cluster) -> list[Description]:
    """The filter for resources in the cluster's VPCs; empty if it has none. Raises AwsError."""
    vpcs = sorted({str(subnet["VpcId"]) for subnet in subnets(account, cluster)})
    return [{"Name": "vpc-id", "Values": vpcs}] if vpcs else []


def instance_ids(cluster: Cluster) -> list[str]:
    """The instance ids of an EC2 cluster's nodes, as far as they are known."""
    return [target.address for target in cluster.targets if target.address]


def known_ids(account: Account, cluster: Cluster) -> list[str]:
    """The instance ids that the account knows; all if they come from an AWS inventory. Raises AwsError."""
    if SETTING not in cluster.settings:
        return instance_ids(cluster)
    return [str(instance["InstanceId"]) for instance in instances(account, cluster)]


def hostnames(cluster: Cluster) -> Mapping[str, str]:
    """The names of the cluster's nodes by instance id."""
    return {instance_id(target.address): target.name for target in cluster.targets}


def instance_id(address: str) -> str:
    """The instance id in a node's address: `sagemaker-cluster:…_workers-i-0123…`, or the id itself."""
    return f"i-{address.rpartition('i-')[2]}"


def portions(ids: Sequence[str], most: int) -> Iterable[list[str]]:
    """The ids in batches of at most so many."""
    return (list(ids[first : first + most]) for first in range(0, len(ids), most))


def _network(config: Description) -> Network:
    return Network(tuple(config.get("Subnets", ())), tuple(config.get("SecurityGroupIds", ())))


def mounted_systems(account: Account, cluster: Cluster) -> list[Mapping[str, Any]]:
    """Those of the region's file systems that nodes mount. Raises AwsDenied, AwsError."""
    lines = filter(None, cluster.settings.get(MOUNTED, "").split("\n"))
    sources = [Source(*line.split(" ", 1)) for line in lines]
    if not sources:
        return []
    shown = account.listed("fsx", "describe_file_systems", "FileSystems", PaginationConfig={"PageSize": FSX_PAGE})
    return [system for system in shown if any(source.is_of(system) for source in sources)]
