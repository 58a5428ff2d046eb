"""EC2 in moto: instances, the network nodes that EC2 reports for them, and a cluster's VPC as it should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.aws.clients import client
from tests.aws.service import Service

TEAM = "ec2:tag:Team=training"
TYPE = "p5.48xlarge"
AMI, OTHER_AMI = "ami-12345678", "ami-87654321"


def with_instances(
    service: Service, count: int = 3, far: int = 0, others: int = 0, instance_type: str = TYPE
) -> tuple[Vpc, list[str]]:
    """Running instances of one team: their VPC and ids. `far` more in another zone, `others` with another image."""
    vpc = with_vpc(service, "10.9")
    with_quotas(service, [])
    ids = [own for subnet, number, ami in ((vpc.near, count, AMI), (vpc.far, far, AMI), (vpc.near, others, OTHER_AMI))
           for own in launched(service, subnet, vpc.security_group, number, ami, instance_type)]  # fmt: skip
    with_topology(service, {own: ["nn-1", "nn-2", "nn-3"] for own in ids})
    return vpc, ids


def with_topology(
    service: Service, layers: Mapping[str, Sequence[str]], ultraservers: Mapping[str, str] | None = None
) -> None:
    """Set DescribeInstanceTopology's answer: the network nodes above each instance, and its UltraServer's block."""

    def answer(request: Mapping[str, str]) -> str:
        wanted = [value for key, value in request.items() if key.startswith("InstanceId.")]
        assert len(wanted) <= 100
        items = "".join(_item(own, layers[own], (ultraservers or {}).get(own, "")) for own in wanted if own in layers)
        return (
            f"<DescribeInstanceTopologyResponse><instanceSet>{items}</instanceSet></DescribeInstanceTopologyResponse>"
        )

    service.serves("DescribeInstanceTopology", answer)


def _item(own: str, layers: Sequence[str], block: str) -> str:
    nodes = "".join(f"<item>{layer}</item>" for layer in layers)
    of_block = f"<capacityBlockId>{block}</capacityBlockId>" if block else ""
    return f"<item><instanceId>{own}</instanceId><networkNodeSet>{nodes}</networkNodeSet>{of_block}</item>"


def launched(
    service: Service, subnet: str, group: str, count: int, image: str = AMI, instance_type: str = TYPE
) -> list[str]:
    """The ids of new instances."""
    if not count:
        return []
    response = client(service, "ec2").run_instances(
        ImageId=image,
        MinCount=count,
        MaxCount=count,
        InstanceType=instance_type,
        SubnetId=subnet,
        SecurityGroupIds=[group],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Team", "Value": "training"}]}],
    )
    return sorted(own["InstanceId"] for own in response["Instances"])


ENOUGH = 10_000.0
QUOTAS: Mapping[str, tuple[str, ...]] = {
    "sagemaker": (
        "Maximum number of instances allowed per SageMaker HyperPod cluster",
        "Total number of instances allowed across SageMaker HyperPod clusters",
        "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance",
        "ml.m5.2xlarge for endpoint usage",
    ),
    "vpc": ("VPCs per Region", "Internet gateways per Region", "Network interfaces per Region"),
    "ec2": ("EC2-VPC Elastic IPs", "Number of EIPs - VPC EIPs"),
}


@dataclass(frozen=True)
class Vpc:
    """The ids of what was created: two subnets in two zones, of which only the first is the cluster's."""

    id: str
    near: str
    far: str
    security_group: str
    private: str  # route table of both subnets
    endpoint: str

    @property
    def config(self) -> dict[str, list[str]]:
        """The VpcConfig of a cluster in it."""
        return {"SecurityGroupIds": [self.security_group], "Subnets": [self.near]}


def with_vpc(service: Service, block: str) -> Vpc:
    """A VPC with the block `10.1`; node addresses `10.1.0.x` are in the near subnet, `10.1.1.x` in the far one."""
    ec2 = client(service, "ec2")
    vpc = ec2.create_vpc(CidrBlock=f"{block}.0.0/16")["Vpc"]["VpcId"]
    near, far = (
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"{block}.{third}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for third, zone in ((0, "us-west-2a"), (1, "us-west-2b"))
    )
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    for subnet in (near, far):
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=near, AllocationId=address)["NatGateway"]["NatGatewayId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName="com.amazonaws.us-west-2.s3", VpcEndpointType="Gateway", RouteTableIds=[table]
    )["VpcEndpoint"]["VpcEndpointId"]
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=itself)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=itself)
    return Vpc(vpc, near, far, group, table, endpoint)


def with_quotas(service: Service, types: Iterable[str], defaults: Iterable[str] = (), **values: float | None) -> None:
    """Quotas that are high enough, except `values`, by the first words of their names; `defaults` were never raised."""
    names = {**QUOTAS, "sagemaker": (*QUOTAS["sagemaker"], *(f"{kind} for cluster usage" for kind in types))}

    def listed(is_default: bool) -> Any:
        def answer(request: dict[str, Any]) -> dict[str, Any]:
            rows = [
                {"ServiceCode": request["ServiceCode"], "QuotaName": name, "Value": values.get(name.split()[0], ENOUGH)}
                for name in names[request["ServiceCode"]]
                if is_default or name not in defaults
            ]
            first = int(request.get("NextToken") or 0)
            return {
                "Quotas": rows[first : first + 2],
                **({"NextToken": str(first + 2)} if len(rows) > first + 2 else {}),
            }

        return answer

    service.serves("ListServiceQuotas", listed(is_default=False))
    service.serves("ListAWSDefaultServiceQuotas", listed(is_default=True))


def open_to_internet(service: Service, vpc: Vpc) -> None:
    """Route the subnets' default to an internet gateway."""
    ec2 = client(service, "ec2")
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc.id)
    ec2.delete_route(RouteTableId=vpc.private, DestinationCidrBlock="0.0.0.0/0")
    ec2.create_route(RouteTableId=vpc.private, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
