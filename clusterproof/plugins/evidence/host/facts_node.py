"""A node's processors, memory, processes and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import (
    CollectorData,
    EvidenceSource,
    collected_as,
    collected_by,
    list_collected_as,
)
from clusterproof.plugins.evidence.field import number, optional, read, readings, table, text, texts, whole
from clusterproof.plugins.evidence.host.facts import (
    BlockedProcess,
    Command,
    Kernel,
    ProcessLimits,
    Service,
)
from clusterproof.plugins.evidence.host.facts_hardware import MainMemory, MemoryController, Processors
from clusterproof.plugins.evidence.host.facts_processes import Jobs, KernelLimits

memory_controllers = list_collected_as("edac", "controllers", MemoryController)


@collected_by("processes")
def zombies(node: EvidenceSource, processes: CollectorData) -> int:
    """How many processes are dead and not waited for."""
    return processes.get("zombies", whole)


blocked_processes = list_collected_as("processes", "blocked", BlockedProcess)


@collected_by("processes")
def blocked_alike(node: EvidenceSource, processes: CollectorData) -> int:
    """How many more are blocked than are listed, of a user and in a function that is."""
    return processes.get("blocked_alike", optional(whole)) or 0


@collected_by("processes")
def blocked_left_out(node: EvidenceSource, processes: CollectorData) -> int:
    """How many more are blocked, of users and in functions of which none is listed."""
    return processes.get("blocked_left_out", optional(whole)) or 0


processors = collected_as("cpus", Processors)
main_memory = collected_as("memory", MainMemory)


@collected_by()
def clock_apart_s(node: EvidenceSource) -> float:
    """How far its clock is at least from that of whoever asked it: ahead, or behind if negative; 0: it may be right.

    The probe began at some time between the question and the answer, less what the probe took.
    """
    data = node.evidence
    if not (data.asked and data.answered):
        return 0.0  # a capture, or an older recording
    began, took_s = (read(data.probe.get(key), number, f"probe: {key}") for key in ("began", "seconds"))
    ahead_s, behind_s = began - (data.answered - took_s), data.asked - began
    return max(ahead_s, 0.0) - max(behind_s, 0.0)


kernel_state = collected_as("kernel", Kernel)
jobs = collected_as("jobs", Jobs)
kernel_limits = collected_as("kernel_limits", KernelLimits)


@collected_by("limits")
def process_limits(node: EvidenceSource, limits: CollectorData) -> Mapping[str, ProcessLimits]:
    """The limits that jobs inherit: of a login and of each daemon that starts jobs."""
    return {name: ProcessLimits(data if isinstance(data, dict) else {}) for name, data in inherited(limits).items()}


def inherited(limits: CollectorData) -> Mapping[str, Any]:
    """The limits that jobs inherit, by whose they are. Raises Incomplete where nothing starts jobs."""
    login, daemons = limits.get("login", optional(table)), limits.get("daemons", table)
    if login is None and not daemons:
        nobody = "nothing that starts jobs runs on the node"
        raise Incomplete(f"{nobody}; expected slurmd, containerd or sshd", cause=nobody)
    return daemons if login is None else {"a login": login, **daemons}


@collected_by("services")
def services(node: EvidenceSource, systemd: CollectorData) -> Mapping[str, Service]:
    """The systemd units that matter here, by name."""
    return {name: Service(read(data, table, name)) for name, data in systemd.get("services", table).items()}


@collected_by("services")
def failed_units(node: EvidenceSource, systemd: CollectorData) -> tuple[str, ...]:
    """The systemd units that failed."""
    return systemd.get("failed", texts)


@collected_by("services")
def units_left_out(node: EvidenceSource, systemd: CollectorData) -> int:
    """How many more units failed, or are to be started once more, than are listed."""
    return systemd.get("left_out", optional(whole)) or 0


@collected_by("services")
def restarting_units(node: EvidenceSource, systemd: CollectorData) -> tuple[str, ...]:
    """The systemd units that ended and are to be started once more; none where nobody asked."""
    return systemd.get("restarting", optional(texts)) or ()


@collected_by("services")
def slurm_without_munge(node: EvidenceSource, systemd: CollectorData) -> str:
    """The slurm.conf by which the slurmd that runs needs munge, where no munged runs; else empty."""
    return systemd.get("without_munge", optional(text)) or ""


fabric_manager_version = collected_as("fabric_manager", Command)


def service_state(node: EvidenceSource, name: str) -> str:
    """How a service stands, in systemd's word; one that is active is installed, whatever else is known of it."""
    service = services.of(node).get(name)
    if service is None or readings(service, "is_installed")[0].get("is_installed") is False:
        return "not installed"
    return service.active
