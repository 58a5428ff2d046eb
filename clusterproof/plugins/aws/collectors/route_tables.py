"""The route tables of the cluster's VPCs."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import Description, in_vpcs
from clusterproof.plugins.core.cluster import Cluster

EVERYWHERE = ("0.0.0.0/0", "::/0")
WAYS = (  # of a default route, by the beginning of an id
    ("igw-", "internet gateway"),
    ("eigw-", "egress-only internet gateway"),
    ("nat-", "NAT gateway"),
)


def read(account: Account, cluster: Cluster) -> object:
    """Each with its VPC, its subnets, whether it is the VPC's main one, and what its default routes lead to."""
    within = in_vpcs(account, cluster)
    data = account.listed("ec2", "describe_route_tables", "RouteTables", Filters=within) if within else ()
    return {"tables": [_table(table) for table in data]}


def _table(data: Description) -> dict[str, object]:
    associations = data.get("Associations", ())
    return {
        "RouteTableId": data["RouteTableId"],
        "VpcId": data["VpcId"],
        "main": any(one.get("Main") for one in associations),
        "SubnetIds": [one["SubnetId"] for one in associations if "SubnetId" in one],
        "default": [_way(route) for route in data.get("Routes", ()) if _is_default(route)],
    }


def _is_default(route: Description) -> bool:
    to = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock")
    return to in EVERYWHERE and route.get("State") != "blackhole"


def _way(route: Description) -> str:
    ids = [str(value) for key, value in route.items() if key.endswith("Id")]
    return next((words for start, words in WAYS if any(one.startswith(start) for one in ids)), "another way")
