"""A HyperPod cluster as SageMaker tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import Field, objects, optional, read, table, text, whole


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """One instance group of a HyperPod cluster."""

    told: Mapping[str, Any]

    name = Field(text, "InstanceGroupName")
    instance_type = Field(text, "InstanceType")
    current = Field(whole, "CurrentCount")
    target = Field(whole, "TargetCount")
    status = Field(optional(text), "Status")

    @property
    def label(self) -> str:
        """Its name."""
        return self.name


@dataclass(frozen=True, slots=True)
class HyperpodCluster:
    """What DescribeCluster answered."""

    told: Mapping[str, Any]

    @property
    def described(self) -> Mapping[str, Any]:
        """The answer itself. Raises Incomplete."""
        return read(self.told.get("cluster"), table, "hyperpod: cluster")

    @property
    def status(self) -> str:
        """`InService`, …"""
        return read(self.described.get("ClusterStatus"), text, "ClusterStatus")

    @property
    def failure(self) -> str:
        """What went wrong last; it stays after the cluster has recovered."""
        return read(self.described.get("FailureMessage", ""), text, "FailureMessage")

    @property
    def node_recovery(self) -> str:
        """`Automatic` or `None`."""
        return read(self.described.get("NodeRecovery", "None"), text, "NodeRecovery")

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """Its instance groups, restricted ones too."""
        told = [
            *read(self.described.get("InstanceGroups", []), objects, "InstanceGroups"),
            *read(self.described.get("RestrictedInstanceGroups", []), objects, "RestrictedInstanceGroups"),
        ]
        return tuple(InstanceGroup(entry) for entry in told)


@dataclass(frozen=True, slots=True)
class HyperpodNode:
    """One node of ListClusterNodes."""

    told: Mapping[str, Any]

    instance_id = Field(text, "InstanceId")
    group = Field(text, "InstanceGroupName")
    instance_type = Field(text, "InstanceType")

    @property
    def status(self) -> str:
        """`Running`, `Failure`, `Pending`, …"""
        return read(self._status.get("Status"), text, "InstanceStatus")

    @property
    def message(self) -> str:
        """What SageMaker says of its state; sticky from the last failure."""
        return read(self._status.get("Message", ""), text, "InstanceStatus message")

    @property
    def _status(self) -> Mapping[str, Any]:
        return read(self.told.get("InstanceStatus"), table, "InstanceStatus")
