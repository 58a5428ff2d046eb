"""Kernel log and SMART data of local disks, file systems, and clients of file servers."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import concern_if, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known
from clusterproof.plugins.evidence.kernel_log.wording import FILE_SERVERS, report, require_whole_log
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import has_disk_reports

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.storage.facts_disks import DiskArray, DiskHealth

pytestmark = [mark.storage, mark.preflight, mark.prolog]


@mark.hyperpod_performance_debugger("B")
@evidence("journalctl -k -b | grep -E 'Lustre|LNet|nfs: server|NFS: |ceph|CIFS|beegfs: mount'")
def test_file_system_errors(node: Node) -> None:
    """File server connections.

    The Lustre client lost or was evicted by a target, or an NFS server does not respond, and no later message says that
    it is back. Reads and writes there hang or fail. Connections that recovered are ignored.

    Remedy (restore service): Check whether the file server can be reached (lctl ping NID, showmount -e SERVER). Remount
    the file system; reboot the node if that hangs.
    """
    report(node, "storage.file_system_errors", "every file server to be back")
    require_whole_log(node, FILE_SERVERS)


@mark.hyperpod_node_debugger("F")
@evidence(
    "journalctl -k -b | grep -E 'EXT4-fs|JBD2|journal on|XFS|BTRFS|nvme|I/O (error|failure)|error, dev|swap-device"
    "|device-mapper|md[:/]| (sd|ata)[ 0-9]|megaraid|mpt[23]sas|smartpqi|hpsa'; "
    "dmesg -l err,crit"
)
def test_disk_errors(node: Node) -> None:
    """Local disk errors.

    After a journal error ext4 stops writing (Remounting filesystem read-only), and XFS shuts the file system down,
    which its mount options never show. Every write to it then fails until it is remounted; so do writes to a lost disk
    or array, or to a full thin pool. Other errors are concerns, such as timed-out NVMe commands or a file system that
    stopped but does not seem to be mounted. Images that users mount through loop devices are ignored. SMART and
    software RAID are evaluated only if a capture has their output; the probe does not query them.

    Remedy (replace): Save what can be read, then unmount, repair (fsck, xfs_repair) and remount. If the disk itself has
    errors (nvme smart-log /dev/nvme1), replace the node.
    """
    if has_disk_reports(node):
        evaluate_reports(node)
    report(node, "storage.disk_errors", "no error of a disk, and every file system to take writes")
    require_whole_log(node)


def evaluate_reports(node: Node) -> None:
    """The disks' and arrays' own reports, each evaluated separately."""
    from clusterproof.plugins.evidence.storage.facts_disks import disk_arrays, disk_health  # for captures alone

    for disk in known(lambda: disk_health.of(node), ()):
        with part:
            evaluate_disk(disk, node.threshold("disk.used_percent"))
    for array in known(lambda: disk_arrays.of(node), ()):
        with part:
            evaluate_array(array)


def evaluate_disk(disk: DiskHealth, most_percent: float) -> None:
    """Fail if a disk reports that it fails; a concern if it has errors, or is worn."""
    with part:
        faults = ", ".join(disk.faults)
        fail_if(faults, f"{disk.label}: {faults}; expected a disk whose SMART status is healthy")
    worn = ", ".join(disk.worn(most_percent))
    concern_if(worn, f"{disk.label}: {worn}; expected no media error, and less than {most_percent:g} % used")


def evaluate_array(array: DiskArray) -> None:
    """Fail where an array is lost; a concern where it goes on with fewer disks."""
    lacks = f" without {array.missing}" if array.missing else ""
    fail_if(array.is_lost, f"{array.name} has failed{lacks}; expected all of its disks")
    concern_if(lacks and not array.is_lost, f"{array.name} is degraded{lacks}; expected all of its disks")
    concern_if(not array.is_active, f"{array.name} is not active; expected the array started, or its disks wiped")
