"""What the kernel log reports about local disks, their file systems, and the clients of file servers."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.wording import FILE_SERVERS, require_whole_log, say
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.storage, mark.preflight, mark.prolog]


@mark.hyperpod_performance_debugger("B")
@evidence("journalctl -k -b | grep -E 'Lustre(Error)?:|nfs: server'")
def test_file_system_errors(node: Node) -> None:
    """File server connections.

    Lustre's client lost a target or was evicted by it, or an NFS server does not respond, and no later line says that
    it is back. Whatever reads or writes there hangs or fails. Connections that recovered are ignored.

    Remedy (restore service): Check whether the file server can be reached (lctl ping, showmount). Mount it again;
    reboot if it hangs.
    """
    say(node, "storage.file_system_errors", "every file server to be back")
    require_whole_log(node, FILE_SERVERS)


@mark.hyperpod_node_debugger("F")
@evidence(
    "journalctl -k -b | grep -E 'EXT4-fs|XFS|nvme|I/O error|Aborting journal|md/raid|device-mapper'; dmesg -l err,crit"
)
def test_disk_errors(node: Node) -> None:
    """Local disk errors.

    After a journal error ext4 stops writing (Remounting filesystem read-only), and XFS shuts a file system down,
    which its mount options never show. While it stays mounted, every write to it fails, as it does on a disk or an
    array that is gone, or in a thin pool that is full. Other errors, and timed-out commands of an NVMe disk, are
    concerns, as is a file system that stopped and does not seem to be mounted. Images that users mount through loop
    devices are ignored.

    Remedy (replace): Save what can be read, then unmount, check (fsck, xfs_repair) and mount again. If the disk itself
    has errors, replace the node: nvme smart-log.
    """
    say(node, "storage.disk_errors", "no error of a disk, and every file system to take writes")
    require_whole_log(node)
