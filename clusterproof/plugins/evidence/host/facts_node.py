"""A node's CPUs, memory, processes and services; leftovers of jobs, and limits of open files and threads."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import (
    MEMORY_CONTROLLERS,
    CollectorData,
    EvidenceSource,
    collected_as,
    collected_by,
    list_collected_as,
)
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    objects_as,
    optional,
    read,
    reading_of,
    table,
    text,
    texts,
    word,
)
from clusterproof.plugins.evidence.host.facts import (
    BlockedProcess,
    Command,
    Kernel,
    ProcessLimits,
    Service,
)
from clusterproof.plugins.evidence.host.facts_hardware import MainMemory, MemoryController, Processors

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


@record
class JobProcess(Reported):
    """A process whose job has ended here: certain by its cgroup, else by its own environment."""

    pid = Field(integer)
    name = Field(word)
    uid = Field(integer)
    job = Field(text)
    is_sure = Field(optional(boolean))  # of older recordings it is not known


@record
class OwnedShm(Reported):
    """Files in /dev/shm of one user who has no process on the node."""

    uid = Field(integer)
    count = Field(integer)
    kib = Field(integer)
    oldest_s = Field(number)


@record
class Jobs(Reported):
    """Slurm's jobs on the node; `unread` counts processes that the probe's user may not inspect."""

    running = Field(texts)
    left = Field(objects_as(JobProcess))
    left_out = Field(integer)
    unread = Field(integer, where="the job of each process")
    shm = Field(objects_as(OwnedShm))


LOGIN = "a login"  # whose limits jobs inherit, beside those of daemons
UNIT = ("load", "active", "sub", "enabled")  # what systemd says of each
PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
# By their bits in /proc/sys/kernel/tainted (Linux, Documentation/admin-guide/tainted-kernels.rst).
TAINTS = {4: "a machine check (M)", 5: "a bad page (B)", 7: "an Oops (D)", 14: "a soft lockup (L)"}


@record
class PidsGroup(Reported):
    """A cgroup with a limit of processes and threads (pids.max)."""

    path = Field(text)
    pids = Field(integer)
    most = Field(integer, "max")


@record
class KernelLimits(Reported):
    """Limits of the whole node, and of the cgroups of its daemons and of pods."""

    open_files = Field(integer)
    max_files = Field(integer)
    threads = Field(integer)
    pid_max = Field(integer)
    threads_max = Field(integer)
    groups = Field(objects_as(PidsGroup))
    settings = Field(table)  # what the files hold that are named so; empty where there is no such file
    modes = Field(table)  # the permissions of folders that all users share

    def setting(self, path: str) -> str:
        """What such a file holds. Raises Incomplete."""
        return read(self.settings.get(path), text, path)

    def number(self, path: str) -> int | None:
        """The number that it holds; None where the kernel has no such setting. Raises Incomplete."""
        setting = self.setting(path)
        return read(int(setting) if setting.isdecimal() else setting, integer, path) if setting else None

    def mode(self, folder: str) -> int:
        """The permissions of a folder. Raises Incomplete."""
        return read(self.modes.get(folder), integer, folder)

    @property
    def ports(self) -> int | None:
        """How many ports there are for connections that programs begin; None where unknown. Raises Incomplete."""
        first, _, last = " ".join(self.setting(PORTS).split()).partition(" ")
        return int(last) - int(first) + 1 if first.isdecimal() and last.isdecimal() else None

    @property
    def taints(self) -> tuple[str, ...]:
        """What has happened to the kernel since boot that it does not recover from. Raises Incomplete."""
        bits = self.number("/proc/sys/kernel/tainted") or 0
        return tuple(taint for bit, taint in TAINTS.items() if bits >> bit & 1)


memory_controllers = list_collected_as("edac", "controllers", MemoryController, MEMORY_CONTROLLERS)


@collected_by("processes")
def zombies(node: EvidenceSource, processes: CollectorData) -> int:
    """How many processes are dead and not waited for."""
    return processes.get("zombies", integer)


blocked_processes = list_collected_as("processes", "blocked", BlockedProcess)


@collected_by("processes")
def blocked_alike(node: EvidenceSource, processes: CollectorData) -> int:
    """How many more are blocked than are listed, of a user and in a function that is."""
    return processes.get("blocked_alike", optional(integer)) or 0


@collected_by("processes")
def blocked_left_out(node: EvidenceSource, processes: CollectorData) -> int:
    """How many more are blocked, of users and in functions of which none is listed."""
    return processes.get("blocked_left_out", optional(integer)) or 0


processors = collected_as("cpus", Processors)
main_memory = collected_as("memory", MainMemory)


@collected_by()
def clock_apart_s(node: EvidenceSource) -> float:
    """The minimum offset between its clock and the requester's: ahead, or behind if negative; 0: possibly correct.

    The probe began at some time between request and answer, minus its own duration.
    """
    answer = node.evidence
    if not (answer.asked and answer.answered):
        return 0.0  # a capture, or an older recording
    began, took_s = (read(answer.probe.get(key), number, f"probe: {key}") for key in ("began", "seconds"))
    ahead_s, behind_s = began - (answer.answered - took_s), answer.asked - began
    return max(ahead_s, 0.0) - max(behind_s, 0.0)


kernel_state = collected_as("kernel", Kernel)
jobs = collected_as("jobs", Jobs)
kernel_limits = collected_as("kernel_limits", KernelLimits)


@collected_by("limits")
def process_limits(node: EvidenceSource, limits: CollectorData) -> Mapping[str, ProcessLimits]:
    """The limits that jobs inherit: of a login and of each daemon that starts jobs."""
    return {name: ProcessLimits(entry if isinstance(entry, dict) else {}) for name, entry in inherited(limits).items()}


def inherited(limits: CollectorData) -> Mapping[str, Any]:
    """The limits that jobs inherit, by whose they are. Raises Incomplete where nothing starts jobs."""
    login, daemons = limits.value.get("login"), limits.value.get("daemons")
    if not isinstance(daemons, dict) or "error" in daemons:
        daemons = {"daemons": daemons}
    if login is None and not daemons:
        nobody = "nothing that starts jobs runs on the node"
        raise Incomplete(f"{nobody}; expected slurmd, containerd or sshd", cause=nobody)
    return daemons if login is None else {LOGIN: login, **daemons}


def job_limits(node: Node) -> Mapping[str, ProcessLimits]:
    """The limits that a job has: its own where this is one, else those that it inherits. Raises Incomplete."""
    limits = node.process_limits
    is_job = node.occasion == "job" and LOGIN in limits
    return {"this job": limits[LOGIN]} if is_job else limits


@collected_by("services")
def services(node: EvidenceSource, systemd: CollectorData) -> Mapping[str, Service]:
    """The systemd units that matter here, by name; of one that was not reported nothing can be read."""
    units = systemd.get("services", table)
    return {name: Service(_reported_of(unit if isinstance(unit, dict) else {})) for name, unit in units.items()}


def _reported_of(unit: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict.fromkeys(UNIT, unit) if "error" in unit else unit


@collected_by("services")
def failed_units(node: EvidenceSource, systemd: CollectorData) -> tuple[str, ...]:
    """The systemd units that failed."""
    return systemd.get("failed", texts)


@collected_by("services")
def units_left_out(node: EvidenceSource, systemd: CollectorData) -> int:
    """How many more units failed, or are to be started once more, than are listed."""
    return systemd.get("left_out", optional(integer)) or 0


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
    if service is None or reading_of(service, "is_installed") is False:
        return "not installed"
    return service.active
