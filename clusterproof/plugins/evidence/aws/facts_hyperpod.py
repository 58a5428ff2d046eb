"""A HyperPod cluster as SageMaker reports it."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import NotApplicable
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    boolean,
    integer,
    number,
    objects,
    optional,
    read,
    table,
    text,
    texts,
    values,
)


@record
class Network(Reported):
    """The subnets and security groups of an instance group, by their ids."""

    subnet_ids = Field(texts, "Subnets")
    security_group_ids = Field(texts, "SecurityGroupIds")


@record
class InstanceGroup(Reported):
    """One instance group of a HyperPod cluster."""

    name = Field(text, "InstanceGroupName")
    current = Field(integer, "CurrentCount")
    target = Field(integer, "TargetCount")
    status = Field(optional(text), "Status")

    @property
    def label(self) -> str:
        """Its name."""
        return self.name

    @property
    def counts(self) -> Mapping[str, int]:
        """The actual or desired number of nodes of each instance type, by EC2's name."""
        by_type = read(self.data.get("CountsByType"), table, "CountsByType")
        return {name.removeprefix("ml."): read(count, integer, name) for name, count in by_type.items()}

    @property
    def deep_health_checks(self) -> tuple[str, ...]:
        """The health checks before a node is handed over: `InstanceStress`, `InstanceConnectivity`."""
        return read(self.data.get("OnStartDeepHealthChecks", []), texts, "OnStartDeepHealthChecks")

    @property
    def volumes_gb(self) -> tuple[int, ...]:
        """The sizes of the additional EBS volumes of each node."""
        sizes = read(self.data.get("VolumeSizesInGB"), values, "VolumeSizesInGB")
        return tuple(read(size, integer, "VolumeSizesInGB") for size in sizes)


@record
class HyperpodCluster(Reported):
    """The answer of DescribeCluster."""

    @property
    def described(self) -> Mapping[str, Any]:
        """The whole answer. Raises Incomplete."""
        return read(self.data.get("cluster"), table, "hyperpod: cluster")

    @property
    def status(self) -> str:
        """`InService`, …"""
        return read(self.described.get("ClusterStatus"), text, "ClusterStatus")

    @property
    def failure(self) -> str:
        """The last failure; it stays after the cluster has recovered."""
        return read(self.described.get("FailureMessage", ""), text, "FailureMessage")

    @property
    def node_recovery(self) -> str:
        """`Automatic` or `None`."""
        return read(self.described.get("NodeRecovery"), text, "NodeRecovery")

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """Its instance groups, including restricted ones; at least one. Raises Incomplete."""
        entries = [
            *read(self.described.get("InstanceGroups", []), objects, "InstanceGroups"),
            *read(self.described.get("RestrictedInstanceGroups", []), objects, "RestrictedInstanceGroups"),
        ]
        return tuple(InstanceGroup(entry) for entry in at_least_one(entries, "instance group"))

    def network_of(self, group: InstanceGroup) -> Network:
        """The group's own network, else the cluster's. Raises NotApplicable if SageMaker provides the network."""
        network = group.data.get("OverrideVpcConfig") or self.described.get("VpcConfig")
        if not network:
            raise NotApplicable(f"{group.name} runs in a network of SageMaker's own: nothing of it can be asked")
        return Network(read(network, table, "VpcConfig"))


@record
class HyperpodNode(Reported):
    """One node of ListClusterNodes; `hostname` is the name in reports, empty if it is not checked."""

    hostname = Field(text)
    instance_id = Field(text, "InstanceId")
    group = Field(text, "InstanceGroupName")
    image = Field(optional(text), "CurrentImageReleaseVersion")
    ultraserver = Field(text, "UltraServerId")
    ultraserver_kind = Field(text, "UltraServerType")

    @property
    def label(self) -> str:
        """Its name in reports, else its id."""
        return self.hostname or self.instance_id

    @property
    def ec2_type(self) -> str:
        """Its instance type by EC2's name."""
        return read(self.data.get("InstanceType"), text, "InstanceType").removeprefix("ml.")

    @property
    def status(self) -> str:
        """`Running`, `Failure`, `Pending`, …"""
        return read(self._status.get("Status"), text, "InstanceStatus")

    @property
    def message(self) -> str:
        """SageMaker's message on its state; stays from the last failure."""
        return read(self._status.get("Message", ""), text, "InstanceStatus message")

    @property
    def _status(self) -> Mapping[str, Any]:
        return read(self.data.get("InstanceStatus"), table, "InstanceStatus")


@record
class DeepHealthCheckError(Reported):
    """A line that a deep health check logged, with the instances that it names."""

    time = Field(number)  # seconds since 1970
    text = Field(text)
    instance_ids = Field(texts, "InstanceIds")


@record
class NodeZone(Reported):
    """The availability zone of a HyperPod node, None if unknown."""

    hostname = Field(text)
    zone = Field(optional(text))


@record
class ResourceConfig(Reported):
    """HyperPod's resource_config.json on a node, as far as it is about that node."""

    is_there = Field(boolean, "file")

    @property
    def layers(self) -> tuple[str, ...]:
        """The network nodes above it, the topmost first. Raises NotApplicable if HyperPod does not report them."""
        if not self.is_there:
            raise NotApplicable("HyperPod wrote no resource_config.json here, and reports network layers nowhere else")
        layers = read(self.data.get("layers"), texts, "layers")
        if not layers:
            raise NotApplicable("HyperPod's resource_config.json has no network layers of this node")
        return layers
