"""A node of the cluster: what it was expected to be, and everything it told, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.catalog import InstanceType, instance_type
from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts import kernel_log
from clusterproof.plugins.facts.fact import Absent, Told, list_told_as, told_as, told_by
from clusterproof.plugins.facts.field import flag, lines, optional, read, table, texts, whole
from clusterproof.plugins.facts.gpu import Gpu, Nvml
from clusterproof.plugins.facts.group import Group
from clusterproof.plugins.facts.host import BlockedProcess, Boot, Command, FstabEntry, Mount, Platform, Service
from clusterproof.plugins.facts.hyperpod import ResourceConfig
from clusterproof.plugins.facts.network import PciDevice, RdmaDevice
from clusterproof.plugins.inventory.model import Target
from clusterproof.plugins.policy.model import NO_POLICY, Policy
from clusterproof.plugins.printable import printable
from clusterproof.plugins.verdict import Incomplete, NotApplicable

MAX_NAME = 80  # characters of a name that goes into every result
MAX_GPUS = 128  # whose UUIDs go there; no node has more than 16

EC2 = "Amazon EC2"  # the vendor that the firmware of an instance names
UNKNOWN_TYPE = "instance type unknown"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. A fact raises Incomplete where the node could not tell it, NotApplicable where it has no meaning."""

    target: Target
    evidence: NodeEvidence
    occasion: str = "preflight"
    policy: Policy = NO_POLICY
    group: Group = field(default_factory=Group, repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name that the inventory gives it."""
        return self.target.name

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        """The answers of all leaves. Raises Incomplete where the node was not reached."""
        if self.evidence.unreached:
            reason = self.evidence.unreached.value.replace("_", " ")
            raise Incomplete(f"unreachable: {reason}", cause=f"unreachable: {reason}")
        return self.evidence.leaves

    def leaf(self, name: str) -> Leaf:
        """One leaf's answer. Raises Incomplete where the node was not reached."""
        return self.leaves.get(name) or Leaf(Status.BROKE, detail="this evidence was not gathered")

    # What it is expected to be

    @told_by()
    def instance_type(self) -> str:
        """Its EC2 instance type, from the inventory or else from DMI. Raises Incomplete where nothing tells."""
        if self.target.instance_type:
            return self.target.instance_type.removeprefix("ml.")
        if self.platform.vendor == EC2:
            return self.platform.product
        raise Incomplete("nothing tells the instance type; give --instance-type or --expect", cause=UNKNOWN_TYPE)

    platform = told_as("platform", Platform)

    @told_by()
    def type(self) -> InstanceType:
        """Its row of the catalogue of instance types. Raises Incomplete where it is in none."""
        row = instance_type(self.instance_type)
        if row is None:
            words = f"instance type {self.instance_type!r} is not in the catalogue; give --expect gpus=N,efa=N"
            raise Incomplete(words, cause=UNKNOWN_TYPE)
        return row

    def expected(self, what: str) -> int:
        """How many `gpus`, `efa` or `nvlinks` (per GPU) it should have. Raises Incomplete where nothing tells."""
        if what in self.target.expect:
            return self.target.expect[what]
        if what == "efa" and self.is_outside_ec2:
            return 0
        return int(self.of_type({"nvlinks": "nvlinks_per_gpu"}.get(what, what)))

    @property
    def is_outside_ec2(self) -> bool:
        """Whether the firmware names another vendor, and nobody gave it an EC2 type: only EC2 has EFA."""
        return not self.target.instance_type and self.platform.vendor not in ("", EC2)

    def of_type(self, what: str) -> Any:
        """A value of its instance type. Raises Incomplete where the catalogue does not know it."""
        value = getattr(self.type, what)
        if value is None:
            raise Incomplete(f"the catalogue has no {what} for {self.instance_type}", cause="not in the catalogue")
        return value

    # The running system

    boot = told_as("boot", Boot)

    # GPUs

    nvml = told_as("nvml", Nvml)

    @property
    def driver_hangs(self) -> str:
        """What NVML was doing when it did not answer by its deadline, else empty. Raises Incomplete."""
        leaf = self.leaf("nvml")
        return f"NVML {leaf.detail or 'did not answer'}" if leaf.status in (Status.TIMED_OUT, Status.STUCK) else ""

    @told_by()
    def driver_error(self) -> str:
        """NVML's word where the driver does not start, else empty."""
        try:
            return self.nvml.error
        except Absent:
            return "no NVML library"

    @told_by()
    def gpu_count(self) -> int:
        """How many GPUs NVML counts; 0 where the driver does not start."""
        return 0 if self.driver_error else self.nvml.count

    @told_by()
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that NVML counts, at least one. Raises Incomplete where there should be some, else NotApplicable."""
        if not self.driver_error and self.nvml.gpus:
            return self.nvml.gpus
        why = self.driver_error or "the driver counts none"
        if not self.gpus_on_bus and not self._gpus_are_expected():
            raise NotApplicable(f"no NVIDIA GPU on the PCI bus ({why})")
        raise Incomplete(f"no GPU answers: {why}", cause=f"no GPU answers: {why}")

    def _gpus_are_expected(self) -> bool:
        try:
            return self.expected("gpus") > 0
        except Incomplete:
            return False

    pci_devices = list_told_as("pci", "devices", PciDevice)

    @told_by()
    def gpus_on_bus(self) -> tuple[PciDevice, ...]:
        """The NVIDIA GPUs that the PCI bus shows, whatever the driver says."""
        return tuple(device for device in self.pci_devices if device.is_nvidia_gpu)

    # Network

    rdma_devices = list_told_as("rdma", "devices", RdmaDevice)

    @told_by()
    def efa_devices(self) -> tuple[RdmaDevice, ...]:
        """The EFA devices."""
        return tuple(device for device in self.rdma_devices if device.is_efa)

    @told_by()
    def ib_devices(self) -> tuple[RdmaDevice, ...]:
        """The RDMA devices that are not EFA."""
        return tuple(device for device in self.rdma_devices if not device.is_efa)

    @told_by("rdma")
    def modules(self, rdma: Told) -> tuple[str, ...]:
        """Which of the kernel modules that matter here are loaded."""
        return rdma.get("modules", texts)

    @told_by("rdma")
    def uverbs(self, rdma: Told) -> tuple[str, ...]:
        """The device files under /dev/infiniband."""
        return rdma.get("uverbs", texts)

    fi_info = told_as("libfabric", Command)

    resource_config = told_as("resource_config", ResourceConfig)

    @told_by("limits")
    def memlock_bytes(self, limits: Told) -> Mapping[str, int | None]:
        """The locked-memory limit of a login and of each daemon that starts jobs; None is unlimited."""
        owners = {"a login": limits.get("login", table), **limits.get("daemons", table)}
        limit_of = {name: Told(read(told, table, name), name) for name, told in owners.items()}
        return {name: told.get("memlock", optional(whole)) for name, told in limit_of.items()}

    # Host

    @told_by("kernel_log")
    def kernel_events(self, log: Told) -> kernel_log.Events:
        """What this boot's kernel log says of GPUs, NVSwitches and hung tasks."""
        return kernel_log.parse(log.get("lines", lines))

    @told_by("kernel_log")
    def kernel_log_is_cut(self, log: Told) -> bool:
        """Whether the log had already lost its beginning."""
        return log.get("truncated", flag)

    @told_by("processes")
    def zombies(self, processes: Told) -> int:
        """How many processes are dead and not waited for."""
        return processes.get("zombies", whole)

    blocked_processes = list_told_as("processes", "blocked", BlockedProcess)

    @told_by("services")
    def services(self, systemd: Told) -> Mapping[str, Service]:
        """The systemd units that matter here, by name."""
        return {name: Service(read(told, table, name)) for name, told in systemd.get("services", table).items()}

    @told_by("services")
    def failed_units(self, systemd: Told) -> tuple[str, ...]:
        """The systemd units that failed."""
        return systemd.get("failed", texts)

    fabric_manager_version = told_as("fabric_manager", Command)

    # Storage

    mounts = list_told_as("mounts", "mounts", Mount)

    fstab = list_told_as("mounts", "fstab", FstabEntry)

    @told_by()
    def mount_points(self) -> frozenset[str]:
        """Where the file systems that matter here are mounted."""
        return frozenset(mount.path for mount in self.mounts)

    @told_by()
    def mount_points_of_most(self) -> frozenset[str]:
        """The mount points that most nodes of its group have."""
        return self.group.most("mount points", lambda node: node.mount_points)

    def mount_at(self, path: str) -> Mount | None:
        """The file system mounted at exactly this path; the last one where several are stacked."""
        return next((mount for mount in reversed(self.mounts) if mount.path == path), None)

    # Who it is, for every report

    @property
    def type_name(self) -> str:
        """Its instance type, or empty where nothing tells."""
        try:
            return printable(self.instance_type, MAX_NAME)
        except (Incomplete, NotApplicable):
            return ""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs that answer; empty where the driver was not asked or told none."""
        if "gpu_uuids" not in self.known:
            self.known["gpu_uuids"] = tuple(self._uuids())
        return self.known["gpu_uuids"]  # type: ignore[no-any-return]

    def _uuids(self) -> list[str]:
        try:
            gpus = self.gpus
        except (Incomplete, NotApplicable):
            return []
        told = [gpu.record.get("uuid") for gpu in gpus]
        return [printable(uuid, MAX_NAME) for uuid in told[:MAX_GPUS] if isinstance(uuid, str)]
