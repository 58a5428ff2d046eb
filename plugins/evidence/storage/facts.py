"""Disks of the node, and how its file systems are mounted."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, text, texts, whole
from clusterproof.plugins.evidence.host.facts import FstabEntry, Mount
from clusterproof.plugins.evidence.pattern import Pattern

INSTANCE_STORE = "Instance Storage"  # in the model's words; a disk of EBS is called Amazon Elastic Block Store
READ_ONLY = frozenset({"ro", "emergency_ro"})
_NETWORK = Pattern(r"lustre|nfs4?|efs|cifs|smb3?|ceph|gpfs|beegfs|weka(fs)?|glusterfs|9p|virtiofs|fuse(\..*)?|afs")
_NOT_OF_JOBS = Pattern(r"/|/dev(/.*)?|/boot(/.*)?|/efi")
_NODES_OWN = Pattern(r"(addr|clientaddr|mountaddr|mountport|port|fd|size|nr_inodes)=.*")  # differ among like nodes


@record
class NvmeDisk(Reported):
    """One NVMe name space: a disk. `used_by`: partitions, RAID arrays and volumes made of it."""

    name = Field(text)
    used_by = Field(texts)
    mounted = Field(texts)


@record
class NvmeController(Reported):
    """One NVMe controller, with its disks."""

    label = Field(text, "name")
    model = Field(text)
    state = Field(text)
    disks = Field(every(NvmeDisk), where="nvme: disks")

    @property
    def is_local(self) -> bool:
        """Whether it is a disk of the machine itself, rather than a volume of EBS."""
        return INSTANCE_STORE in self.model


@record
class EbsVolume(Reported):
    """How long one volume of EBS was asked for more than it, or all volumes of its instance, may give, in µs."""

    name = Field(text)
    serial = Field(text)  # of the volume's id: `vol0546d3c3b0af0bf6d`
    volume_iops_us = Field(whole)
    volume_throughput_us = Field(whole)
    instance_iops_us = Field(whole)
    instance_throughput_us = Field(whole)

    @property
    def label(self) -> str:
        """`nvme0 (vol-0546d3c3b0af0bf6d)`. Raises Incomplete."""
        return f"{self.name} (vol-{self.serial.removeprefix('vol').removeprefix('-')})"


def is_network(type_: str) -> bool:
    """Whether a file system of this type is served by others."""
    return bool(_NETWORK.fullmatch(type_))


def written_to(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """The mounts that jobs can fill and that answer, each file system once; the root volume and /dev/shm have checks
    of their own.
    """
    found = {
        (mount.type, mount.source if is_network(mount.type) else mount.path): mount
        for mount in reversed(mounts)
        if mount.alive == "yes" and not is_read_only(mount) and not _NOT_OF_JOBS.fullmatch(mount.path)
    }
    return tuple(reversed(found.values()))


def options_of(mounted: Mount | FstabEntry) -> tuple[str, ...]:
    """The options of a mount, or of a line of fstab, one by one."""
    return tuple(option for option in mounted.options.split(",") if option)


def is_read_only(mount: Mount) -> bool:
    """Whether writing is refused: as it was mounted, or since the kernel found an error."""
    return not READ_ONLY.isdisjoint(options_of(mount))


def mounted_alike(mounts: tuple[Mount, ...]) -> dict[str, str]:
    """What should be the same on every node of a group, by mount point: type and access; source and options too of
    what others serve.
    """
    values: dict[str, str] = {}
    for mount in mounts:
        values[f"{mount.path} type"] = mount.type
        values[f"{mount.path} access"] = "read-only" if is_read_only(mount) else "read-write"
        if is_network(mount.type):
            shared = sorted(option for option in options_of(mount) if not _NODES_OWN.fullmatch(option))
            values[f"{mount.path} source"] = mount.source
            values[f"{mount.path} options"] = ",".join(shared)
    return values
