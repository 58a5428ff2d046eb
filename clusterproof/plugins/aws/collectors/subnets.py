"""The subnets of the cluster's nodes."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import subnets
from clusterproof.plugins.core.cluster import Cluster

KEPT = ("SubnetId", "VpcId", "AvailabilityZone", "MapPublicIpOnLaunch")


def read(account: Account, cluster: Cluster) -> object:
    """Each with its zone and whether it hands out public addresses."""
    return {"subnets": [{key: data[key] for key in KEPT if key in data} for data in subnets(account, cluster)]}
