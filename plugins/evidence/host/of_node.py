"""A node's processors, memory, processes and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import CollectorData, collected_as, collected_by, list_collected_as
from clusterproof.plugins.evidence.field import optional, read, table, texts, whole
from clusterproof.plugins.evidence.host.facts import (
    BlockedProcess,
    Command,
    ProcessLimits,
    Service,
)
from clusterproof.plugins.evidence.kernel.facts import Kernel
from clusterproof.plugins.evidence.memory.facts import MainMemory
from clusterproof.plugins.evidence.memory.facts_edac import MemoryController
from clusterproof.plugins.evidence.processes.facts_jobs import Jobs
from clusterproof.plugins.evidence.processes.facts_kernel_limits import KernelLimits
from clusterproof.plugins.evidence.processors.facts import Processors

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


memory_controllers = list_collected_as("edac", "controllers", MemoryController)


@collected_by("processes")
def zombies(node: Node, processes: CollectorData) -> int:
    """How many processes are dead and not waited for."""
    return processes.get("zombies", whole)


blocked_processes = list_collected_as("processes", "blocked", BlockedProcess)
processors = collected_as("cpus", Processors)
main_memory = collected_as("memory", MainMemory)
kernel_state = collected_as("kernel", Kernel)
jobs = collected_as("jobs", Jobs)
kernel_limits = collected_as("kernel_limits", KernelLimits)


@collected_by("limits")
def process_limits(node: Node, limits: CollectorData) -> Mapping[str, ProcessLimits]:
    """The limits that jobs inherit: of a login and of each daemon that starts jobs."""
    return {name: ProcessLimits(data) for name, data in inherited(limits).items()}


def inherited(limits: CollectorData) -> Mapping[str, Any]:
    """The limits that jobs inherit, by whose they are. Raises Incomplete where nothing starts jobs."""
    login, daemons = limits.get("login", optional(table)), limits.get("daemons", table)
    if login is None and not daemons:
        nobody = "nothing that starts jobs runs on the node"
        raise Incomplete(f"{nobody}; expected slurmd, containerd or sshd", cause=nobody)
    return daemons if login is None else {"a login": login, **daemons}


@collected_by("services")
def services(node: Node, systemd: CollectorData) -> Mapping[str, Service]:
    """The systemd units that matter here, by name."""
    return {name: Service(read(data, table, name)) for name, data in systemd.get("services", table).items()}


@collected_by("services")
def failed_units(node: Node, systemd: CollectorData) -> tuple[str, ...]:
    """The systemd units that failed."""
    return systemd.get("failed", texts)


@collected_by("services")
def restarting_units(node: Node, systemd: CollectorData) -> tuple[str, ...]:
    """The systemd units that ended and are to be started once more; none where nobody asked."""
    return systemd.get("restarting", optional(texts)) or ()


fabric_manager_version = collected_as("fabric_manager", Command)
