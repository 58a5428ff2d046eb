"""A node of the cluster: what it was expected to be, and everything it told, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.catalog import InstanceType, instance_type
from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts import kernel_log
from clusterproof.plugins.facts.fact import Absent, told_by
from clusterproof.plugins.facts.field import (
    flag,
    lines,
    number,
    objects,
    optional,
    read,
    table,
    text,
    texts,
    whole,
)
from clusterproof.plugins.facts.gpu import Gpu
from clusterproof.plugins.facts.group import Group
from clusterproof.plugins.facts.host import BlockedProcess, Boot, Command, FstabEntry, Mount, Service
from clusterproof.plugins.facts.network import PciDevice, RdmaDevice
from clusterproof.plugins.inventory.model import Target
from clusterproof.plugins.printable import printable
from clusterproof.plugins.verdict import Incomplete, NotApplicable

MAX_NAME = 80  # characters of a name that goes into every result
MAX_GPUS = 128  # whose UUIDs go there; no node has more than 16


@dataclass(frozen=True, slots=True)
class Node:
    """One node. A fact raises Incomplete where the node could not tell it, NotApplicable where it has no meaning."""

    target: Target
    evidence: NodeEvidence
    occasion: str = "preflight"
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
        if self._platform.get("vendor") == "Amazon EC2":
            return read(self._platform.get("product"), text, "DMI product")
        raise Incomplete(
            "nothing tells the instance type; give --instance-type or --expect", cause="instance type unknown"
        )

    @told_by("platform")
    def _platform(self, platform: object) -> Mapping[str, Any]:
        return read(platform, table, "platform")

    @told_by()
    def type(self) -> InstanceType:
        """Its row of the catalogue of instance types. Raises Incomplete where it is in none."""
        row = instance_type(self.instance_type)
        if row is None:
            raise Incomplete(
                f"instance type {self.instance_type!r} is not in the catalogue; give --expect gpus=N,efa=N",
                cause="instance type unknown",
            )
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
        """Whether the firmware says that this is not an EC2 instance, and nobody gave it an EC2 type: only EC2 has EFA."""
        return not self.target.instance_type and self._platform.get("vendor") not in ("", None, "Amazon EC2")

    def of_type(self, what: str) -> Any:
        """A value of its instance type. Raises Incomplete where the catalogue does not know it."""
        value = getattr(self.type, what)
        if value is None:
            raise Incomplete(
                f"the catalogue has no {what} for {self.instance_type}", cause="not in the catalogue"
            )
        return value

    # The running system

    @told_by("boot")
    def boot(self, boot: object) -> Boot:
        """The running system."""
        return Boot(read(boot, table, "boot"))

    # GPUs

    @told_by("nvml")
    def _nvml(self, nvml: object) -> Mapping[str, Any]:
        return read(nvml, table, "nvml")

    @property
    def driver_hangs(self) -> str:
        """What NVML was doing when it did not answer by its deadline, else empty. Raises Incomplete."""
        leaf = self.leaf("nvml")
        return f"NVML {leaf.detail or 'did not answer'}" if leaf.status in (Status.TIMED_OUT, Status.STUCK) else ""

    @told_by("pci")
    def pci_devices(self, pci: object) -> tuple[PciDevice, ...]:
        """NVIDIA, EFA and Mellanox devices on the PCI bus."""
        devices = read(read(pci, table, "pci").get("devices"), objects, "PCI devices")
        return tuple(PciDevice(entry) for entry in devices)

    @told_by()
    def gpus_on_bus(self) -> tuple[PciDevice, ...]:
        """The NVIDIA GPUs that the PCI bus shows, whatever the driver says."""
        return tuple(device for device in self.pci_devices if device.is_nvidia_gpu)

    @told_by()
    def driver_error(self) -> str:
        """NVML's word where the driver does not start, else empty."""
        try:
            init = self._nvml.get("init")
        except Absent:
            return "no NVML library"
        return "" if init is None else str(init.get("error", init) if isinstance(init, dict) else init)[:40]

    @told_by()
    def nvml_init_s(self) -> float:
        """Seconds that NVML took to start."""
        return read(self._nvml.get("init_s"), number, "NVML's start")

    @told_by()
    def driver(self) -> str:
        """The NVIDIA driver's version."""
        return read(self._nvml.get("driver"), text, "driver version")

    @told_by()
    def gpu_count(self) -> int:
        """How many GPUs NVML counts; 0 where the driver does not start."""
        return 0 if self.driver_error else read(self._nvml.get("count"), whole, "NVML's count")

    @told_by()
    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU that NVML counts. Raises Incomplete where there should be some and the driver answers for none."""
        if not self.driver_error:
            gpus = read(self._nvml.get("gpus"), objects, "GPUs")
            return tuple(Gpu(read(entry.get("index"), whole, "GPU index"), entry) for entry in gpus)
        if not self.gpus_on_bus and not self._gpus_are_expected():
            raise NotApplicable("no NVIDIA GPU on the PCI bus and no NVIDIA driver")
        raise Incomplete(f"no GPU answers: {self.driver_error}", cause=f"no GPU answers: {self.driver_error}")

    def _gpus_are_expected(self) -> bool:
        try:
            return self.expected("gpus") > 0
        except Incomplete:
            return False

    # Network

    @told_by("rdma")
    def _rdma(self, rdma: object) -> Mapping[str, Any]:
        return read(rdma, table, "rdma")

    @told_by()
    def rdma_devices(self) -> tuple[RdmaDevice, ...]:
        """Every RDMA device, EFA or not."""
        return tuple(RdmaDevice(entry) for entry in read(self._rdma.get("devices"), objects, "RDMA devices"))

    @told_by()
    def efa_devices(self) -> tuple[RdmaDevice, ...]:
        """The EFA devices."""
        return tuple(device for device in self.rdma_devices if device.is_efa)

    @told_by()
    def ib_devices(self) -> tuple[RdmaDevice, ...]:
        """The RDMA devices that are not EFA."""
        return tuple(device for device in self.rdma_devices if not device.is_efa)

    @told_by()
    def modules(self) -> tuple[str, ...]:
        """Which of the kernel modules that matter here are loaded."""
        return read(self._rdma.get("modules"), texts, "modules")

    @told_by()
    def uverbs(self) -> tuple[str, ...]:
        """The device nodes under /dev/infiniband."""
        return read(self._rdma.get("uverbs"), texts, "uverbs")

    @told_by("libfabric")
    def fi_info(self, libfabric: object) -> Command:
        """What `fi_info -p efa -t FI_EP_RDM` printed. Raises Absent where it is not installed."""
        return Command(read(libfabric, table, "fi_info"))

    @told_by("limits")
    def memlock_bytes(self, limits: object) -> Mapping[str, int | None]:
        """The locked-memory limit of a login and of each daemon that starts jobs; None is unlimited."""
        told = read(limits, table, "limits")
        owners = {"a login": told.get("login"), **read(told.get("daemons"), table, "daemons' limits")}
        return {
            name: read(read(limit, table, name).get("memlock"), optional(whole), name)
            for name, limit in owners.items()
        }

    # Host

    @told_by("kernel_log")
    def _kernel_log(self, log: object) -> Mapping[str, Any]:
        return read(log, table, "kernel log")

    @told_by()
    def kernel_events(self) -> kernel_log.Events:
        """What this boot's kernel log says of GPUs, NVSwitches and hung tasks."""
        return kernel_log.parse(read(self._kernel_log.get("lines"), lines, "kernel log"))

    @told_by()
    def kernel_log_is_cut(self) -> bool:
        """Whether the log had already lost its beginning."""
        return read(self._kernel_log.get("truncated"), flag, "kernel log")

    @told_by("processes")
    def _processes(self, processes: object) -> Mapping[str, Any]:
        return read(processes, table, "processes")

    @told_by()
    def zombies(self) -> int:
        """How many processes are dead and not waited for."""
        return read(self._processes.get("zombies"), whole, "zombies")

    @told_by()
    def blocked_processes(self) -> tuple[BlockedProcess, ...]:
        """Processes in uninterruptible sleep."""
        blocked = read(self._processes.get("blocked"), objects, "blocked processes")
        return tuple(BlockedProcess(entry) for entry in blocked)

    @told_by("services")
    def _systemd(self, services: object) -> Mapping[str, Any]:
        return read(services, table, "services")

    @told_by()
    def services(self) -> Mapping[str, Service]:
        """The systemd units that matter here, by name."""
        told = read(self._systemd.get("services"), table, "services")
        return {name: Service(read(entry, table, name)) for name, entry in told.items()}

    @told_by()
    def failed_units(self) -> tuple[str, ...]:
        """The systemd units that failed."""
        return read(self._systemd.get("failed"), texts, "failed units")

    @told_by("fabric_manager")
    def fabric_manager_version(self, fabric_manager: object) -> Command:
        """What `nv-fabricmanager --version` printed. Raises Absent where it is not installed."""
        return Command(read(fabric_manager, table, "nv-fabricmanager"))

    @told_by("mounts")
    def _mount_table(self, mounts: object) -> Mapping[str, Any]:
        return read(mounts, table, "mounts")

    @told_by()
    def mounts(self) -> tuple[Mount, ...]:
        """The file systems that matter here, each touched by a child process."""
        return tuple(Mount(entry) for entry in read(self._mount_table.get("mounts"), objects, "mounts"))

    @told_by()
    def fstab(self) -> tuple[FstabEntry, ...]:
        """What /etc/fstab asks for."""
        return tuple(FstabEntry(entry) for entry in read(self._mount_table.get("fstab"), objects, "fstab"))

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
