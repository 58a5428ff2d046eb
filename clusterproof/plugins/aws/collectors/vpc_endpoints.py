"""The VPC endpoints of the cluster's VPCs."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import in_vpcs
from clusterproof.plugins.core.cluster import Cluster

KEPT = ("VpcId", "VpcEndpointType", "State", "RouteTableIds")


def read(account: Account, cluster: Cluster) -> object:
    """Each with its service, without what every service of the region begins with."""
    within = in_vpcs(account, cluster)
    data = account.listed("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=within) if within else ()
    return {
        "endpoints": [
            {"service": _service(str(one["ServiceName"]), account.region)}
            | {key: one[key] for key in KEPT if key in one}
            for one in data
        ]
    }


def _service(name: str, region: str) -> str:
    """`ecr.api` of `com.amazonaws.us-west-2.ecr.api`; a service of somebody else's keeps its name."""
    return name.partition(f".{region}.")[2] if name.startswith("com.amazonaws.") else name
