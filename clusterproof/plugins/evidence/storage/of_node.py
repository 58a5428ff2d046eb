"""A node's file systems and disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, part
from clusterproof.plugins.evidence.fact import CollectorData, collected_as, collected_by, list_collected_as
from clusterproof.plugins.evidence.field import each, known, objects, optional, whole
from clusterproof.plugins.evidence.host.facts import (
    FstabEntry,
    Mount,
)
from clusterproof.plugins.evidence.lustre.facts import CheckpointFolder, Lustre, LustreClient, LustreTarget
from clusterproof.plugins.evidence.storage.facts import EbsVolume, NvmeController

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


mounts = list_collected_as("mounts", "mounts", Mount)
fstab = list_collected_as("mounts", "fstab", FstabEntry)


@collected_by("mounts")
def mounts_left_out(node: Node, mounts: CollectorData) -> int:
    """How many more mounts there are than are listed, without those of autofs, of which users make any number."""
    return mounts.get("left_out", optional(whole)) or 0


@collected_by()
def mount_points(node: Node) -> frozenset[str]:
    """Where the file systems that matter here are mounted."""
    return frozenset(mount.path for mount in node.mounts)


@collected_by()
def mount_points_of_most(node: Node) -> frozenset[str]:
    """The mount points that most nodes of its group have."""
    return node.group.most("mount points", lambda node: node.mount_points)


def mount_at(node: Node, path: str) -> Mount | None:
    """The file system mounted at exactly this path; the last one where several are stacked."""
    unread: Incomplete | None = None
    for mount in reversed(node.mounts):
        try:
            if mount.path == path:
                return mount
        except Incomplete as why:
            unread = why
    if unread:
        raise unread  # it may be this one
    return None


lustre = collected_as("lustre", Lustre)


@collected_by()
def lustre_mounts(node: Node) -> tuple[Mount, ...]:
    """The Lustre file systems that are mounted, at least one. Raises NotApplicable where there is none."""
    mounts = tuple(mount for mount in node.mounts if mount.type == "lustre")
    if not mounts:
        raise NotApplicable("no Lustre file system is mounted")
    return mounts


def lustre_clients(node: Node) -> tuple[LustreClient, ...]:
    """The connections to the servers of the Lustre file systems that are mounted, as far as they are reported.

    Raises Incomplete.
    """
    path = _lustre_path(node)
    clients = known(lambda: node.lustre.clients, ())
    with part:
        if not {"mdc", "osc"} <= {client.kind for client in clients} or node.lustre.left_out:
            raise Incomplete(f"{path} is Lustre, and its client does not report all its servers")
    return clients


def _lustre_path(node: Node) -> str:
    """Where Lustre is mounted. Raises NotApplicable where it is nowhere; where that is unknown, a check goes on."""
    try:
        return node.lustre_mounts[0].path
    except Incomplete:
        with part:
            raise
    return "a file system"


lustre_targets = list_collected_as("lustre_space", "targets", LustreTarget)


@collected_by("lustre_space")
def lustre_targets_left_out(node: Node, space: CollectorData) -> int:
    """How many OSTs and MDTs were left out, as there were too many."""
    return space.get("left_out", whole)


def osts(node: Node) -> tuple[LustreTarget, ...]:
    """The OSTs of the Lustre file systems that are mounted, as far as they are reported."""
    return _targets(node, "ost")


def mdts(node: Node) -> tuple[LustreTarget, ...]:
    """The MDTs of the Lustre file systems that are mounted, as far as they are reported."""
    return _targets(node, "mdt")


def _targets(node: Node, kind: str) -> tuple[LustreTarget, ...]:
    path = _lustre_path(node)
    of_kind = each(known(lambda: node.lustre_targets, ()), lambda target: (target.kind, target))
    targets = tuple(target for of, target in of_kind if of == kind)
    with part:
        if not targets or node.lustre_targets_left_out:
            raise Incomplete(f"{path} is Lustre, and its client does not report every {kind.upper()}")
    return targets


checkpoint_folders = list_collected_as("striping", "folders", CheckpointFolder)
ebs_volumes = list_collected_as("ebs", "volumes", EbsVolume)


@collected_by("nvme")
def nvme_controllers(node: Node, nvme: CollectorData) -> tuple[NvmeController, ...]:
    """The NVMe controllers that a driver runs. Raises Incomplete where there are such on the bus, and it runs none."""
    data = tuple(NvmeController(entry) for entry in nvme.get("controllers", objects))
    if not data and (dark := _nvme_on_bus(node)):
        cause = "no NVMe controller has a driver"
        raise Incomplete(f"{cause}; on the PCI bus: {', '.join(dark)}", cause=cause)
    return data


def _nvme_on_bus(node: Node) -> list[str]:
    try:
        return [device.address for device in node.pci_devices if device.is_nvme]
    except Incomplete:
        return []
