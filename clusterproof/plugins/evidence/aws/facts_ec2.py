"""EC2 instances and the VPC of a cluster from EC2's API, and the instance metadata of nodes."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    object_as,
    objects,
    objects_as,
    optional,
    read,
    text,
    texts,
)

HTTP_OK = 200
_OVER = ("completed", "canceled")


@record
class Instance(Reported):
    """One instance of DescribeInstances; `hostname` is its name in reports."""

    hostname = Field(text)
    ec2_type = Field(text, "InstanceType")
    image = Field(optional(text), "ImageId")
    zone = Field(optional(text), "AvailabilityZone")
    subnet_id = Field(text, "SubnetId")
    security_group_ids = Field(texts, "SecurityGroupIds")


@record
class InstanceTopology(Reported):
    """One instance of DescribeInstanceTopology."""

    hostname = Field(text)
    layers = Field(texts, "NetworkNodes")  # the topmost first
    capacity_block = Field(text, "CapacityBlockId")  # for an UltraServer's instance: identifies the UltraServer


@record
class Subnet(Reported):
    """One subnet."""

    id = Field(text, "SubnetId")
    vpc_id = Field(text, "VpcId")
    zone = Field(text, "AvailabilityZone")
    is_giving_public_addresses = Field(boolean, "MapPublicIpOnLaunch")


@record
class RouteTable(Reported):
    """One route table."""

    id = Field(text, "RouteTableId")
    vpc_id = Field(text, "VpcId")
    is_main = Field(boolean, "main")
    subnet_ids = Field(texts, "SubnetIds")
    default_ways = Field(texts, "default")  # the targets of its default routes: `internet gateway`, `NAT gateway`, …

    @property
    def leads_to_internet(self) -> bool:
        """Whether its subnets are reachable from the internet."""
        return "internet gateway" in self.default_ways


@record
class Endpoint(Reported):
    """One VPC endpoint; `service` is `s3`, `ecr.api`, …"""

    service = Field(text)
    vpc_id = Field(text, "VpcId")
    kind = Field(text, "VpcEndpointType")
    state = Field(text, "State")

    @property
    def route_table_ids(self) -> tuple[str, ...]:
        """The route tables of a gateway endpoint."""
        return read(self.data.get("RouteTableIds", []), texts, "RouteTableIds")


@record
class SecurityGroup(Reported):
    """One security group with its rules."""

    id = Field(text, "GroupId")

    @property
    def missing_directions(self) -> tuple[str, ...]:
        """The directions in which it does not allow all traffic between its own members."""
        return tuple(
            direction
            for direction in ("inbound", "outbound")
            if not any(map(self._is_of_itself, self._rules(direction)))
        )

    @property
    def is_open_outward(self) -> bool:
        """Whether all outbound traffic is allowed to any address, which is not sufficient for EFA."""
        return any(rule.get("everywhere") is True and rule.get("protocol") == "-1" for rule in self._rules("outbound"))

    def _is_of_itself(self, rule: Mapping[str, Any]) -> bool:
        return rule.get("protocol") == "-1" and self.id in read(rule.get("groups"), texts, "groups")

    def _rules(self, direction: str) -> list[dict[str, Any]]:
        return read(self.data.get(direction), objects, f"{self.id}: {direction}")


@record
class Quota(Reported):
    """A service quota, by its service and the catalogue's name of it."""

    service = Field(text)
    name = Field(text)
    value = Field(number)


@record
class Identity(Reported):
    """Which instance it is; values missing in the document are empty."""

    instance_id = Field(text)
    instance_type = Field(text)
    availability_zone = Field(text)
    region = Field(text)
    image_id = Field(text)


@record
class ScheduledEvent(Reported):
    """A scheduled event of the instance, planned or past."""

    code = Field(text)
    state = Field(text)
    not_before = Field(text)

    @property
    def is_ahead(self) -> bool:
        """Whether it is still in the future. Raises Incomplete."""
        return self.state not in _OVER


@record
class Metadata(Reported):
    """The service's answers; `token` and `without_token` are the HTTP status of requests with and without a token."""

    token = Field(integer)
    without_token = Field(integer)
    events = Field(objects_as(ScheduledEvent), where="imds: events")  # scheduled by AWS
    identity = Field(object_as(Identity), where="imds: identity")
