"""Where EC2 instances stand in the network: DescribeInstanceTopology."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import hostnames, known_ids, portions
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("ec2",)
AT_ONCE = 100  # instance ids in one call


def read(account: Account, cluster: Cluster) -> object:
    """The instances whose type has a topology, with the network nodes above them, the topmost first."""
    names = hostnames(cluster)
    data = [
        instance
        for ids in portions(known_ids(account, cluster), AT_ONCE)
        for instance in account.listed("ec2", "describe_instance_topology", "Instances", InstanceIds=ids)
    ]
    return {
        "instances": [
            {
                "hostname": names[str(instance["InstanceId"])],
                "InstanceType": instance.get("InstanceType", ""),
                "NetworkNodes": instance.get("NetworkNodes", []),
                "CapacityBlockId": instance.get("CapacityBlockId", ""),
            }
            for instance in data
        ]
    }
