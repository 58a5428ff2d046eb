"""The availability zone of each HyperPod node, worked out from its group's subnets: no listing tells it.

A HyperPod node's host name holds its address in the customer's subnet, so that names and CIDR blocks are put together
here, where both still are what AWS told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address, ip_network

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import Told, hostnames, networks, nodes, subnets
from clusterproof.plugins.inventory.model import Cluster

KINDS = ("hyperpod",)
OF_ADDRESS = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.|$)")


def read(account: Account, cluster: Cluster) -> object:
    """The zone of each validated node; null where its group has several, and none of them has its address."""
    names, by_id = hostnames(cluster), {str(subnet["SubnetId"]): subnet for subnet in subnets(account, cluster)}
    of_group = {
        group: [by_id[subnet] for subnet in network.subnets if subnet in by_id]
        for group, network in networks(account, cluster).items()
    }
    return {
        "nodes": [
            {"hostname": names[str(node["InstanceId"])], "zone": _zone(node, of_group[str(node["InstanceGroupName"])])}
            for node in nodes(account, cluster)
            if str(node["InstanceId"]) in names
        ]
    }


def _zone(node: Told, group: Sequence[Told]) -> str | None:
    found = {str(subnet["AvailabilityZone"]) for subnet in group}
    if len(found) > 1:
        address = _address(str(node.get("PrivateDnsHostname", "")))
        found = {str(subnet["AvailabilityZone"]) for subnet in group if address and _has(subnet, address)}
    return found.pop() if len(found) == 1 else None


def _has(subnet: Told, address: IPv4Address) -> bool:
    return address in ip_network(str(subnet["CidrBlock"]), strict=False)


def _address(name: str) -> IPv4Address | None:
    found = OF_ADDRESS.match(name)
    try:
        address = ip_address(".".join(found.groups())) if found else None
    except ValueError:
        return None
    return address if isinstance(address, IPv4Address) else None
