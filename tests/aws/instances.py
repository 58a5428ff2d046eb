"""EC2 instances in moto, and the network nodes that EC2 reports for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.aws.clients import client
from tests.aws.networks import Vpc, with_quotas, with_vpc
from tests.aws.service import Service

TEAM = "ec2:tag:Team=training"
TYPE = "p5.48xlarge"
AMI, OTHER_AMI = "ami-12345678", "ami-87654321"


def with_instances(
    service: Service, count: int = 3, far: int = 0, others: int = 0, instance_type: str = TYPE
) -> tuple[Vpc, list[str]]:
    """Running instances of one team: their VPC and their ids. `far` more in another zone, `others` of another image."""
    vpc = with_vpc(service, "10.9")
    with_quotas(service, [])
    ids = [one for subnet, number, ami in ((vpc.near, count, AMI), (vpc.far, far, AMI), (vpc.near, others, OTHER_AMI))
           for one in launched(service, subnet, vpc.security_group, number, ami, instance_type)]  # fmt: skip
    with_topology(service, {one: ["nn-1", "nn-2", "nn-3"] for one in ids})
    return vpc, ids


def with_topology(
    service: Service, layers: Mapping[str, Sequence[str]], ultraservers: Mapping[str, str] | None = None
) -> None:
    """What DescribeInstanceTopology returns: the network nodes above each instance, and its UltraServer's block."""

    def answer(asked: Mapping[str, str]) -> str:
        wanted = [value for key, value in asked.items() if key.startswith("InstanceId.")]
        assert len(wanted) <= 100
        items = "".join(_item(one, layers[one], (ultraservers or {}).get(one, "")) for one in wanted if one in layers)
        return (
            f"<DescribeInstanceTopologyResponse><instanceSet>{items}</instanceSet></DescribeInstanceTopologyResponse>"
        )

    service.serves("DescribeInstanceTopology", answer)


def _item(instance: str, layers: Sequence[str], block: str) -> str:
    nodes = "".join(f"<item>{layer}</item>" for layer in layers)
    of_block = f"<capacityBlockId>{block}</capacityBlockId>" if block else ""
    return f"<item><instanceId>{instance}</instanceId><networkNodeSet>{nodes}</networkNodeSet>{of_block}</item>"


def launched(
    service: Service, subnet: str, group: str, count: int, image: str = AMI, instance_type: str = TYPE
) -> list[str]:
    """The ids of so many new instances."""
    if not count:
        return []
    data = client(service, "ec2").run_instances(
        ImageId=image,
        MinCount=count,
        MaxCount=count,
        InstanceType=instance_type,
        SubnetId=subnet,
        SecurityGroupIds=[group],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Team", "Value": "training"}]}],
    )
    return sorted(instance["InstanceId"] for instance in data["Instances"])
