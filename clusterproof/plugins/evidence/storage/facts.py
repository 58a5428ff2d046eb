"""A node's disks, its mounted file systems, and Lustre's servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, part
from clusterproof.plugins.evidence.fact import (
    DISKS,
    CollectorData,
    collected_as,
    collected_by,
    limited,
    limited_list,
    list_collected_as,
)
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    each,
    integer,
    known,
    objects,
    optional,
    readings,
    text,
    texts,
)
from clusterproof.plugins.evidence.group import compared
from clusterproof.plugins.evidence.storage.facts_lustre import CheckpointFolder, Lustre, LustreClient, LustreTarget
from clusterproof.plugins.evidence.storage.facts_mounts import FstabEntry, Mount

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


INSTANCE_STORE = "Instance Storage"  # words in the disk's model
EBS = "Amazon Elastic Block Store"
READ_ONLY = frozenset({"ro", "emergency_ro", "shutdown"})
_NETWORK = Pattern(
    r"lustre|nfs4?|efs|cifs|smb3?|ceph|gpfs|beegfs|weka(fs)?|glusterfs|panfs|pvfs2|dvs|gfs2|ocfs2|9p|virtiofs|fuse(\..*)?|afs"
)
_NOT_OF_JOBS = Pattern(r"/|/dev(/.*)?|/boot(/.*)?|/efi|/run/lock")
_NODES_OWN = Pattern(r"(addr|clientaddr|mountaddr|mountport|port|fd|size|nr_inodes)=.*")  # differ between nodes


@record
class NvmeDisk(Reported):
    """One NVMe namespace: a disk."""

    name = Field(text)
    kib = Field(optional(integer))  # None in captures that do not show it
    used_by = Field(texts)  # its partitions, and what is built on them: md0, dm-0
    mounted = Field(texts)


@record
class NvmeController(Reported):
    """One NVMe controller, with its disks."""

    label = Field(text, "name")
    model = Field(text)
    firmware = Field(optional(text))
    state = Field(text)
    transport = Field(optional(text))  # empty or None where the kernel, or a capture, does not show it
    disks = Field(limited_list(NvmeDisk, DISKS), where="nvme: disks")

    @property
    def is_local(self) -> bool:
        """Whether this is a disk in the machine itself, not an EBS volume."""
        return INSTANCE_STORE in self.model

    @property
    def is_remote(self) -> bool:
        """Whether another machine serves it (NVMe over TCP or RDMA); False if that is unknown."""
        return readings(self, "transport")[0].get("transport") not in (None, "", "pcie")

    @property
    def is_volume(self) -> bool:
        """Whether a storage service has the disk: EBS, or another machine. Raises Incomplete."""
        return self.is_remote or self.model == EBS


@record
class EbsVolume(Reported):
    """For how long, in µs, an EBS volume was asked for more than its own limit or its instance's."""

    name = Field(text)
    serial = Field(text)  # of the volume's id: `vol0546d3c3b0af0bf6d`
    volume_iops_us = Field(integer)
    volume_throughput_us = Field(integer)
    instance_iops_us = Field(integer)
    instance_throughput_us = Field(integer)

    @property
    def label(self) -> str:
        """`nvme0 (vol-0546d3c3b0af0bf6d)`, as far as it is known."""
        reading, _ = readings(self, "name", "serial")
        serial = reading.get("serial", "").removeprefix("vol").removeprefix("-")
        return " ".join((reading.get("name", "a volume"), *([f"(vol-{serial})"] if serial else [])))


def is_network(type_: str) -> bool:
    """Whether a file system of this type is served over the network."""
    return bool(_NETWORK.fullmatch(type_))


def written_to(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """The mounts that jobs can fill and that answer, each file system once; / and /dev/shm have their own checks."""
    alive = [mount for mount in each(reversed(mounts), _if_written_to) if mount]
    by_source = {_served_from(mount): mount for mount in alive}
    return tuple(reversed(by_source.values()))


def _if_written_to(mount: Mount) -> Mount | None:
    """The mount if jobs can fill it, or if its options are unknown; else None."""
    if _NOT_OF_JOBS.fullmatch(mount.path) or known(lambda: mount.alive, "yes") != "yes":
        return None
    try:
        return None if is_read_only(mount) else mount
    except Incomplete:
        return mount


def _served_from(mount: Mount) -> tuple[str, str, int | None]:
    """A key that is the same for all mounts of one file system; one of unknown type or source has its own key."""
    size_kib = readings(mount, "total_kib")[0].get("total_kib")  # BeeGFS has one source for several
    try:
        return (mount.type, mount.source if is_network(mount.type) else mount.path, size_kib)
    except Incomplete:
        return ("", mount.path, size_kib)


def entry_of(mount: Mount, fstab: Sequence[FstabEntry]) -> FstabEntry | None:
    """The line of fstab for this mount."""
    return next((entry for entry in each(fstab, lambda entry: entry.path == mount.path and entry) if entry), None)


def options_of(mounted: Mount | FstabEntry) -> tuple[str, ...]:
    """The options of a mount or of a line of fstab, as a tuple."""
    return tuple(option for option in mounted.options.split(",") if option)


def is_read_only(mount: Mount) -> bool:
    """Whether writing is refused: by a mount option, or because the kernel found an error."""
    return not READ_ONLY.isdisjoint(options_of(mount))


def comparable(mount: Mount) -> Mapping[str, str | None]:
    """What should be the same for a mount on every node of a group; None for a value that could not be read."""
    is_served = known(lambda: is_network(mount.type), False)
    values = compared(mount, ALIKE if is_served else {name: ALIKE[name] for name in ("type", "access")})
    return {f"{mount.path} {name}": value for name, value in values.items()}


ALIKE: Mapping[str, Callable[[Mount], str | None]] = {
    "type": lambda mount: mount.type,
    "access": lambda mount: "read-only" if is_read_only(mount) else "read-write",
    "source": lambda mount: mount.source,
    "options": lambda mount: ",".join(
        sorted(option for option in options_of(mount) if not _NODES_OWN.fullmatch(option))
    ),
}


mounts = list_collected_as("mounts", "mounts", Mount)
fstab = list_collected_as("mounts", "fstab", FstabEntry)


@collected_by("mounts")
def mounts_left_out(node: Node, mounts: CollectorData) -> int:
    """How many more mounts there are than are listed, without those of autofs, of which users make any number."""
    return mounts.get("left_out", optional(integer)) or 0


@collected_by()
def mount_points(node: Node) -> frozenset[str]:
    """The mount points of the listed file systems."""
    return frozenset(mount.path for mount in node.mounts)


@collected_by()
def majority_mount_points(node: Node) -> frozenset[str]:
    """The mount points that most nodes of the group have, without what autofs mounts when somebody uses it."""
    return node.group.most("mount points", lambda node: [mount.path for mount in node.mounts if mount.is_lasting])


def mount_at(node: Node, path: str) -> Mount | None:
    """The file system mounted at exactly this path; the last one if several are stacked."""
    unread: Incomplete | None = None
    for mount in reversed(node.mounts):
        try:
            if mount.path == path:
                return mount
        except Incomplete as why:
            unread = why
    if unread:
        raise unread  # this mount may be the wanted one
    return None


SOME = "a file system"  # names a mount whose path is unknown
lustre = collected_as("lustre", Lustre)


@collected_by()
def lustre_mounts(node: Node) -> tuple[Mount, ...]:
    """The mounted Lustre file systems, at least one. Raises NotApplicable if there is none."""
    mounts = tuple(mount for mount in node.mounts if mount.type == "lustre")
    if not mounts:
        raise NotApplicable("no Lustre file system is mounted")
    return mounts


def lustre_clients(node: Node) -> tuple[LustreClient, ...]:
    """The connections to the servers of the Lustre file systems that are mounted, as far as they are reported.

    Raises Incomplete.
    """
    path = lustre_path(node)
    clients = known(lambda: node.lustre.clients, ())
    with part:
        is_partial = not {"mdc", "osc"} <= {client.kind for client in clients} or node.lustre.left_out
        if is_partial and (path or clients):
            raise Incomplete(f"{path or SOME} is Lustre, and its client does not report all its servers")
    return clients


def lustre_path(node: Node) -> str:
    """Where Lustre is mounted; empty if unknown, so that a check goes on. Raises NotApplicable if it is not mounted."""
    try:
        return node.lustre_mounts[0].path
    except Incomplete:
        with part:
            raise
    except NotApplicable:
        if not node.mounts_left_out:
            raise
        with part:
            raise Incomplete(f"{node.mounts_left_out} mounts were left out; whether one is Lustre is unknown") from None
    return ""


lustre_targets = list_collected_as("lustre_space", "targets", LustreTarget)


@collected_by("lustre_space")
def lustre_targets_left_out(node: Node, space: CollectorData) -> int:
    """How many OSTs and MDTs were left out, as there were too many."""
    return space.get("left_out", integer)


def osts(node: Node) -> tuple[LustreTarget, ...]:
    """The OSTs of the mounted Lustre file systems, as far as they are reported."""
    return _targets(node, "ost")


def mdts(node: Node) -> tuple[LustreTarget, ...]:
    """The MDTs of the mounted Lustre file systems, as far as they are reported."""
    return _targets(node, "mdt")


def _targets(node: Node, kind: str) -> tuple[LustreTarget, ...]:
    path = lustre_path(node)
    targets = tuple(target for target in known(lambda: node.lustre_targets, ()) if target.is_of(kind))
    with part:
        if (path and not targets) or node.lustre_targets_left_out:
            raise Incomplete(f"{path or SOME} is Lustre, and its client does not report every {kind.upper()}")
    return targets


checkpoint_folders = list_collected_as("striping", "folders", CheckpointFolder)
ebs_volumes = list_collected_as("ebs", "volumes", EbsVolume, DISKS)


def has_disk_reports(node: Node) -> bool:
    """Whether a capture has disks' or arrays' own health reports, which no probe reads."""
    nvme = node.evidence.collectors.get("nvme")
    return bool(nvme and isinstance(nvme.value, dict) and {"smart", "arrays"} & nvme.value.keys())


@collected_by("nvme")
def nvme_controllers(node: Node, nvme: CollectorData) -> tuple[NvmeController, ...]:
    """The NVMe controllers that a driver runs. Raises Incomplete where there are such on the bus, and it runs none."""
    controllers = tuple(NvmeController(entry) for entry in limited(nvme.get("controllers", objects), DISKS))
    if not controllers and (dark := _nvme_on_bus(node)):
        cause = "no NVMe controller has a driver"
        raise Incomplete(f"{cause}; on the PCI bus: {', '.join(dark)}", cause=cause)
    return controllers


def _nvme_on_bus(node: Node) -> list[str]:
    try:
        return [device.address for device in node.pci_devices if device.is_nvme]
    except Incomplete:
        return []
