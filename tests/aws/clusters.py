"""HyperPod clusters in moto, described as SageMaker describes real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from clusterproof.plugins.inventory import InventoryError, resolve
from tests.aws.clients import client
from tests.aws.ec2 import Vpc, with_quotas, with_vpc
from tests.aws.service import Service, environment

NAME, ID = "ml-cluster", "a1b2c3d4e5f6"
ARN = f"arn:aws:sagemaker:us-west-2:123456789012:cluster/{ID}"
WORKERS = {"workers": ("ml.p5.48xlarge", 3)}


def with_cluster(service: Service, groups: Mapping[str, tuple[str, int]], name: str = NAME) -> Vpc:
    """A cluster with these instance groups (type and number of nodes, by name); returns its VPC."""
    vpc = with_vpc(service, f"10.{_second_number(next(iter(groups)))}")
    with_quotas(service, {instance_type for instance_type, _ in groups.values()})
    client(service, "sagemaker").create_cluster(
        ClusterName=name,
        InstanceGroups=[
            {
                "InstanceGroupName": group,
                "InstanceType": instance_type,
                "InstanceCount": count,
                "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-lifecycle/", "OnCreate": "on_create.sh"},
                "ExecutionRole": "arn:aws:iam::123456789012:role/node",
                "ThreadsPerCore": 1,
            }
            for group, (instance_type, count) in groups.items()
        ],
    )
    service.calls.clear()
    service.rewrites("DescribeCluster", _as_described(vpc))
    service.requests["DescribeCluster"] = _by_name(name)
    nodes = [
        _node(group, instance_type, number)
        for group, (instance_type, count) in groups.items()
        for number in range(count)
    ]
    service.serves("ListClusterNodes", lambda request: _page(request, nodes))
    placed(service, {})
    return vpc


def placed(service: Service, zones: Mapping[str, str | None]) -> None:
    """Have DescribeClusterNode return these zones by instance id, none for None, and us-west-2a for other ids."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        zone = zones.get(request["NodeId"], "us-west-2a")
        placement = {"Placement": {"AvailabilityZone": zone, "AvailabilityZoneId": "usw2-az1"}} if zone else {}
        return {"NodeDetails": {"InstanceId": request["NodeId"], **placement}}

    service.serves("DescribeClusterNode", answer)


def refused(text: str, **settings: str) -> str:
    """The error for an invalid X."""
    with pytest.raises(InventoryError) as error:
        resolve(text, settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def instance_id(node: str) -> str:
    """The instance id here of a moto node (`workers-7`)."""
    group, _, number = node.rpartition("-")
    return f"i-{sum(map(ord, group)):05x}{int(number):012x}"


def private_name(node: str) -> str:
    """The node's private DNS name."""
    group, _, number = node.rpartition("-")
    return f"ip-10-{_second_number(group)}-{int(number) // 250}-{int(number) % 250 + 1}.us-west-2.compute.internal"


def _second_number(group: str) -> int:
    """The second number in the addresses of a group's nodes."""
    return sum(map(ord, group)) % 200


def _as_described(vpc: Vpc) -> Callable[[dict[str, Any]], None]:
    """Add what moto omits from an answer."""

    def change(description: dict[str, Any]) -> None:
        description["ClusterArn"] = ARN
        description["ClusterStatus"] = "InService"
        description["NodeRecovery"] = "Automatic"
        description["VpcConfig"] = vpc.config
        for group in description["InstanceGroups"]:
            group["CurrentCount"] = group["TargetCount"]
            group["OnStartDeepHealthChecks"] = ["InstanceStress", "InstanceConnectivity"]

    return change


def with_another_group(network: Mapping[str, Any], of_another: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Give the only group a network of its own, and add a group without nodes; an empty network is SageMaker's."""

    def change(description: dict[str, Any]) -> None:
        del description["VpcConfig"]
        (group,) = description["InstanceGroups"]
        another = {**group, "InstanceGroupName": "another", "CurrentCount": 0, "TargetCount": 0}
        group["OverrideVpcConfig"], another["OverrideVpcConfig"] = network, of_another
        description["InstanceGroups"] = [another, group]

    return change


def _by_name(name: str) -> Callable[[dict[str, Any]], None]:
    """Moto knows no cluster ids: replace an ARN by the cluster's name."""

    def change(request: dict[str, Any]) -> None:
        if request["ClusterName"] == ARN:
            request["ClusterName"] = name

    return change


def _node(group: str, instance_type: str, number: int) -> dict[str, Any]:
    name = f"{group}-{number}"
    return {
        "InstanceGroupName": group,
        "InstanceId": instance_id(name),
        "InstanceType": instance_type,
        "LaunchTime": 1763580000.0,
        "InstanceStatus": {"Status": "Running", "Message": ""},
        "PrivateDnsHostname": private_name(name),
        "CurrentImageReleaseVersion": "1.0.1481",
    }


def _page(request: dict[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """One page of a listing, of the requested length but at most 100."""
    first = int(request.get("NextToken") or 0)
    after = first + min(int(request.get("MaxResults", 100)), 100)
    more = {"NextToken": str(after)} if after < len(nodes) else {}
    return {"ClusterNodeSummaries": nodes[first:after], **more}


__all__ = ["ARN", "ID", "NAME", "client", "environment", "instance_id", "private_name", "with_cluster"]
