"""The EC2 instances that are the cluster's nodes."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import hostnames, instances, security_groups_of
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("ec2",)


def read(account: Account, cluster: Cluster) -> object:
    """Each with its zone, its image and its network."""
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
