"""The HyperPod cluster and its nodes from SageMaker's API, and each node's availability zone.

A listing has no zones, and describing every node takes long. If a group has subnets in several zones, a node's host
name contains its address in one of them: names and CIDR blocks are matched here, where both are still as AWS returned
them. A node that no subnet locates is described individually, as all are in a cluster without subnets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, ip_address, ip_network

from clusterproof.plugins.aws import Account, AwsDenied, AwsError
from clusterproof.plugins.aws.resources import Description, described, hostnames, networks, nodes, subnets, types_of
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("hyperpod",)
OF_CLUSTER = ("ClusterStatus", "FailureMessage", "NodeRecovery", "VpcConfig")
OF_NODE = ("InstanceId", "InstanceGroupName", "InstanceType", "InstanceStatus", "CurrentImageReleaseVersion")
OF_GROUP = (
    "InstanceGroupName",
    "CurrentCount",
    "TargetCount",
    "Status",
    "OnStartDeepHealthChecks",
    "OverrideVpcConfig",
)


def read_hyperpod(account: Account, cluster: Cluster) -> object:
    """The cluster with its instance groups."""
    description = described(account, cluster)
    kept: dict[str, object] = {key: description[key] for key in OF_CLUSTER if key in description}
    for key in ("InstanceGroups", "RestrictedInstanceGroups"):
        kept[key] = [_group(group) for group in description.get(key, ())]
    return {"cluster": kept}


def _group(description: Description) -> dict[str, object]:
    volumes = [config.get("EbsVolumeConfig", {}) for config in description.get("InstanceStorageConfigs", ())]
    sizes = [volume["VolumeSizeInGB"] for volume in volumes if "VolumeSizeInGB" in volume]
    kept = {key: description[key] for key in OF_GROUP if key in description}
    return {**kept, "CountsByType": types_of(description), "VolumeSizesInGB": sizes}


def read_hyperpod_nodes(account: Account, cluster: Cluster) -> object:
    """The nodes; `hostname` is the name in reports, empty for nodes that are not checked."""
    names = hostnames(cluster)
    return {"nodes": [_node(node, names.get(str(node["InstanceId"]), "")) for node in nodes(account, cluster)]}


def _node(description: Description, name: str) -> dict[str, object]:
    ultraserver = description.get("UltraServerInfo") or {}
    return {
        "hostname": name,
        **{key: description[key] for key in OF_NODE if key in description},
        "UltraServerId": ultraserver.get("Id", ""),
        "UltraServerType": ultraserver.get("Type", ""),
    }


AT_ONCE = 8  # nodes requested concurrently; AWS throttles more
OF_ADDRESS = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.|$)")


def read_zones(account: Account, cluster: Cluster) -> object:
    """The zone of each checked node; null if neither its subnets nor SageMaker show it. Raises AwsError."""
    names, by_id = hostnames(cluster), {str(subnet["SubnetId"]): subnet for subnet in subnets(account, cluster)}
    of_group = {
        group: [by_id[subnet] for subnet in network.subnets if subnet in by_id]
        for group, network in networks(account, cluster).items()
    }
    zones = {
        str(node["InstanceId"]): _zone(node, of_group.get(str(node["InstanceGroupName"]), []))  # perhaps just removed
        for node in nodes(account, cluster)
        if str(node["InstanceId"]) in names
    }
    zones |= _placed(account, cluster, zones)
    return {"nodes": [{"hostname": names[instance_id], "zone": zone} for instance_id, zone in zones.items()]}


def _placed(account: Account, cluster: Cluster, zones: Mapping[str, str | None]) -> dict[str, str | None]:
    """The zones that SageMaker reports for nodes that have none yet.

    Raises AwsError if no zone would be known at all; otherwise a node that fails has none.
    """

    denied: list[AwsDenied] = []  # if denied for one node, it is denied for all

    def ask(node: str) -> str | AwsError | None:
        if denied:
            return denied[0]
        try:
            description = account.call(
                "sagemaker", "describe_cluster_node", ClusterName=cluster.settings["arn"], NodeId=node
            )
        except AwsError as problem:
            denied.extend([problem] if isinstance(problem, AwsDenied) else [])
            return problem
        return description["NodeDetails"].get("Placement", {}).get("AvailabilityZone")  # type: ignore[no-any-return]

    without = [node for node, zone in zones.items() if zone is None]
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="aws-zone") as pool:
        data = dict(zip(without, pool.map(ask, without), strict=True))
    problem = next((answer for answer in data.values() if isinstance(answer, AwsError)), None)
    if problem and len(without) == len(zones) and not any(isinstance(answer, str) for answer in data.values()):
        raise problem
    return {node: None if isinstance(answer, AwsError) else answer for node, answer in data.items()}


def _zone(node: Description, group: Sequence[Description]) -> str | None:
    zones = _zones(group)
    if len(zones) > 1:
        address = _address(str(node.get("PrivateDnsHostname", "")))
        zones = _zones(subnet for subnet in group if address and _has(subnet, address))
    return zones.pop() if len(zones) == 1 else None


def _zones(group: Iterable[Description]) -> set[str]:
    return {str(subnet["AvailabilityZone"]) for subnet in group}


def _has(subnet: Description, address: IPv4Address) -> bool:
    return address in ip_network(str(subnet["CidrBlock"]), strict=False)


def _address(name: str) -> IPv4Address | None:
    parts = OF_ADDRESS.match(name)
    try:
        address = ip_address(".".join(parts.groups())) if parts else None
    except ValueError:
        return None
    return address if isinstance(address, IPv4Address) else None
