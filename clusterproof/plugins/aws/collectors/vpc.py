"""The VPC of a cluster: subnets, route tables, security groups and endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.aws import Account
from clusterproof.plugins.aws.resources import Description, existing, in_vpcs, networks, subnets
from clusterproof.plugins.core.cluster import Cluster

OF_SUBNET = ("SubnetId", "VpcId", "AvailabilityZone", "MapPublicIpOnLaunch")
OF_ENDPOINT = ("VpcId", "VpcEndpointType", "State", "RouteTableIds")
OF_AWS = ("com.amazonaws.", "cn.com.amazonaws.")  # how the names of its own services begin
EVERYWHERE = ("0.0.0.0/0", "::/0")
DESTINATIONS = (  # of a default route, by the prefix of its id
    ("igw-", "internet gateway"),
    ("eigw-", "egress-only internet gateway"),
    ("nat-", "NAT gateway"),
)


def read_subnets(account: Account, cluster: Cluster) -> object:
    """Each subnet with its zone and whether it assigns public addresses."""
    return {"subnets": [{key: data[key] for key in OF_SUBNET if key in data} for data in subnets(account, cluster)]}


def read_route_tables(account: Account, cluster: Cluster) -> object:
    """Each route table with its VPC, subnets, whether it is the VPC's main one, and its default routes' targets."""
    within = in_vpcs(account, cluster)
    tables = account.listed("ec2", "describe_route_tables", "RouteTables", Filters=within) if within else ()
    return {"tables": [_table(table) for table in tables]}


def _table(description: Description) -> dict[str, object]:
    associations = description.get("Associations", ())
    return {
        "RouteTableId": description["RouteTableId"],
        "VpcId": description["VpcId"],
        "main": any(association.get("Main") for association in associations),
        "SubnetIds": [association["SubnetId"] for association in associations if "SubnetId" in association],
        "default": [_destination(route) for route in description.get("Routes", ()) if _is_default(route)],
    }


def _is_default(route: Description) -> bool:
    to = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock")
    return to in EVERYWHERE and route.get("State") != "blackhole"


def _destination(route: Description) -> str:
    ids = [str(value) for key, value in route.items() if key.endswith("Id")]
    return next(
        (target for start, target in DESTINATIONS if any(gateway.startswith(start) for gateway in ids)), "another way"
    )


def read_security_groups(account: Account, cluster: Cluster) -> object:
    """Each group with its rules: protocol (`-1`: all traffic), referenced groups, and whether for any address."""
    ids = sorted({group for network in networks(account, cluster).values() for group in network.security_groups})
    groups = existing(account, "describe_security_groups", "SecurityGroups", "group-id", ids)
    return {
        "groups": [
            {
                "GroupId": group["GroupId"],
                "inbound": _rules(group.get("IpPermissions", ())),
                "outbound": _rules(group.get("IpPermissionsEgress", ())),
            }
            for group in groups
        ]
    }


def _rules(rules: Iterable[Description]) -> list[dict[str, object]]:
    return [
        {
            "protocol": rule["IpProtocol"],
            "groups": [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ()) if "GroupId" in pair],
            "everywhere": any(_ranges(rule) & {where} for where in EVERYWHERE),
        }
        for rule in rules
    ]


def _ranges(rule: Description) -> set[str]:
    return {
        *(str(block.get("CidrIp")) for block in rule.get("IpRanges", ())),
        *(str(block.get("CidrIpv6")) for block in rule.get("Ipv6Ranges", ())),
    }


def read_vpc_endpoints(account: Account, cluster: Cluster) -> object:
    """Each endpoint with its service, without the prefix common to all services of the region."""
    within = in_vpcs(account, cluster)
    endpoints = account.listed("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=within) if within else ()
    return {
        "endpoints": [
            {"service": service_of(str(endpoint["ServiceName"]), account.region)}
            | {key: endpoint[key] for key in OF_ENDPOINT if key in endpoint}
            for endpoint in endpoints
        ]
    }


def service_of(name: str, region: str) -> str:
    """`ecr.api` for `com.amazonaws.us-west-2.ecr.api`; a third party's service keeps its name."""
    return name.partition(f".{region}.")[2] if name.startswith(OF_AWS) else name
