"""What the AWS account provides: security groups, subnets, VPC endpoints and service quotas."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.facts_account import (
    efa_security_groups,
    missing_endpoints,
    needs,
    subnets_used,
    table_of,
)
from clusterproof.plugins.evidence.aws.facts_ec2 import SecurityGroup, Subnet
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import each, known, readings

pytestmark = [mark.control_plane, mark.preflight]


@mark.hyperpod_cluster_debugger("A")
@evidence(
    "aws ec2 describe-security-groups --group-ids SG --query 'SecurityGroups[].[IpPermissions,IpPermissionsEgress]'"
)
def test_security_group_self_reference(cluster: ClusterFacts) -> None:
    """Traffic within security groups.

    EFA needs a rule for all traffic from the group to itself, in both directions, in every security group of the nodes.
    A rule to 0.0.0.0/0 does not replace it.

    Remedy (fix configuration): Add the rule in the missing direction: all traffic, with the group itself as its source
    or destination.
    """
    bad = [*filter(None, each(efa_security_groups(cluster), _closed))]
    fail_if(bad, f"{listed(bad)}; expected a rule for all traffic of the group with itself, in and out")


def _closed(group: SecurityGroup) -> str:
    """What a security group does not allow; empty if it allows all traffic with itself."""
    outward = ", though all may leave to everywhere" if group.is_open_outward else ""
    ways = " and ".join(group.missing_directions)
    return f"{group.id} does not allow traffic with itself {ways}{outward}" if ways else ""


@mark.hyperpod_node_debugger("B")
@evidence(
    "aws ec2 describe-subnets --subnet-ids SUBNET; aws ec2 describe-route-tables --filters Name=vpc-id,Values=VPC"
)
def test_subnet_private(cluster: ClusterFacts) -> None:
    """Node subnets.

    HyperPod nodes and instances with several network cards get no public address: in a subnet that routes to an
    internet gateway they reach nothing outside, and whatever does get a public address can be reached from outside.

    Remedy (fix configuration): Use subnets whose default route leads to a NAT gateway and that assign no public
    addresses.
    """
    bad = [*filter(None, (_public(subnet, cluster) for subnet in subnets_used(cluster)))]
    concern_if(bad, f"{listed(bad)}; expected private subnets")


def _public(subnet: Subnet, cluster: ClusterFacts) -> str:
    """How a subnet is public, as far as that is known; empty if it is not."""
    is_open = known(lambda: table_of(subnet, cluster.route_tables).leads_to_internet, False)
    ways = ["routes to an internet gateway"] if is_open else []
    ways += ["gives every instance a public address"] if known(lambda: subnet.is_giving_public_addresses, False) else []
    return f"{subnet.id} {' and '.join(ways)}" if ways else ""


@mark.hyperpod_node_debugger("B")
@evidence("aws ec2 describe-vpc-endpoints --filters Name=vpc-id,Values=VPC")
def test_vpc_endpoints(cluster: ClusterFacts) -> None:
    """VPC endpoints.

    Without an endpoint, traffic to S3 goes through a NAT gateway, slowly and at a cost; from a subnet without a route
    to the internet the service cannot be reached at all.

    Remedy (fix configuration): Create the endpoint in the VPC; add a gateway endpoint to the route tables of the nodes'
    subnets.
    """
    missing = missing_endpoints(cluster)
    concern_if(missing, f"{listed(missing)}; expected the endpoints that the nodes' subnets need")


@mark.hyperpod_node_debugger("C")
@evidence("for S in sagemaker vpc ec2; do aws service-quotas list-service-quotas --service-code $S; done")
def test_service_quotas(cluster: ClusterFacts) -> None:
    """Service quotas.

    The need is calculated for this cluster alone; other clusters in the account add to it. A node uses one network
    interface for each EFA device.

    Remedy (fix configuration): Request a quota increase in the Service Quotas console, in this region.
    """
    data = {
        (quota.service, quota.name): value
        for quota in cluster.service_quotas
        for value in readings(quota, "value")[0].values()
    }
    wanted = list(needs(cluster))
    low = [
        f"{need.name} is {data[need.key]:,.0f}, but {need.amount:,} are needed"
        for need in wanted
        if need.amount is not None and need.key in data and data[need.key] < need.amount
    ]
    fail_if(low, f"{', '.join(low)}; expected at least what the cluster needs")
    unread = [need.name for need in wanted if need.key not in data]
    with part:
        if unread:
            incomplete(f"AWS reports no quota {', '.join(unread)}; expected a value for each")
    unknown = [need.name for need in wanted if need.amount is None]
    if unknown:
        incomplete(f"the catalogue lacks an instance type, so the need for {', '.join(unknown)} is unknown")
