"""Faults of a HyperPod cluster: what each changes, the verdicts that result, and words of their messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusterproof.plugins.core.verdict import Verdict
from tests.aws.clients import client
from tests.aws.clusters import instance_id, placed, with_another_group
from tests.aws.ec2 import Vpc, open_to_internet, with_quotas, with_vpc
from tests.aws.service import Service


def described(service: Service, change: Callable[[dict[str, Any]], None]) -> None:
    """Change DescribeCluster's answer."""
    before = service.changes["DescribeCluster"]

    def changed(description: dict[str, Any]) -> None:
        before(description)
        change(description)

    service.rewrites("DescribeCluster", changed)


def listed(service: Service, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change ListClusterNodes' answer."""
    before = service.served["ListClusterNodes"]

    def changed(request: dict[str, Any]) -> dict[str, Any]:
        page = before(request)
        assert isinstance(page, dict)
        rows = [dict(row) for row in page["ClusterNodeSummaries"]]
        change(rows)
        return {**page, "ClusterNodeSummaries": rows}

    service.serves("ListClusterNodes", changed)


def not_in_service(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description.update(ClusterStatus="Failed", FailureMessage="no capacity"))


def recovered(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description.update(FailureMessage="no capacity"))


def node_failed(service: Service, vpc: Vpc) -> None:
    listed(service, lambda rows: rows[1].update(InstanceStatus={"Status": "Failure", "Message": "disk"}))


def node_failed_oddly(service: Service, vpc: Vpc) -> None:
    listed(service, lambda rows: rows[1].update(InstanceStatus={"Status": "Failure"}))


def node_under_check(service: Service, vpc: Vpc) -> None:
    status = {"Status": "DeepHealthCheckInProgress", "Message": "the failure before it was started again"}
    listed(service, lambda rows: rows[1].update(InstanceStatus=status))


def group_short(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description["InstanceGroups"][0].update(TargetCount=5))


def no_recovery(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description.update(NodeRecovery="None"))


def recovery_not_reported(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description.pop("NodeRecovery"))


def without_stress(service: Service, vpc: Vpc) -> None:
    described(
        service,
        lambda description: description["InstanceGroups"][0].update(OnStartDeepHealthChecks=["InstanceConnectivity"]),
    )


def without_deep_checks(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description["InstanceGroups"][0].pop("OnStartDeepHealthChecks"))


def another_type(service: Service, vpc: Vpc) -> None:
    listed(service, lambda rows: rows[0].update(InstanceType="ml.p5e.48xlarge"))


def another_image(service: Service, vpc: Vpc) -> None:
    listed(service, lambda rows: rows[0].update(CurrentImageReleaseVersion="1.0.1400"))


def image_not_reported(service: Service, vpc: Vpc) -> None:
    listed(service, lambda rows: rows[0].pop("CurrentImageReleaseVersion"))


def in_two_zones(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description["VpcConfig"].update(Subnets=[vpc.near, vpc.far]))
    listed(service, lambda rows: rows[2].update(PrivateDnsHostname="ip-10-181-1-9.us-west-2.compute.internal"))


def zone_not_reported(service: Service, vpc: Vpc) -> None:
    described(service, lambda description: description["VpcConfig"].update(Subnets=[vpc.near, vpc.far]))
    listed(service, lambda rows: rows[2].update(PrivateDnsHostname="somewhere.internal"))
    placed(service, {instance_id("workers-2"): None})


def zone_known_from_node_alone(service: Service, vpc: Vpc) -> None:
    """One node is in another zone, which neither its address nor its group's subnets show."""
    zone_not_reported(service, vpc)
    placed(service, {instance_id("workers-2"): "us-west-2b"})


def in_two_zones_of_sagemakers_own(service: Service, vpc: Vpc) -> None:
    """A cluster without a VpcConfig has no subnets that could show zones."""
    described(service, lambda description: description.pop("VpcConfig"))
    placed(service, {instance_id("workers-2"): "us-west-2b"})


def group_in_another_zone(service: Service, vpc: Vpc) -> None:
    """Each group is in its own single zone: no job group is spread."""
    described(
        service,
        lambda description: description["InstanceGroups"][0].update(
            OverrideVpcConfig={**vpc.config, "Subnets": [vpc.far]}
        ),
    )


def in_ultraservers(service: Service, kind: str, *names: str) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        for row, name in zip(rows, names, strict=False):
            row["UltraServerInfo"] = {"Id": name, "Type": kind}

    listed(service, change)


def in_two_ultraservers(service: Service, vpc: Vpc) -> None:
    in_ultraservers(service, "ml.u-p6e-gb200x72", "us-a", "us-a", "us-b")


def in_ultraservers_of_two(service: Service, vpc: Vpc) -> None:
    """Three nodes of 8 GPUs do not fit into one UltraServer of 16 GPUs: two is the minimum."""
    in_ultraservers(service, "ml.u-p5x16", "us-a", "us-a", "us-b")


def outside_the_ultraserver(service: Service, vpc: Vpc) -> None:
    in_ultraservers(service, "ml.u-p6e-gb200x72", "us-a", "us-a")


def revoked(direction: str, service: Service, vpc: Vpc) -> None:
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": vpc.security_group}]}]
    getattr(client(service, "ec2"), f"revoke_security_group_{direction}")(
        GroupId=vpc.security_group, IpPermissions=rule
    )


def closed_inward(service: Service, vpc: Vpc) -> None:
    revoked("ingress", service, vpc)


def closed_outward(service: Service, vpc: Vpc) -> None:
    revoked("egress", service, vpc)


def one_protocol_only(service: Service, vpc: Vpc) -> None:
    revoked("ingress", service, vpc)
    pairs = [{"GroupId": vpc.security_group}]
    client(service, "ec2").authorize_security_group_ingress(
        GroupId=vpc.security_group,
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": pairs}],
    )


def second_group_closed(service: Service, vpc: Vpc) -> None:
    other = client(service, "ec2").create_security_group(GroupName="other", Description="other", VpcId=vpc.id)[
        "GroupId"
    ]
    described(
        service, lambda description: description["VpcConfig"].update(SecurityGroupIds=[vpc.security_group, other])
    )


def public(service: Service, vpc: Vpc) -> None:
    open_to_internet(service, vpc)


def giving_addresses(service: Service, vpc: Vpc) -> None:
    client(service, "ec2").modify_subnet_attribute(SubnetId=vpc.near, MapPublicIpOnLaunch={"Value": True})


def public_and_closed_beside_sagemakers_own(service: Service, vpc: Vpc) -> None:
    described(service, with_another_group(vpc.config, {}))
    closed_inward(service, vpc)
    public(service, vpc)


def routes_not_reported(service: Service, vpc: Vpc) -> None:
    empty = "<DescribeRouteTablesResponse><routeTableSet/></DescribeRouteTablesResponse>"
    service.serves("DescribeRouteTables", lambda _: empty)


def without_endpoint_beside_a_shared_vpc(service: Service, vpc: Vpc) -> None:
    """Another group's VPC is of an account that shares it, but does not show its main route table."""
    described(service, with_another_group(vpc.config, with_vpc(service, "10.77").config))
    without_endpoint(service, vpc)
    main = "<associationSet><item><main>true</main></item></associationSet>"
    table = (
        f"<routeTableSet><item><routeTableId>rtb-1</routeTableId><vpcId>{vpc.id}</vpcId>{main}</item></routeTableSet>"
    )
    service.serves(
        "DescribeRouteTables", lambda _: f"<DescribeRouteTablesResponse>{table}</DescribeRouteTablesResponse>"
    )


def without_endpoint(service: Service, vpc: Vpc) -> None:
    client(service, "ec2").delete_vpc_endpoints(VpcEndpointIds=[vpc.endpoint])


def endpoint_elsewhere(service: Service, vpc: Vpc) -> None:
    client(service, "ec2").modify_vpc_endpoint(VpcEndpointId=vpc.endpoint, RemoveRouteTableIds=[vpc.private])


def without_internet(service: Service, vpc: Vpc) -> None:
    client(service, "ec2").delete_route(RouteTableId=vpc.private, DestinationCidrBlock="0.0.0.0/0")


def few_interfaces(service: Service, vpc: Vpc) -> None:
    with_quotas(service, ["ml.p5.48xlarge"], Network=95)  # 3 nodes with 32 EFA devices need 96


def few_of_the_type(service: Service, vpc: Vpc) -> None:
    with_quotas(service, ["ml.p5.48xlarge"], (), **{"ml.p5.48xlarge": 2})


def few_nodes(service: Service, vpc: Vpc) -> None:
    with_quotas(service, ["ml.p5.48xlarge"], Maximum=2)


def small_volumes(service: Service, vpc: Vpc) -> None:
    sizes = [{"EbsVolumeConfig": {"VolumeSizeInGB": 20_000}}]
    described(service, lambda description: description["InstanceGroups"][0].update(InstanceStorageConfigs=sizes))


def quota_not_reported(service: Service, vpc: Vpc) -> None:
    with_quotas(service, [])


FAULTS: dict[Callable[[Service, Vpc], None], tuple[dict[str, Verdict], str]] = {
    not_in_service: ({"cluster_in_service": Verdict.FAIL}, "the cluster is Failed (no capacity); expected InService"),
    recovered: ({"cluster_in_service": Verdict.CONCERN}, "still shows a failure: no capacity"),
    node_failed: ({"nodes_running": Verdict.FAIL}, f"{instance_id('workers-1')} (workers) is Failure: disk; expected"),
    node_failed_oddly: ({"nodes_running": Verdict.FAIL}, f"{instance_id('workers-1')} (workers) is Failure; expected"),
    node_under_check: (
        {"nodes_running": Verdict.FAIL},
        f"{instance_id('workers-1')} (workers) is DeepHealthCheckInProgress; expected every node Running",
    ),
    group_short: ({"nodes_running": Verdict.FAIL}, "workers has 3 of 5"),
    no_recovery: ({"node_recovery": Verdict.CONCERN}, "NodeRecovery is None; expected Automatic"),
    recovery_not_reported: ({"node_recovery": Verdict.INCOMPLETE}, "NodeRecovery was not reported"),
    without_stress: ({"deep_health_checks": Verdict.CONCERN}, "workers starts without InstanceStress;"),
    without_deep_checks: ({"deep_health_checks": Verdict.CONCERN}, "without InstanceConnectivity and InstanceStress;"),
    another_type: ({"mixed_instance_types": Verdict.CONCERN}, "workers: 2 of p5.48xlarge and 1 of p5e.48xlarge"),
    another_image: ({"image_uniform": Verdict.CONCERN}, "workers: 2 of 1.0.1481 and 1 of 1.0.1400"),
    image_not_reported: ({"image_uniform": Verdict.INCOMPLETE}, "AWS reports no image for 1 of 3 nodes"),
    in_two_zones: ({"single_az": Verdict.FAIL}, "2 in us-west-2a (ip-10-181-0-[1-2]), 1 in us-west-2b (ip-10-181-1-9)"),
    zone_not_reported: ({"single_az": Verdict.INCOMPLETE}, "AWS reports no availability zone for somewhere"),
    zone_known_from_node_alone: ({"single_az": Verdict.FAIL}, "2 in us-west-2a (ip-10-181-0-[1-2]), 1 in us-west-2b"),
    in_two_zones_of_sagemakers_own: ({"single_az": Verdict.FAIL}, "2 in us-west-2a (ip-10-181-0-[1-2]), 1 in us-west"),
    group_in_another_zone: ({}, ""),
    in_two_ultraservers: ({"ultraserver_block": Verdict.CONCERN}, "workers: 2 in us-a (ip-10-181-0-[1-2]), 1 in us-b"),
    in_ultraservers_of_two: ({}, ""),
    outside_the_ultraserver: ({"ultraserver_block": Verdict.CONCERN}, "ip-10-181-0-3 of 3 nodes in no UltraServer"),
    closed_inward: ({"security_group_self_reference": Verdict.FAIL}, "not allow traffic with itself inbound, though"),
    closed_outward: ({"security_group_self_reference": Verdict.FAIL}, "outbound, though all may leave to everywhere"),
    one_protocol_only: ({"security_group_self_reference": Verdict.FAIL}, "does not allow traffic with itself inbound"),
    second_group_closed: ({"security_group_self_reference": Verdict.FAIL}, "with itself inbound and outbound"),
    public: ({"subnet_private": Verdict.CONCERN}, "routes to an internet gateway; expected private subnets"),
    public_and_closed_beside_sagemakers_own: (
        {"security_group_self_reference": Verdict.FAIL, "subnet_private": Verdict.CONCERN},
        "routes to an internet gateway; expected private subnets",
    ),
    giving_addresses: ({"subnet_private": Verdict.CONCERN}, "gives every instance a public address"),
    routes_not_reported: (
        {"subnet_private": Verdict.INCOMPLETE, "vpc_endpoints": Verdict.INCOMPLETE},
        "AWS reports no route table of subnet-",
    ),
    without_endpoint_beside_a_shared_vpc: (
        {"subnet_private": Verdict.INCOMPLETE, "vpc_endpoints": Verdict.INCOMPLETE},
        "the endpoint for s3 is deleted (lifecycle scripts",
    ),
    without_endpoint: ({"vpc_endpoints": Verdict.CONCERN}, "the endpoint for s3 is deleted (lifecycle scripts"),
    endpoint_elsewhere: ({"vpc_endpoints": Verdict.CONCERN}, "does not lead to the endpoint for s3"),
    without_internet: ({"vpc_endpoints": Verdict.CONCERN}, "has no endpoint for ecr.api (container images)"),
    few_interfaces: ({"service_quotas": Verdict.FAIL}, "Network interfaces per Region is 95, but 96 are needed"),
    few_of_the_type: ({"service_quotas": Verdict.FAIL}, "ml.p5.48xlarge for cluster usage is 2, but 3 are needed"),
    few_nodes: ({"service_quotas": Verdict.FAIL}, "per SageMaker HyperPod cluster is 2, but 3 are needed"),
    small_volumes: ({"service_quotas": Verdict.FAIL}, "cluster instance is 10,000, but 20,000 are needed"),
    quota_not_reported: ({"service_quotas": Verdict.INCOMPLETE}, "reports no quota ml.p5.48xlarge for cluster usage"),
}  # fmt: skip
