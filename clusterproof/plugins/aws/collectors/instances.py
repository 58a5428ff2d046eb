"""The EC2 instances that are the cluster's nodes, and their location in the network."""

from __future__ import annotations

from clusterproof.plugins.aws import Account
from clusterproof.plugins.aws.resources import hostnames, instances, known_ids, portions, security_groups_of
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("ec2",)
AT_ONCE = 100  # instance ids in one call


def read_instances(account: Account, cluster: Cluster) -> object:
    """Each instance with its zone, image and network."""
    names = hostnames(cluster)
    return {
        "instances": [
            {
                "hostname": names[str(data["InstanceId"])],
                "InstanceType": data.get("InstanceType", ""),
                "ImageId": data.get("ImageId"),
                "AvailabilityZone": data.get("Placement", {}).get("AvailabilityZone"),
                "SubnetId": data.get("SubnetId", ""),
                "SecurityGroupIds": sorted(security_groups_of(data)),
            }
            for data in instances(account, cluster)
        ]
    }


def read_instance_topology(account: Account, cluster: Cluster) -> object:
    """The instances whose type has a topology, with the network nodes above them, the topmost first."""
    names = hostnames(cluster)
    descriptions = [
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
            for instance in descriptions
        ]
    }
