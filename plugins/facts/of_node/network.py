"""A node's RDMA devices and interfaces, and what network software finds on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clusterproof.plugins.facts.environment import Variable
from clusterproof.plugins.facts.fact import Told, list_told_as, told_as, told_by
from clusterproof.plugins.facts.field import number, optional, read, table, text, texts, whole
from clusterproof.plugins.facts.host import (
    Command,
)
from clusterproof.plugins.facts.network import EfaCounters, Interface, RdmaDevice

if TYPE_CHECKING:
    from clusterproof.plugins.facts.node import Node


rdma_devices = list_told_as("rdma", "devices", RdmaDevice)


@told_by()
def efa_devices(node: Node) -> tuple[RdmaDevice, ...]:
    """The EFA devices."""
    return tuple(device for device in node.rdma_devices if device.is_efa)


@told_by()
def ib_devices(node: Node) -> tuple[RdmaDevice, ...]:
    """The RDMA devices that are not EFA."""
    return tuple(device for device in node.rdma_devices if not device.is_efa)


@told_by("rdma")
def modules(node: Node, rdma: Told) -> tuple[str, ...]:
    """Which of the kernel modules that matter here are loaded."""
    return rdma.get("modules", texts)


@told_by("rdma")
def uverbs(node: Node, rdma: Told) -> tuple[str, ...]:
    """The device files under /dev/infiniband."""
    return rdma.get("uverbs", texts)


@told_by("rdma")
def nvidia_taint(node: Node, rdma: Told) -> str:
    """How the NVIDIA module taints the kernel: with a P if it is not the open one; empty if none is loaded."""
    return rdma.get("nvidia_taint", text)


efa_counters = list_told_as("efa_counters", "devices", EfaCounters)


@told_by("efa_counters")
def efa_counted_s(node: Node, counters: Told) -> float:
    """The seconds between the two looks at EFA's counters."""
    return counters.get("seconds", number)


interfaces = list_told_as("interfaces", "physical", Interface)


@told_by("interfaces")
def interface_names(node: Node, interfaces: Told) -> tuple[str, ...]:
    """The names of all network interfaces."""
    return interfaces.get("names", texts)


environment = list_told_as("environment", "variables", Variable)


@told_by("environment")
def environment_unread(node: Node, environment: Told) -> tuple[str, ...]:
    """The files that set variables for jobs and could not be read."""
    return tuple(environment.get("unread", table))


fi_info = told_as("libfabric", Command)


@told_by("limits")
def memlock_bytes(node: Node, limits: Told) -> Mapping[str, int | None]:
    """The locked-memory limit of a login and of each daemon that starts jobs; None is unlimited."""
    owners = {"a login": limits.get("login", table), **limits.get("daemons", table)}
    limit_of = {name: Told(read(told, table, name), name) for name, told in owners.items()}
    return {name: told.get("memlock", optional(whole)) for name, told in limit_of.items()}
